// The meaning of the gated DeltaNet ops on an anchored state.
//
// S changes only at absolute multiples of 64 tokens. Row i of a block is computed from the anchor S0 at the
// block's start and the block's rows before it:
//
//   d_i = beta_i ( v_i - e^{G_i} S0^T k_i - sum_{j<i} e^{G_i - G_j} (k_j . k_i) d_j )
//   o_i = e^{G_i} S0^T q_i + sum_{j<=i} e^{G_i - G_j} (k_j . q_i) d_j
//   at the end of the block: S = e^{G_last} S0 + sum_j e^{G_last - G_j} k_j d_j^T
//
// with G the sum of the log decays since the anchor. It is the token-by-token recurrence unrolled; how a
// prompt is cut into chunks cannot be seen in it.
//
// Everything is kept by absolute position: two anchors (block b in place b % 2), the rows of two blocks. So a
// sequence goes back to any position of its last two blocks by simply going on from there, and going on from
// position 0 starts anew.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/program.h"
#include "backend/reference/rows.h"

namespace fourfold::backend::reference {

struct DeltaMemory {
  explicit DeltaMemory(const DeltaState& sizes);
  Rows anchors;               // [2, value_heads * key_head_dim * value_head_dim]
  Rows keys;                  // [2 blocks, key_dim], normalised
  Rows deltas;                // [2 blocks, value_dim]
  std::vector<double> decay;  // [2 blocks, value_heads]: G
  Rows conv_inputs;           // [2 blocks + conv_taps, conv_dim]
};

// All that rows from `position` on, a multiple of 64, need of those before it: the anchor, and the
// convolution's last inputs.
std::int64_t kept_floats(const DeltaState& sizes);
void save_state(const DeltaState& sizes, DeltaMemory& memory, std::int64_t position, float* to);
void restore_state(const DeltaState& sizes, const float* from, std::int64_t position, DeltaMemory& memory);

void causal_conv(const DeltaState& sizes, std::int64_t position, std::span<const float> taps,
                 std::span<const float> in, DeltaMemory& memory, std::span<float> out);

// What a row brings to the rule besides its position.
struct DeltaInput {
  std::span<const float> qkv;    // after the convolution
  std::span<const float> beta;   // logits
  std::span<const float> decay;  // logits
  std::span<const float> a_log;
  std::span<const float> dt_bias;
};
void delta_rule(const DeltaState& sizes, std::int64_t position, const DeltaInput& input, DeltaMemory& memory,
                std::span<float> out);

}  // namespace fourfold::backend::reference
