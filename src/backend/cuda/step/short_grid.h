// Attention's grid where contexts are short: a recorded step does not know its contexts, but a step that is
// recorded for short ones knows how many splits there can be.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention_params.h"

namespace fourfold::backend::cuda {

inline constexpr int kShortContext = 1024;  // tokens: up to here a split is a page
inline constexpr int kShortSequences = 8;   // more of them fill the grid

// Blocks where every row stands before kShortContext: what was asked for, or one for each unit.
constexpr int short_grid(int blocks, int sequences, int sequence_rows, int heads, int kv_heads, int tile) {
  return static_cast<int>(std::min<std::int64_t>(
      blocks, sequences * attention::attend_units(kShortContext - 1, sequence_rows, heads, kv_heads, tile)));
}

}  // namespace fourfold::backend::cuda
