// The row norm of prompts: the arithmetic of norm_rows, and its result in every form the matrices behind it
// read, so that no pass of its own stages or quantises it. A block a row.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/dense_params.h"
#include "kernels/dense/fp8_codes.h"
#include "kernels/dense/norm.h"
#include "kernels/dense/norm_rows.h"

namespace fourfold::dense {

struct NormPromptStorage {
  NormStorage norm;
  float largest[kNormWarps];
};

// Eight neighbours of a row, which start at `column`, to where they are wanted.
template <class Cta>
FOURFOLD_DEVICE void store_eight(Cta cta, const PromptRows& rows, std::int64_t row_start, int column,
                                 const device::U32x4& eight) {
  if (rows.plain != nullptr)
    cta.store(reinterpret_cast<device::U32x4*>(rows.plain + row_start + column), eight);
  if (rows.staged != nullptr) {
    // Pair j of chunk t goes to pair 4j + t of the 32 columns.
    auto* to = reinterpret_cast<std::uint32_t*>(rows.staged + row_start + (column & ~31)) + column / 8 % 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) cta.store(to + 4 * j, eight.v[j]);
  }
}
template <class Cta>
FOURFOLD_DEVICE void store_eight_codes(Cta cta, const PromptRows& rows, std::int64_t row_start, int column,
                                       const device::U32x4& eight, float inverse) {
  auto* to = reinterpret_cast<std::uint32_t*>(rows.codes + row_start + (column & ~31)) + column / 8 % 4;
  cta.store(to, four_codes<Cta>(eight.v[0], eight.v[1], inverse));
  cta.store(to + 4, four_codes<Cta>(eight.v[2], eight.v[3], inverse));
}

// The inverse of the row's factor, which is stored; all warps.
template <class Cta>
FOURFOLD_DEVICE float find_factor(Cta cta, NormPromptStorage& storage, const PromptRows& rows, int warp,
                                  float largest) {
  if (rows.inverse != 0.0f) return rows.inverse;
  largest = largest_of_warp(cta, largest);
  if (cta.lane() == 0) cta.store_shared(&storage.largest[warp], largest);
  cta.sync_block();  // every warp's largest is there
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < kNormWarps; ++i) most = Cta::max(most, cta.load_shared(&storage.largest[i]));
  const Fp8RowFactor factor = fp8_row_factor(most);
  if (cta.thread() == 0) cta.store(rows.factor + cta.block(), factor.factor);
  return factor.inverse;
}

template <class Cta>
FOURFOLD_DEVICE void norm_prompt(Cta cta, const NormPromptParams& params) {
  auto& storage = cta.template shared<NormPromptStorage>();
  const NormParams& norm = params.norm;
  const int warp = cta.warp();
  const std::int64_t row = static_cast<std::int64_t>(cta.block()) * norm.columns;
  NormValues values, weight;
  load_norm_row(cta, norm, warp, row, values, weight);
  const float factor = norm_factor(cta, storage.norm, warp, norm.columns, norm.epsilon, values);
  device::U32x4 normed[kNormPieces];
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < kNormPieces; ++i) {
    const int column = norm_column(cta, warp, i);
    if (column >= norm.columns) continue;
    normed[i] = normed_eight<Cta>(values[i], factor, weight[i]);
    store_eight(cta, params.rows, row, column, normed[i]);
#pragma unroll
    for (int j = 0; j < 4; ++j) largest = larger<Cta>(largest, normed[i].v[j]);
  }
  if (params.rows.codes == nullptr) return;
  const float inverse = find_factor(cta, storage, params.rows, warp, largest);
#pragma unroll
  for (int i = 0; i < kNormPieces; ++i)
    if (const int column = norm_column(cta, warp, i); column < norm.columns)
      store_eight_codes(cta, params.rows, row, column, normed[i], inverse);
}

}  // namespace fourfold::dense
