// The last main pass again: in parts, to be timed, and with other rows, to be compared.
#include <algorithm>
#include <chrono>

#include "backend/cuda/prepared.h"
#include "backend/cuda/step/step_buffers.h"
#include "kernels/reference/layer.h"

namespace fourfold::backend::cuda {

std::vector<StageTime> PreparedGpu::time_stages(int rounds) {
  constexpr auto count = static_cast<unsigned>(Stage::count);
  const auto time_alone = [&](unsigned mask) {
    const auto recording = record(mask);
    if (recording == nullptr) return 0.0;
    time(*recording, 1);
    return time(*recording, rounds);
  };
  std::vector<StageTime> times;
  unsigned so_far = 0;
  for (unsigned stage = 0; stage < count; ++stage) {
    so_far |= 1u << stage;
    times.push_back(
        {std::string(stage_name(static_cast<Stage>(stage))), time_alone(1u << stage), time_alone(so_far)});
  }
  return times;
}

// A router's logits lie where they are until the next layer's projection.
std::vector<int> PreparedGpu::distinct_experts(int rows) {
  if (last_shape_.rows != rows) return {};
  kernels::Memory& memory = machine_.memory();
  std::vector<int> counts;
  std::vector<float> logits, bias;
  runner_.run(last_shape_, last_places_, [&](int index) {
    if (index == 0) return;
    const auto* mlp = std::get_if<DeviceMoe>(&model_.layers[static_cast<std::size_t>(index) - 1].mlp);
    if (mlp == nullptr) return;
    const auto width = static_cast<std::size_t>(mlp->in.width);
    logits.resize(static_cast<std::size_t>(rows) * width);
    memory.read(logits.data(), buffers_.projection, 4 * logits.size());
    moe_route::RouteRule rule = mlp->rule;
    if (rule.choice_bias != nullptr) {
      bias.resize(static_cast<std::size_t>(mlp->experts.experts));
      memory.read(bias.data(), rule.choice_bias, 4 * bias.size());
      rule.choice_bias = bias.data();
    }
    std::vector<bool> used(static_cast<std::size_t>(mlp->experts.experts));
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
      for (const int expert :
           fourfold::reference::route(logits.data() + row * width + mlp->in.first_column[0],
                                      mlp->experts.experts, mlp->top_k, rule)
               .experts)
        used[static_cast<std::size_t>(expert)] = true;
    counts.push_back(static_cast<int>(std::count(used.begin(), used.end(), true)));
  });
  memory.wait();
  return counts;
}

void PreparedGpu::set_tuning(std::shared_ptr<const Tuning> tuning) {
  selector_.set(std::move(tuning));
  runner_.forget_choices();
  recordings_.clear();
}

std::vector<Question> PreparedGpu::questions() {
  std::vector<Question> asked;
  runner_.forget_choices();
  selector_.listen(&asked);
  runner_.run(last_shape_, last_places_, [](int) {});
  selector_.listen(nullptr);
  machine_.memory().wait();
  return asked;
}

// Of large batches the layers that have every kind of op, and the last.
std::vector<std::vector<std::uint32_t>> PreparedGpu::outputs() {
  constexpr std::size_t kAllBelow = std::size_t{1} << 24;  // numbers of all layers
  kernels::Memory& memory = machine_.memory();
  forget_buffers(buffers_, model_, capacity_, memory);
  const auto last = static_cast<int>(model_.layers.size());
  const std::size_t numbers =
      static_cast<std::size_t>(last_shape_.rows) * static_cast<std::size_t>(model_.hidden);
  const int first = numbers * model_.layers.size() <= kAllBelow ? last : std::min(last, 8);
  std::vector<std::vector<std::uint32_t>> outputs;
  const auto take = [&](const void* from, std::size_t count) {
    outputs.emplace_back(count);
    memory.read(outputs.back().data(), from, 4 * count);
  };
  runner_.run(last_shape_, last_places_, [&](int index) {
    if (index <= first || index == last) take(buffers_.x, numbers);
  });
  const auto width = static_cast<std::size_t>(model_.head.logits_stride);
  for (int row = 0; row < last_shape_.logits_rows; ++row)
    take(buffers_.logits + static_cast<std::size_t>(row) * width,
         static_cast<std::size_t>(program_.vocab_size));
  return outputs;
}

std::unique_ptr<kernels::Recording> PreparedGpu::record(unsigned stages) {
  runner_.keep_stages(stages);
  auto recording = machine_.record([&] { runner_.run(last_shape_, last_places_, [](int) {}); });
  runner_.keep_stages(~0u);
  return recording;
}

double PreparedGpu::time(kernels::Recording& recording, int replays) {
  machine_.memory().wait();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < replays; ++i) machine_.replay(recording);
  machine_.memory().wait();
  const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
  return passed.count() / replays;
}

}  // namespace fourfold::backend::cuda
