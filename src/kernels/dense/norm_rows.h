// The row norm as a kernel of its own: a block a row, for any number of rows.
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/dense_params.h"
#include "kernels/dense/norm.h"

namespace fourfold::dense {

inline constexpr int kNormWarps = 8;
inline constexpr int kNormPieces = 4;  // of a warp
inline constexpr int kNormColumnsMax = kNormWarps * kNormPieces * kPieceColumns;

struct NormStorage {
  float piece_sums[kNormWarps * kNormPieces];
};

// x + y of eight columns, written back.
template <class Cta>
FOURFOLD_DEVICE void add_eight(Cta cta, const NormParams& params, std::int64_t at,
                               float (&values)[kLaneColumns]) {
  float other[kLaneColumns];
  if (params.add == NormAdd::f32) {
    load_eight(cta, static_cast<const float*>(params.y) + at, 0, kLaneColumns, other);
  } else {
    const auto packed =
        cta.load(reinterpret_cast<const device::U32x4*>(static_cast<const std::uint16_t*>(params.y) + at));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      other[2 * i] = std::bit_cast<float>(packed.v[i] << 16);
      other[2 * i + 1] = std::bit_cast<float>(packed.v[i] & 0xFFFF0000u);
    }
  }
#pragma unroll
  for (int i = 0; i < kLaneColumns; ++i) values[i] = Cta::add(values[i], other[i]);
  auto* to = reinterpret_cast<device::F32x4*>(params.x + at);
  cta.store(to, device::F32x4{{values[0], values[1], values[2], values[3]}});
  cta.store(to + 1, device::F32x4{{values[4], values[5], values[6], values[7]}});
}

using NormValues = float[kNormPieces][kLaneColumns];

// The columns a lane has of a row, in its warp's piece i.
template <class Cta>
FOURFOLD_DEVICE int norm_column(Cta cta, int warp, int i) {
  return (warp + kNormWarps * i) * kPieceColumns + cta.lane() * kLaneColumns;
}

// 1 / rms of the row a block has; all warps.
template <class Cta>
FOURFOLD_DEVICE float norm_factor(Cta cta, NormStorage& storage, int warp, int columns, float epsilon,
                                  const NormValues& values) {
  const int pieces = pieces_of(columns);
#pragma unroll
  for (int i = 0; i < kNormPieces; ++i) {
    if (warp + kNormWarps * i >= pieces) break;
    const float sum = piece_square_sum(cta, values[i]);
    if (cta.lane() == 0) cta.store_shared(&storage.piece_sums[warp + kNormWarps * i], sum);
  }
  cta.sync_block();  // every piece is summed
  return inverse_rms(cta, storage.piece_sums, columns, epsilon);
}

// What is left once a block has its row: its norm, and the result. All warps.
template <class Cta>
FOURFOLD_DEVICE void norm_and_store(Cta cta, NormStorage& storage, int warp, int columns, float epsilon,
                                    const NormValues& values, const NormValues& weight, std::uint16_t* out) {
  const float factor = norm_factor(cta, storage, warp, columns, epsilon, values);
#pragma unroll
  for (int i = 0; i < kNormPieces; ++i) {
    const int column = norm_column(cta, warp, i);
    if (column < columns)
      cta.store(reinterpret_cast<device::U32x4*>(out + column),
                normed_eight<Cta>(values[i], factor, weight[i]));
  }
}

// The norm's weights, which no kernel before this writes.
template <class Cta>
FOURFOLD_DEVICE void load_norm_weight(Cta cta, const NormParams& params, int warp, NormValues& weight) {
#pragma unroll
  for (int i = 0; i < kNormPieces; ++i)
    load_eight(cta, params.weight, norm_column(cta, warp, i), params.columns, weight[i]);
}

// The row a block norms, with what is added to it.
template <class Cta>
FOURFOLD_DEVICE void load_norm_values(Cta cta, const NormParams& params, int warp, std::int64_t row,
                                      NormValues& values) {
#pragma unroll
  for (int i = 0; i < kNormPieces; ++i)
    load_eight(cta, params.x + row, norm_column(cta, warp, i), params.columns, values[i]);
#pragma unroll
  for (int i = 0; i < kNormPieces; ++i)
    if (params.add != NormAdd::none && norm_column(cta, warp, i) < params.columns)
      add_eight(cta, params, row + norm_column(cta, warp, i), values[i]);
}

template <class Cta>
FOURFOLD_DEVICE void load_norm_row(Cta cta, const NormParams& params, int warp, std::int64_t row,
                                   NormValues& values, NormValues& weight) {
  load_norm_weight(cta, params, warp, weight);
  cta.wait_predecessors();
  cta.release_successors();
  load_norm_values(cta, params, warp, row, values);
}

template <class Cta>
FOURFOLD_DEVICE void norm_rows(Cta cta, const NormParams& params) {
  auto& storage = cta.template shared<NormStorage>();
  const int warp = cta.warp();
  const std::int64_t row = static_cast<std::int64_t>(cta.block()) * params.columns;
  NormValues values, weight;
  load_norm_row(cta, params, warp, row, values, weight);
  norm_and_store(cta, storage, warp, params.columns, params.epsilon, values, weight, params.out + row);
}

}  // namespace fourfold::dense
