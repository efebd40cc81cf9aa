// Runs the sampling kernels on the simulator for tests: host vectors in, tokens out.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/launch/sim_row.h"
#include "kernels/moe/chips.h"
#include "kernels/sampling/rows.h"
#include "plan/arch.h"

namespace fourfold::sampling {

using Chip = plan::Sm120;

template <class T>
T* to_device(sim::Device& device, const std::vector<T>& values, const char* name) {
  T* const memory = device.allocate_array<T>(values.empty() ? 1 : values.size(), name);
  if (!values.empty()) device.write_from_host(memory, values.data(), values.size() * sizeof(T));
  return memory;
}

template <class T>
std::vector<T> to_host(const sim::Device& device, const T* from, std::size_t count) {
  std::vector<T> values(count);
  device.read_to_host(values.data(), from, count * sizeof(T));
  return values;
}

inline SampleRow plain_row(double temperature) {
  SampleRow row{};
  row.temperature = temperature;
  row.top_p = 1;
  row.repetition_penalty = 1;
  row.history = -1;
  return row;
}

// Choice i has its logits from step row i, which holds step_tokens[i] at positions[i].
struct Choices {
  int tokens = 0;                          // that may be chosen
  std::vector<std::vector<float>> logits;  // a choice each, at least `tokens`; empty: no choice at this place
  std::vector<SampleRow> sampling;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> step_tokens;
  std::vector<std::vector<Seen>> histories;
  std::uint64_t seed = 0;  // of the simulator's schedule

  int count() const { return static_cast<int>(logits.size()); }
};

struct Chosen {
  std::vector<std::int32_t> tokens;  // -7 where no choice was
  std::vector<float> scores;
  std::vector<std::uint32_t> faults;
};

class ChoiceRun {
 public:
  explicit ChoiceRun(const Choices& choices) : choices_(choices) {
    device_.set_seed(choices.seed);
    upload_logits();
    upload_histories();
    allocate();
  }

  Chosen sample() {
    kernels::run_on_sim<ScoresRow<Chip>>(device_, choice_blocks(params_), params_);
    kernels::run_on_sim<PeaksRow<Chip>>(device_, part_blocks(params_), params_);
    kernels::run_on_sim<WeighRow<Chip>>(device_, part_blocks(params_), params_);
    kernels::run_on_sim<ChooseRow<Chip>>(device_, choice_blocks(params_), params_);
    return read();
  }

  // Without parameters, histories and group keys: the way of drafts and of greedy batches.
  Chosen greedy() {
    ChoiceParams params = params_;
    params.sampling = nullptr;
    params.group_keys = nullptr;
    params.group_weights = nullptr;
    kernels::run_on_sim<PeaksRow<Chip>>(device_, part_blocks(params), params);
    kernels::run_on_sim<ArgmaxRow<Chip>>(device_, choice_blocks(params), params);
    return read();
  }

  sim::Device& device() { return device_; }
  ChoiceParams& params() { return params_; }

 private:
  void upload_logits() {
    const auto count = choices_.logits.size();
    std::size_t width = 0;
    std::vector<std::int32_t> rows;
    std::vector<step::RowPlace> places;
    for (std::size_t i = 0; i < count; ++i) {
      width = std::max(width, choices_.logits[i].size());
      rows.push_back(choices_.logits[i].empty() ? -1 : static_cast<std::int32_t>(i));
      places.push_back({0, i < choices_.positions.size() ? choices_.positions[i] : 0, 0, 0});
    }
    params_.stride = static_cast<std::int64_t>((width + 3) / 4 * 4);
    params_.tokens = choices_.tokens;
    params_.choices = choices_.count();
    // Places without a choice stay unwritten: a kernel that looks there is caught.
    params_.logits =
        device_.allocate_array<float>(count * static_cast<std::size_t>(params_.stride), "logits");
    for (std::size_t i = 0; i < count; ++i)
      if (!choices_.logits[i].empty())
        device_.write_from_host(params_.logits + static_cast<std::int64_t>(i) * params_.stride,
                                choices_.logits[i].data(), choices_.logits[i].size() * sizeof(float));
    params_.choice_rows = to_device(device_, rows, "choice rows");
    params_.rows = to_device(device_, places, "row places");
    params_.sampling = to_device(device_, choices_.sampling, "sampling");
    params_.step_tokens = to_device(device_, choices_.step_tokens, "step tokens");
  }

  void upload_histories() {
    std::size_t limit = 1;
    for (const auto& history : choices_.histories) limit = std::max(limit, history.size());
    params_.histories.limit = static_cast<std::int32_t>(limit);
    std::vector<std::int32_t> counts;
    params_.histories.seen = device_.allocate_array<Seen>(
        std::max<std::size_t>(1, choices_.histories.size()) * limit, "histories");
    for (std::size_t i = 0; i < choices_.histories.size(); ++i) {
      const auto& history = choices_.histories[i];
      counts.push_back(static_cast<std::int32_t>(history.size()));
      if (!history.empty())
        device_.write_from_host(params_.histories.seen + i * limit, history.data(),
                                history.size() * sizeof(Seen));
    }
    params_.histories.counts = to_device(device_, counts, "history counts");
  }

  void allocate() {
    const int count = choices_.count();
    const auto bytes = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    params_.group_keys = static_cast<std::uint32_t*>(
        device_.allocate(bytes(group_keys_bytes(count, choices_.tokens)), "group keys"));
    params_.parts =
        static_cast<PartBest*>(device_.allocate(bytes(parts_bytes(count, choices_.tokens)), "parts"));
    params_.group_weights = static_cast<std::uint64_t*>(
        device_.allocate(bytes(group_weights_bytes(count, choices_.tokens)), "group weights"));
    const auto n = static_cast<std::size_t>(count);
    params_.chosen = to_device(device_, std::vector<std::int32_t>(n, -7), "chosen");
    params_.chosen_scores = to_device(device_, std::vector<float>(n, -7.0f), "scores");
    params_.faults = to_device(device_, std::vector<std::uint32_t>(n, 7), "faults");
  }

  Chosen read() {
    const auto n = static_cast<std::size_t>(choices_.count());
    return {to_host(device_, params_.chosen, n), to_host(device_, params_.chosen_scores, n),
            to_host(device_, params_.faults, n)};
  }

  Choices choices_;
  sim::Device device_;
  ChoiceParams params_{};
};

}  // namespace fourfold::sampling
