// The recurrent state of the DeltaNet layers, kept by absolute position as reference/delta.h says: two
// anchors, the rows of two blocks, the inputs of the convolution.
#pragma once

#include <cstdint>
#include <span>

#include "backend/batch.h"
#include "backend/cpu/machine.h"
#include "backend/program.h"

namespace fourfold::backend::cpu {

inline constexpr std::int64_t kValuesPerKeyMax = 32;
inline constexpr std::int64_t kConvTapsMax = 64;

struct DeltaValues {
  const float* qkv = nullptr;    // [rows, conv_dim], after the convolution
  const float* beta = nullptr;   // [rows, value_heads], logits
  const float* decay = nullptr;  // [rows, value_heads], logits
  std::span<const float> a_log;
  std::span<const float> dt_bias;
  float* out = nullptr;  // [rows, value_dim]
};

// One layer's states in all slots.
class DeltaStore {
 public:
  DeltaStore(const DeltaState& sizes, std::int64_t slot_count);

  // taps: [conv_dim, conv_taps]; in, out: [rows, conv_dim].
  void convolve(Machine& machine, std::span<const SequenceRows> sequences, std::span<const float> taps,
                const float* in, float* out);
  void apply(Machine& machine, std::span<const SequenceRows> sequences, const DeltaValues& values);

  // All that rows from `position` on, a multiple of 64, need of those before it: the anchor, and the
  // convolution's last inputs.
  std::int64_t kept_floats() const;
  void save(std::int32_t slot, std::int64_t position, float* to);
  void restore(const float* from, std::int32_t slot, std::int64_t position);

 private:
  struct KeyHead;  // one key head of one sequence and the value heads that share it
  float* anchor(std::int32_t slot, std::int64_t block, std::int64_t value_head);
  float* key(std::int32_t slot, std::int64_t position, std::int64_t key_head);
  float* delta(std::int32_t slot, std::int64_t position, std::int64_t value_head);
  double& decay(std::int32_t slot, std::int64_t position, std::int64_t value_head);
  float* conv_input(std::int32_t slot, std::int64_t position);

  DeltaState sizes_;
  std::int64_t conv_kept_;
  kernel::AlignedBytes anchors_;      // [slot][2][value head][key_head_dim][value_head_dim]
  kernel::AlignedBytes keys_;         // [slot][2 blocks][key_dim], normalised
  kernel::AlignedBytes deltas_;       // [slot][2 blocks][value_dim]
  kernel::AlignedBytes decays_;       // [slot][2 blocks][value heads]: G, double
  kernel::AlignedBytes conv_inputs_;  // [slot][2 blocks + taps][conv_dim]
  Scratch<float> tap_rows_;           // [tap][conv_dim]
  Scratch<std::int64_t> first_rows_;  // by sequence
  Scratch<float> head_memory_;        // by item: a query and two rows of values
};

}  // namespace fourfold::backend::cpu
