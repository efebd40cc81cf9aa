// Tensor-core tiles of the prompt kernels: bf16 operands in shared memory with rows padded by 16 bytes, f32
// accumulators. A product is always written "rows of A times rows of B", both running along the summed
// dimension, which is how mma.m16n8k16 and load_matrix_x4 want them without a transposition.
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"
#include "kernels/delta/delta_params.h"
#include "kernels/device/types.h"

namespace fourfold::delta {

// The A operand: 16 rows from `row` on, 16 columns from `column` on.
template <class Cta>
FOURFOLD_DEVICE void load_a(Cta cta, const std::uint16_t* tile, int stride, int row, int column,
                            std::uint32_t (&a)[4]) {
  const int lane = cta.lane();
  const auto r = cta.load_matrix_x4(tile + (row + (lane & 15)) * stride + column + (lane >> 4) * 8);
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = r.v[i];
}

// The B operands of two n8 tiles: rows `row`.. + 7 in v[0], v[1], the next eight in v[2], v[3].
template <class Cta>
FOURFOLD_DEVICE device::U32x4 load_b_pair(Cta cta, const std::uint16_t* tile, int stride, int row,
                                          int column) {
  const int lane = cta.lane();
  return cta.load_matrix_x4(tile + (row + (lane & 7) + (lane >> 4) * 8) * stride + column +
                            (lane >> 3 & 1) * 8);
}

template <class Cta>
FOURFOLD_DEVICE void multiply_pair(Cta cta, float (&first)[4], float (&second)[4],
                                   const std::uint32_t (&a)[4], const device::U32x4& b) {
  cta.mma_bf16(first, a, b.v[0], b.v[1]);
  cta.mma_bf16(second, a, b.v[2], b.v[3]);
}

// Two neighbouring accumulator tiles as the A operand of the next product: their columns are its sum.
template <class Cta>
FOURFOLD_DEVICE void pack_a(const float (&left)[4], const float (&right)[4], std::uint32_t (&a)[4]) {
  a[0] = Cta::pack_bf16(left[0], left[1]);
  a[1] = Cta::pack_bf16(left[2], left[3]);
  a[2] = Cta::pack_bf16(right[0], right[1]);
  a[3] = Cta::pack_bf16(right[2], right[3]);
}

FOURFOLD_DEVICE float low_bf16(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
FOURFOLD_DEVICE float high_bf16(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xFFFF0000u); }

template <class Cta>
FOURFOLD_DEVICE ChunkPlace load_chunk(Cta cta, const ChunkPlace* from) {
  const auto low = cta.load(reinterpret_cast<const device::U32x4*>(from));
  const auto high = cta.load(reinterpret_cast<const device::U32x4*>(from) + 1);
  ChunkPlace place{};
  place.first_row = static_cast<std::int32_t>(low.v[0]);
  place.row_count = static_cast<std::int32_t>(low.v[1]);
  place.position = static_cast<std::int32_t>(low.v[2]);
  place.state_slot = static_cast<std::int32_t>(low.v[3]);
  place.sequence_position = static_cast<std::int32_t>(high.v[0]);
  place.sequence_end = static_cast<std::int32_t>(high.v[1]);
  return place;
}

}  // namespace fourfold::delta
