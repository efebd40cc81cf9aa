// The arguments of the dense kernel for more tokens than eight, and of the kernel that adds its segments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dense/dense_params.h"
#include "kernels/device/types.h"

namespace fourfold::dense {

inline constexpr int kManyTokens = 128;         // of a launch
inline constexpr int kFragmentBytes = 32 * 16;  // an m16 tile times eight tokens: 16 bytes a lane
inline constexpr int kStripFragments = 2;       // tiles of a strip

// Both kernels take the same: dense_many leaves the sums of its segments in `partial`, dense_sum adds them.
// `dense` as for dense_few, with token_count up to kManyTokens and `tokens` bf16 rows; nothing is normed.
struct ManyParams {
  DenseParams dense;
  // [segment][group of eight tokens][strip][tile][lane]: what a lane holds of a tile, partial_bytes() in all.
  // Where K is one segment, dense_many finishes the rows itself; for more than 16 tokens it still needs the
  // memory.
  device::F32x4* partial;
};

constexpr int groups_of(int tokens) { return (tokens + kTokens - 1) / kTokens; }
constexpr int segments_of(int records) { return (records + kSegmentRecords - 1) / kSegmentRecords; }

constexpr std::size_t partial_bytes(int rows, int columns, int tokens) {
  return static_cast<std::size_t>(segments_of(columns / record::kColumns)) *
         static_cast<std::size_t>(groups_of(tokens)) * static_cast<std::size_t>(rows / record::kRows) *
         kStripFragments * kFragmentBytes;
}

}  // namespace fourfold::dense
