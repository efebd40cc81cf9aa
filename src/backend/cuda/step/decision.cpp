#include "backend/cuda/step/decision.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace fourfold::backend {
namespace cuda {
namespace {

// "0-2, 4, 6-9"
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fourfold::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    if (last > i) text += fourfold::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

LaunchNotes::LaunchNotes(kernels::Machine& machine) : machine_(machine) {
  machine.listen([this](std::string_view kernel) { kernels_.emplace_back(kernel); });
}

void LaunchNotes::cut(int index) { parts_.push_back({index, std::exchange(kernels_, {})}); }

StepDecision LaunchNotes::decision(const PassShape& shape, const kernels::Recording* recording) {
  StepDecision out;
  out.shape = fourfold::format("{} {} row{} of {} sequence{}, {} with logits{}", shape.rows,
                               shape.pass == Pass::draft    ? "draft"
                               : shape.role == Role::decode ? "generated"
                                                            : "prompt",
                               shape.rows == 1 ? "" : "s", shape.sequences, shape.sequences == 1 ? "" : "s",
                               shape.logits_rows, shape.choice.token_limit > 0 ? ", tokens chosen" : "");
  out.is_recorded = recording != nullptr;
  // Layers with the same kernels are one line.
  std::vector<std::vector<int>> layers;
  for (const Part& part : parts_) {
    out.kernel_count += static_cast<int>(part.kernels.size());
    if (part.index == 0) {
      out.parts.push_back({"embedding", 0, part.kernels});
      layers.emplace_back();
      continue;
    }
    const auto same = std::find_if(out.parts.begin(), out.parts.end(), [&](const StepPart& other) {
      return other.layer_count > 0 && other.kernels == part.kernels;
    });
    const auto at = static_cast<std::size_t>(same - out.parts.begin());
    if (same == out.parts.end()) {
      out.parts.push_back({"", 0, part.kernels});
      layers.emplace_back();
    }
    ++out.parts[at].layer_count;
    layers[at].push_back(part.index - 1);
  }
  for (std::size_t i = 0; i < out.parts.size(); ++i)
    if (out.parts[i].layer_count > 0)
      out.parts[i].what = (layers[i].size() == 1 ? "layer " : "layers ") + ranges(layers[i]);
  out.kernel_count += static_cast<int>(kernels_.size());
  if (!kernels_.empty())
    out.parts.push_back({shape.pass == Pass::draft ? "draft pass" : "head", 0, std::exchange(kernels_, {})});
  check(recording == nullptr || recording->kernel_count() == out.kernel_count,
        "a recording holds what was launched", out.kernel_count);
  return out;
}

}  // namespace cuda

std::string StepDecision::text() const {
  std::string out = fourfold::format("{}: {} kernels, {}\n", shape, kernel_count,
                                     is_recorded ? "recorded as a graph" : "launched one by one");
  for (const StepPart& part : parts) {
    out += fourfold::format("  {}: {} kernel{}{}:", part.what, part.kernels.size(),
                            part.kernels.size() == 1 ? "" : "s", part.layer_count > 1 ? " each" : "");
    for (std::size_t i = 0; i < part.kernels.size(); ++i)
      out += fourfold::format("{} {}", i == 0 ? "" : ";", part.kernels[i]);
    out += "\n";
  }
  return out;
}

}  // namespace fourfold::backend
