// The layer's last step and the next layer's first one in one kernel, for generated rows that are normed by a
// launch of their own: a block a token, which has the whole row of the residual stream. Same bits as combine
// and then norm_rows.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/norm_rows.h"
#include "kernels/moe_combine/moe_combine.h"

namespace fourfold::moe_combine {

template <class Cta>
FOURFOLD_DEVICE void combine_norm(Cta cta, const CombineNormParams& params) {
  auto& storage = cta.template shared<dense::NormStorage>();
  const CombineParams& combine = params.combine;
  const int warp = cta.warp(), token = cta.block(), columns = combine.columns;
  const std::int64_t row = static_cast<std::int64_t>(token) * columns;
  dense::NormValues values, weight;
#pragma unroll
  for (int i = 0; i < dense::kNormPieces; ++i)
    dense::load_eight(cta, params.norm.weight, dense::norm_column(cta, warp, i), columns, weight[i]);
  const std::int32_t lane_slot = slot_of_lane(cta, combine, token);
  cta.wait_predecessors();
  cta.release_successors();
  const int pieces = dense::pieces_of(columns);
#pragma unroll
  for (int i = 0; i < dense::kNormPieces; ++i) {
    if (warp + dense::kNormWarps * i >= pieces) break;
    const int column = dense::norm_column(cta, warp, i);
    dense::load_eight(cta, combine.residual + row, column, columns, values[i]);
    float sum[8];
    sum_ranks<float>(cta, combine, lane_slot, column, sum);
    if (column >= columns) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) values[i][j] = Cta::add(values[i][j], sum[j]);
    auto* to = reinterpret_cast<device::F32x4*>(combine.residual + row + column);
    cta.store(to, device::F32x4{{values[i][0], values[i][1], values[i][2], values[i][3]}});
    cta.store(to + 1, device::F32x4{{values[i][4], values[i][5], values[i][6], values[i][7]}});
  }
  dense::norm_and_store(cta, storage, warp, columns, params.norm.epsilon, values, weight,
                        params.norm.out + row);
}

}  // namespace fourfold::moe_combine
