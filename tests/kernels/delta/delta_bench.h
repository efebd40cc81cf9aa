// A layer's DeltaNet on a simulated device: state, projections that come from a stand-in of the layer's
// projection kernel, and steps over some of its sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bf16.h"
#include "kernels/delta/delta_params.h"
#include "kernels/delta/rows.h"
#include "kernels/launch/sim_row.h"
#include "kernels/verify/delta_inputs.h"
#include "sim/device.h"

namespace fourfold::delta {

// A sequence's rows in a step.
struct StepRows {
  int slot = 0;
  int position = 0;
  std::vector<HostRow> rows;  // none: a place without a sequence
};

class DeltaBench {
 public:
  DeltaBench(const Layout& layout, const HostWeights& weights, int slots, std::uint64_t seed)
      : layout_(layout) {
    device_.set_seed(seed);
    weights_.taps = upload(weights.taps, "taps");
    weights_.a_log = upload(weights.a_log, "a_log");
    weights_.dt_bias = upload(weights.dt_bias, "dt_bias");
    weights_.norm_weight = upload(weights.norm_weight, "norm weight");
    weights_.epsilon = static_cast<float>(weights.epsilon);
    weights_.gate_is_sigmoid = weights.gate_is_sigmoid ? 1 : 0;
    state_ = device_.allocate_array<float>(static_cast<std::size_t>(slots) * layout.slot_floats, "state");
  }

  // Runs generated rows; the result has value_dim columns a row, bf16, sequence after sequence.
  template <class Row>
  std::vector<std::uint16_t> decode(const std::vector<StepRows>& step) {
    Batch batch = make_batch<float>(step);
    DecodeParams params{};
    params.sequences = batch.sequences;
    params.sequence_limit = static_cast<std::int32_t>(step.size());
    params.mixed = batch.mixed;
    params.weights = weights_;
    params.state = state_;
    params.layout = layout_;
    params.out = batch.out;
    params.out_stride = layout_.value_dim + 8;
    stats_ = kernels::run_on_sim<Row>(device_, decode_blocks(params.sequence_limit, layout_), params);
    return take_out(batch);
  }

  // Runs prompt rows through the three kernels; places of the chunk table beyond the batch are empty.
  template <int D, class Arch>
  std::vector<std::uint16_t> prompt(const std::vector<StepRows>& step) {
    Batch batch = make_batch<std::uint16_t>(step);
    std::vector<ChunkPlace> chunks;
    std::vector<PromptPlace> prompts;
    int first_row = 0;
    for (const StepRows& sequence : step) {
      const int rows = static_cast<int>(sequence.rows.size());
      const step::SequencePlace place{first_row, rows, sequence.position, sequence.slot, 0, {}};
      const int count = prompt_chunks(sequence.position, rows);
      prompts.push_back({static_cast<std::int32_t>(chunks.size()), count, {}});
      for (int i = 0; i < count; ++i) chunks.push_back(chunk_of(place, i));
      first_row += rows;
    }
    chunks.push_back({});
    PromptParams params{};
    params.chunks = upload(chunks, "chunks");
    params.prompts = upload(prompts, "prompts");
    params.chunk_limit = static_cast<std::int32_t>(chunks.size());
    params.prompt_limit = static_cast<std::int32_t>(prompts.size());
    params.mixed = batch.mixed;
    params.weights = weights_;
    params.state = state_;
    params.layout = layout_;
    const PromptSizes sizes{params.chunk_limit, batch.row_count, layout_};
    void* work = device_.allocate(static_cast<std::size_t>(sizes.bytes()), "workspace");
    params.work = workspace_at(work, sizes);
    params.out = batch.out;
    params.out_stride = layout_.value_dim + 8;
    const auto run = [&]<PromptKernel Kernel>(int blocks) {
      prompt_stats_.push_back(kernels::run_on_sim<PromptRow<Arch, Kernel, D>>(device_, blocks, params));
    };
    prompt_stats_.clear();
    run.template operator()<PromptKernel::prepare>(prepare_blocks(params.chunk_limit, layout_));
    run.template operator()<PromptKernel::scan>(scan_blocks(params.prompt_limit, layout_));
    run.template operator()<PromptKernel::finish>(
        finish_blocks(params.chunk_limit, params.prompt_limit, layout_));
    device_.release(work);
    device_.release(params.chunks);
    device_.release(params.prompts);
    return take_out(batch);
  }

  const std::vector<sim::LaunchStats>& prompt_stats() const { return prompt_stats_; }
  sim::Device& device() { return device_; }
  const sim::LaunchStats& stats() const { return stats_; }
  const Layout& layout() const { return layout_; }
  const LayerWeights& weights() const { return weights_; }
  float* state() { return state_; }
  // `count` floats of a slot, all of which somebody has written.
  std::vector<float> read(const float* from, int count) const {
    std::vector<float> values(static_cast<std::size_t>(count));
    device_.read_to_host(values.data(), from, values.size() * sizeof(float));
    return values;
  }
  template <class T>
  T* upload(const std::vector<T>& values, const char* name) {
    T* memory = device_.allocate_array<T>(std::max<std::size_t>(values.size(), 1), name);
    device_.write_from_host(memory, values.data(), values.size() * sizeof(T));
    return memory;
  }

  struct Batch {
    step::SequencePlace* sequences;
    MixedRows mixed;
    std::uint16_t* out;
    int row_count;
    void* given;
  };

  // Element: float, or std::uint16_t for bf16.
  template <class Element>
  Batch make_batch(const std::vector<StepRows>& step) {
    const int stride = (layout_.conv_dim + layout_.value_dim + 2 * layout_.value_heads + 23) / 8 * 8;
    std::vector<step::SequencePlace> places;
    std::vector<Element> mixed;
    int row_count = 0;
    for (const StepRows& sequence : step) {
      const int rows = static_cast<int>(sequence.rows.size());
      places.push_back({row_count, rows, sequence.position, sequence.slot, 0, {}});
      for (const HostRow& row : sequence.rows) append(mixed, row, stride);
      row_count += rows;
    }
    Batch batch{};
    batch.row_count = row_count;
    batch.sequences = upload(places, "sequences");
    batch.mixed = project(mixed, stride);
    batch.out = device_.allocate_array<std::uint16_t>(
        static_cast<std::size_t>(row_count + 1) * (layout_.value_dim + 8), "out");
    return batch;
  }
  std::vector<std::uint16_t> take_out(Batch& batch) {
    std::vector<std::uint16_t> out;
    for (int row = 0; row < batch.row_count; ++row) {
      std::vector<std::uint16_t> values(static_cast<std::size_t>(layout_.value_dim));
      device_.read_to_host(values.data(), batch.out + row * (layout_.value_dim + 8), values.size() * 2);
      out.insert(out.end(), values.begin(), values.end());
    }
    device_.release(batch.sequences);
    device_.release(batch.mixed.rows);
    device_.release(batch.out);
    return out;
  }

 private:
  static void put(std::vector<float>& to, float value) { to.push_back(value); }
  static void put(std::vector<std::uint16_t>& to, float value) { to.push_back(to_bf16(value).bits); }
  // z, qkv, decay, beta: not the order of the kernel's arguments.
  template <class Element>
  void append(std::vector<Element>& to, const HostRow& row, int stride) const {
    const std::size_t end = to.size() + static_cast<std::size_t>(stride);
    for (const auto* part : {&row.z, &row.qkv, &row.decay, &row.beta})
      for (const float value : *part) put(to, value);
    while (to.size() < end) put(to, 1e30f);
  }
  // The grid before the kernel: it waits for older ones, lets its successor start, and only then writes.
  template <class Element>
  MixedRows project(const std::vector<Element>& values, int stride) {
    Element* given = upload(values, "given");
    Element* rows = device_.allocate_array<Element>(values.size() + 8, "mixed");
    const int chunks = static_cast<int>(values.size() * sizeof(Element) / 16);
    device_.launch({.blocks = 1, .threads = 64, .pdl = true, .name = "projection"}, [&](sim::Lane& lane) {
      const device::SimCta cta(lane);
      cta.wait_predecessors();
      cta.release_successors();
      for (int i = cta.thread(); i < chunks; i += cta.threads())
        cta.store(reinterpret_cast<device::U32x4*>(rows) + i,
                  cta.load(reinterpret_cast<const device::U32x4*>(given) + i));
    });
    device_.release(given);
    MixedRows mixed{};
    mixed.rows = rows;
    mixed.stride = stride;
    mixed.z_column = 0;
    mixed.qkv_column = layout_.value_dim;
    mixed.decay_column = mixed.qkv_column + layout_.conv_dim;
    mixed.beta_column = mixed.decay_column + layout_.value_heads;
    return mixed;
  }

  sim::Device device_;
  Layout layout_;
  LayerWeights weights_{};
  float* state_ = nullptr;
  sim::LaunchStats stats_;
  std::vector<sim::LaunchStats> prompt_stats_;
};

}  // namespace fourfold::delta
