// How keys and values lie in the CPU's cache: in panels of sixteen columns, so that scores and weighted sums
// are the same loop, and the loop reads memory from one end to the other.
//
//   keys    [page][head][16 positions each][padded_dim][16]   a column is a position
//   values  [page][head][16 dimensions each][page_tokens][16] a column is a dimension
//
// A latent cache (MLA) has keys alone: panels of its values are made of them, run by run.
//
// A score is defined as a sum in sixteen lanes, dimension d in lane d % 16, and the lanes added as L::sum
// adds them: halves to halves. Where a column is a position, the lanes are made one after the other; so a
// key's dimensions lie lane by lane, and the lanes in the order in which that tree of additions wants them.
#pragma once

#include <cstdint>

namespace fourfold::cpu {

inline constexpr std::int64_t kKvColumns = 16;

constexpr std::int64_t kv_padded(std::int64_t count) {
  return (count + kKvColumns - 1) / kKvColumns * kKvColumns;
}

// Which of a key's padded_dim rows holds dimension d.
constexpr std::int64_t key_row(std::int64_t d, std::int64_t padded_dim) {
  const std::int64_t lane = d % 16;
  // Neighbours in this order are summed first: 0, 8, 4, 12, 2, 10, ...: the bits of the lane, reversed.
  const std::int64_t turn = (lane & 1) << 3 | (lane & 2) << 1 | (lane & 4) >> 1 | (lane & 8) >> 3;
  return turn * (padded_dim / 16) + d / 16;
}

}  // namespace fourfold::cpu
