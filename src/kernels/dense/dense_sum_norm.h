// dense_sum into the residual stream and the norm of the result in one kernel: a block a token, which has the
// whole row. The arguments are those of dense_sum with op add_f32 and plain strips only, besides
//
//   norm_weight, epsilon   of the norm of the rows of `out`, 32 * strips columns
//   normed_out             its result, [token_count, 32 * strips]
//
// Same bits as dense_sum and then norm_rows.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/many_params.h"
#include "kernels/dense/many_sums.h"
#include "kernels/dense/norm_rows.h"
#include "kernels/device/functions.h"
#include "kernels/device/types.h"

namespace fourfold::dense {

// The segments of eight columns of one token, added in order: four lanes' places, of which half is this
// token's.
template <class Cta>
FOURFOLD_DEVICE void sum_eight(Cta cta, const ManyParams& params, int token, int column,
                               float (&sum)[kLaneColumns]) {
  const int strip = column / record::kRows, tile = column / (record::kRows / 2) % kStripFragments;
  const int g = column % (record::kRows / 2) / 2, in_group = token % kTokens;
  const std::int64_t fragment =
      (static_cast<std::int64_t>(token / kTokens) * params.dense.strips + strip) * kStripFragments + tile;
  const device::F32x4* at = params.partial + fragment * 32 + fragment_place(g, in_group / 2);
  const std::int64_t step = segment_step(params);
  const bool odd = in_group % 2 != 0;
  const int segments = segments_of(params.dense.records);
#pragma unroll 4
  for (int s = 0; s < segments; ++s) {
    device::F32x4 read[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) read[i] = cta.load(at + s * step + i);
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) {
      const float(&v)[4] = read[i / 2].v;
      const float part = i % 2 == 0 ? (odd ? v[1] : v[0]) : (odd ? v[3] : v[2]);
      sum[i] = s == 0 ? part : Cta::add(sum[i], part);
    }
  }
}

// x = x + sum * factors, as store_plain_tile() does it.
template <class Cta>
FOURFOLD_DEVICE void add_sums(Cta cta, const DenseParams& params, float factor, float open, float* x,
                              int column, const float (&sum)[kLaneColumns], float (&values)[kLaneColumns]) {
  float scale[kLaneColumns];
#pragma unroll
  for (int i = 0; i < kLaneColumns; ++i) scale[i] = 1.0f;
  if (params.row_scale) load_eight(cta, params.row_scale, column, column + kLaneColumns, scale);
  if (params.bias) {
    float bias[kLaneColumns];
    load_eight(cta, params.bias, column, column + kLaneColumns, bias);
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) values[i] = Cta::add(values[i], bias[i]);
  }
#pragma unroll
  for (int i = 0; i < kLaneColumns; ++i) {
    float value = Cta::mul(Cta::mul(sum[i], factor), scale[i]);
    if (params.token_gate) value = Cta::mul(open, value);
    values[i] = Cta::add(values[i], value);
  }
  auto* to = reinterpret_cast<device::F32x4*>(x + column);
  cta.store(to, device::F32x4{{values[0], values[1], values[2], values[3]}});
  cta.store(to + 1, device::F32x4{{values[4], values[5], values[6], values[7]}});
}

template <class Format, class Cta>
FOURFOLD_DEVICE void dense_sum_norm(Cta cta, const ManyParams& params) {
  auto& storage = cta.template shared<NormStorage>();
  const DenseParams& dense = params.dense;
  const int warp = cta.warp(), token = cta.block(), columns = record::kRows * dense.strips;
  float* x = static_cast<float*>(dense.out) + static_cast<std::int64_t>(token) * dense.out_stride;
  NormValues values, weight;
#pragma unroll
  for (int i = 0; i < kNormPieces; ++i)
    load_eight(cta, dense.norm_weight, norm_column(cta, warp, i), columns, weight[i]);
  cta.wait_predecessors();
  cta.release_successors();
  const float factor = Cta::mul(dense.scale, Format::half_decode_factor);
  const float open = dense.token_gate
                         ? device::sigmoid<Cta>(cta.load(dense.token_gate + static_cast<std::int64_t>(token) *
                                                                                dense.token_gate_stride))
                         : 1.0f;
#pragma unroll
  for (int i = 0; i < kNormPieces; ++i) {
    const int column = norm_column(cta, warp, i);
    load_eight(cta, x, column, columns, values[i]);
    if (column >= columns) continue;
    float sum[kLaneColumns];
    sum_eight(cta, params, token, column, sum);
    add_sums(cta, dense, factor, open, x, column, sum, values[i]);
  }
  norm_and_store(cta, storage, warp, columns, dense.epsilon, values, weight,
                 dense.normed_out + static_cast<std::int64_t>(token) * columns);
}

}  // namespace fourfold::dense
