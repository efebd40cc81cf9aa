#include "checkpoint/tensor_pool.h"

#include <algorithm>
#include <charconv>

#include "base/format.h"

namespace fourfold::checkpoint {
namespace {

// Tensors that published checkpoints carry and the text path does not read.
struct Skipped {
  std::string_view prefix;
  std::string_view suffix;
  std::string_view pattern;
};
constexpr Skipped kSkipped[] = {
    {"model.visual.", "", "model.visual.*"},
    {"visual.", "", "visual.*"},
    {"", ".rotary_emb.inv_freq", "*.rotary_emb.inv_freq"},
};

auto first_at_or_after(std::span<const TensorView> tensors, std::string_view name) {
  return std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const TensorView& tensor, std::string_view wanted) { return tensor.name < wanted; });
}

}  // namespace

TensorPool::TensorPool(const Checkpoint& checkpoint)
    : checkpoint_(checkpoint), used_(checkpoint.tensors().size(), false) {}

bool TensorPool::has_prefix(std::string_view prefix) const {
  const auto found = first_at_or_after(checkpoint_.tensors(), prefix);
  return found != checkpoint_.tensors().end() && found->name.starts_with(prefix);
}

std::int64_t TensorPool::count_numbered(std::string_view prefix) const {
  std::int64_t count = 0;
  for (auto tensor = first_at_or_after(checkpoint_.tensors(), prefix);
       tensor != checkpoint_.tensors().end() && tensor->name.starts_with(prefix); ++tensor) {
    const std::string_view rest = tensor->name.substr(prefix.size());
    std::int64_t number = -1;
    const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    constexpr std::int64_t most = 1000;  // a larger number is left over and reported as such
    if (read.ec == std::errc() && number >= 0 && number < most) count = std::max(count, number + 1);
  }
  return count;
}

const TensorView* TensorPool::take_if_present(std::string_view name) {
  const TensorView* tensor = checkpoint_.find(name);
  if (tensor != nullptr) used_[static_cast<std::size_t>(tensor - checkpoint_.tensors().data())] = true;
  return tensor;
}

const TensorView* TensorPool::take(std::string_view name) {
  const TensorView* tensor = take_if_present(name);
  if (tensor != nullptr) return tensor;
  problems_.add("missing", name);
  // A config that asks for billions of tensors is answered before all of them have been looked for.
  if (++missing_count_ == kMissingMax) fail_if_any();
  return nullptr;
}

void TensorPool::misshapen(const TensorView& tensor, std::string_view wanted) {
  problems_.add("misshapen", fourfold::format("{} is {}, not {}", tensor.name, describe(tensor), wanted));
}

void TensorPool::unusable(std::string_view name, std::string_view why) {
  problems_.add("unusable", fourfold::format("{}: {}", name, why));
}

void TensorPool::skip_all(std::string_view prefix, std::string_view suffix, std::string_view pattern) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < used_.size(); ++i) {
    const std::string_view name = checkpoint_.tensors()[i].name;
    if (used_[i] || !name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    used_[i] = true;
    ++count;
  }
  if (count > 0) skipped_.push_back(fourfold::format("{} ({} tensors)", pattern, count));
}

void TensorPool::skip_prefix(std::string_view prefix) { skip_all(prefix, "", std::string(prefix) + "*"); }

std::vector<std::string> TensorPool::skip_unused() {
  for (const Skipped& rule : kSkipped) skip_all(rule.prefix, rule.suffix, rule.pattern);
  return std::move(skipped_);
}

void TensorPool::finish() {
  for (std::size_t i = 0; i < used_.size(); ++i)
    if (!used_[i]) problems_.add("left over", checkpoint_.tensors()[i].name);
  fail_if_any();
}

void TensorPool::fail_if_any() const {
  problems_.fail_if_any(checkpoint_.folder().string() + ": the tensors do not fit config.json",
                        "the checkpoint is incomplete, or of a layout that is not supported");
}

}  // namespace fourfold::checkpoint
