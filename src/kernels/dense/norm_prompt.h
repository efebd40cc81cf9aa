// The row norm of prompts: the arithmetic of norm_rows, and its result in every form the matrices behind it
// read, so that no pass of its own stages or quantises it. A block a row, as many blocks an SM as its threads
// allow: a row is a chain of waits (load, sum, root, store), and other rows fill them.
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

// A prompt's row on its way through a block. Only a warp's first piece stays in registers between the two
// passes; wider rows are read again from the cache, so that a block takes few registers whatever the width.
template <class Cta>
class TwoPassRow {
 public:
  // The norm's weights, which no kernel before this writes.
  FOURFOLD_DEVICE TwoPassRow(Cta cta, const NormParams& params, int warp, std::int64_t row)
      : cta_(cta), params_(params), warp_(warp), row_(row), pieces_(pieces_of(params.columns)) {
    load_eight(cta_, params_.weight, column(0), params_.columns, first_weight_);
  }
  FOURFOLD_DEVICE bool has(int i) const { return warp_ + kNormWarps * i < pieces_; }
  FOURFOLD_DEVICE int column(int i) const { return norm_column(cta_, warp_, i); }

  // 1 / rms of the row, with what is added to it; all warps.
  FOURFOLD_DEVICE float factor(NormStorage& storage) {
    float values[kLaneColumns];
#pragma unroll 1
    for (int i = 0; has(i); ++i) {
      load_eight(cta_, params_.x + row_, column(i), params_.columns, values);
      if (params_.add != NormAdd::none && column(i) < params_.columns)
        add_eight(cta_, params_, row_ + column(i), values);
      const float sum = piece_square_sum(cta_, values);
      if (cta_.lane() == 0) cta_.store_shared(&storage.piece_sums[warp_ + kNormWarps * i], sum);
      if (i == 0) copy(values, first_);
    }
    cta_.sync_block();  // every piece is summed
    return inverse_rms(cta_, storage.piece_sums, params_.columns, params_.epsilon);
  }
  // The lane's columns of its warp's piece i, normed; zeros beyond the row's end.
  FOURFOLD_DEVICE device::U32x4 normed(int i, float factor) const {
    float values[kLaneColumns], weight[kLaneColumns];
    if (i == 0) {
      copy(first_, values);
      copy(first_weight_, weight);
    } else {
      load_eight(cta_, params_.x + row_, column(i), params_.columns, values);
      load_eight(cta_, params_.weight, column(i), params_.columns, weight);
    }
    return normed_eight<Cta>(values, factor, weight);
  }

 private:
  static FOURFOLD_DEVICE void copy(const float (&from)[kLaneColumns], float (&to)[kLaneColumns]) {
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) to[i] = from[i];
  }
  Cta cta_;
  const NormParams& params_;
  int warp_;
  std::int64_t row_;
  int pieces_;
  float first_[kLaneColumns] = {}, first_weight_[kLaneColumns];
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
  const std::int64_t start = static_cast<std::int64_t>(cta.block()) * norm.columns;
  TwoPassRow<Cta> row(cta, norm, warp, start);
  cta.wait_predecessors();
  cta.release_successors();
  const float factor = row.factor(storage.norm);
  device::U32x4 first{};
  float largest = 0.0f;
#pragma unroll 1
  for (int i = 0; row.has(i); ++i) {
    const int column = row.column(i);
    if (column >= norm.columns) break;
    const device::U32x4 normed = row.normed(i, factor);
    if (i == 0) first = normed;
    store_eight(cta, params.rows, start, column, normed);
#pragma unroll
    for (int j = 0; j < 4; ++j) largest = larger<Cta>(largest, normed.v[j]);
  }
  if (params.rows.codes == nullptr) return;
  const float inverse = find_factor(cta, storage, params.rows, warp, largest);
#pragma unroll 1
  for (int i = 0; row.has(i); ++i) {
    const int column = row.column(i);
    if (column >= norm.columns) break;
    store_eight_codes(cta, params.rows, start, column, i == 0 ? first : row.normed(i, factor), inverse);
  }
}

}  // namespace fourfold::dense
