// Rows picked, normed and placed, with the arithmetic of dense/norm.h: the same bits as every other norm.
#pragma once

#include "base/macros.h"
#include "kernels/dense/norm.h"
#include "kernels/dense/norm_rows.h"
#include "kernels/step/step_params.h"

namespace fourfold::step {

template <class Cta>
FOURFOLD_DEVICE void select_norm(Cta cta, const SelectNormParams& params) {
  constexpr int warps = dense::kNormWarps, pieces_each = dense::kNormPieces,
                lane_columns = dense::kLaneColumns;
  auto& storage = cta.template shared<dense::NormStorage>();
  const int warp = cta.warp(), lane = cta.lane(), row = cta.block();
  const int pieces = dense::pieces_of(params.columns);
  const auto column_of = [&](int i) {
    return (warp + warps * i) * dense::kPieceColumns + lane * lane_columns;
  };
  cta.wait_predecessors();
  cta.release_successors();
  const std::int64_t from = params.in_rows ? cta.load(params.in_rows + row) : row;
  const std::int64_t to = params.out_rows ? cta.load(params.out_rows + row) : row;
  float values[pieces_each][lane_columns];
#pragma unroll
  for (int i = 0; i < pieces_each; ++i)
    dense::load_eight(cta, params.x + from * params.columns, column_of(i), params.columns, values[i]);
#pragma unroll
  for (int i = 0; i < pieces_each; ++i) {
    if (warp + warps * i >= pieces) break;
    const float sum = dense::piece_square_sum(cta, values[i]);
    if (lane == 0) cta.store_shared(&storage.piece_sums[warp + warps * i], sum);
  }
  cta.sync_block();  // every piece is summed
  const float factor = dense::inverse_rms(cta, storage.piece_sums, params.columns, params.epsilon);
#pragma unroll
  for (int i = 0; i < pieces_each; ++i) {
    const int column = column_of(i);
    if (column >= params.columns) continue;
    float weight[lane_columns];
    dense::load_eight(cta, params.weight, column, params.columns, weight);
    if (params.out)
      cta.store(reinterpret_cast<device::U32x4*>(params.out + row * params.out_stride + column),
                dense::normed_eight<Cta>(values[i], factor, weight));
    if (params.out_f32 == nullptr) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      device::F32x4 normed;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        normed.v[j] = Cta::mul(Cta::mul(values[i][4 * half + j], factor), weight[4 * half + j]);
      cta.store(reinterpret_cast<device::F32x4*>(params.out_f32 + to * params.columns + column) + half,
                normed);
    }
  }
}

}  // namespace fourfold::step
