// The arithmetic of the row norm, shared by the kernels that norm while they load and by norm_rows, so that
// both give the same bits whatever number of warps works on a row.
//
//   A row is cut into pieces of 256 columns. Lane l of a warp has columns 8l .. 8l + 7 of a piece: two chains
//   of four squares, added; the 32 lanes are added by a butterfly; the pieces are added in order.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"

namespace fourfold::dense {

inline constexpr int kPieceColumns = 256;
inline constexpr int kLaneColumns = kPieceColumns / 32;

constexpr int pieces_of(int columns) { return (columns + kPieceColumns - 1) / kPieceColumns; }

// Eight neighbours of an f32 row; zeros beyond its end, which lies at a multiple of eight.
template <class Cta>
FOURFOLD_DEVICE void load_eight(Cta cta, const float* row, int column, int columns,
                                float (&values)[kLaneColumns]) {
  device::F32x4 low{}, high{};
  if (column < columns) {
    low = cta.load(reinterpret_cast<const device::F32x4*>(row + column));
    high = cta.load(reinterpret_cast<const device::F32x4*>(row + column + 4));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[i] = low.v[i];
    values[4 + i] = high.v[i];
  }
}

// The sum of the squares of a piece; every lane gets it.
template <class Cta>
FOURFOLD_DEVICE float piece_square_sum(Cta cta, const float (&values)[kLaneColumns]) {
  float chain[2] = {Cta::mul(values[0], values[0]), Cta::mul(values[4], values[4])};
#pragma unroll
  for (int i = 1; i < 4; ++i)
#pragma unroll
    for (int c = 0; c < 2; ++c) chain[c] = Cta::fma(values[4 * c + i], values[4 * c + i], chain[c]);
  float sum = Cta::add(chain[0], chain[1]);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum = Cta::add(sum, cta.shuffle_xor(sum, mask));
  return sum;
}

// 1 / sqrt(mean + epsilon), from the sums of the row's pieces in shared memory. per_column: 1 / columns,
// which may be made before there is a row.
template <class Cta>
FOURFOLD_DEVICE float inverse_rms_of(Cta cta, const float* piece_sums, int pieces, float per_column,
                                     float epsilon) {
  float total = 0.0f;
#pragma unroll 1
  for (int first = 0; first < pieces; first += 8) {  // eight are read at once
    float sum[8] = {};                               // a zero changes no sum of squares
#pragma unroll
    for (int p = 0; p < 8; ++p)
      if (first + p < pieces) sum[p] = cta.load_shared(piece_sums + first + p);
#pragma unroll
    for (int p = 0; p < 8; ++p) total = Cta::add(total, sum[p]);
  }
  const float mean = Cta::mul(total, per_column);
  return Cta::reciprocal(Cta::sqrt(Cta::add(mean, epsilon)));
}
template <class Cta>
FOURFOLD_DEVICE float inverse_rms(Cta cta, const float* piece_sums, int columns, float epsilon) {
  return inverse_rms_of(cta, piece_sums, pieces_of(columns), Cta::reciprocal(static_cast<float>(columns)),
                        epsilon);
}

template <class Cta>
FOURFOLD_DEVICE device::U32x4 normed_eight(const float (&values)[kLaneColumns], float factor,
                                           const float (&weight)[kLaneColumns]) {
  device::U32x4 packed;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    packed.v[i] = Cta::pack_bf16(Cta::mul(Cta::mul(values[2 * i], factor), weight[2 * i]),
                                 Cta::mul(Cta::mul(values[2 * i + 1], factor), weight[2 * i + 1]));
  return packed;
}

}  // namespace fourfold::dense
