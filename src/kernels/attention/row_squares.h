// The sums of squares of a row's queries and of its keys, for models that norm all heads together: prepare
// turns them into the norm. Apart, because prepare has a warp a head, and the sum is over all of them; with
// several ranks each has a part of the heads, and the parts are put side by side in between.
//
// A block a row, in the order of dense/norm.h: pieces of 256 columns, then the pieces one after another.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/macros.h"
#include "kernels/attention/attention_params.h"
#include "kernels/attention/prepare.h"
#include "kernels/dense/norm.h"
#include "kernels/device/types.h"

namespace fourfold::attention {

struct SquaresStorage {
  float piece_sums[2][kSquaresPieces];  // of queries, of keys
};

// Eight neighbouring columns; zeros behind the last.
template <class Element, class Cta>
FOURFOLD_DEVICE void load_square_columns(Cta cta, const Element* row, int column, int columns,
                                         float (&value)[dense::kLaneColumns]) {
  if constexpr (std::is_same_v<Element, float>) {
    dense::load_eight(cta, row, column, columns, value);
  } else {
#pragma unroll
    for (int i = 0; i < dense::kLaneColumns; ++i) value[i] = 0.0f;
    if (column < columns) load_bf16(cta, row + column, value);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void row_squares(Cta cta, const SquaresParams& params) {
  using Element = typename Row::Element;
  auto& storage = cta.template shared<SquaresStorage>();
  const int row = cta.block(), warp = cta.warp(), lane = cta.lane();
  const int query_pieces = dense::pieces_of(params.query_columns);
  const int pieces = query_pieces + dense::pieces_of(params.key_columns);
  cta.wait_predecessors();
  cta.release_successors();
  // A row without a sequence counts nothing: what the projection left there may be anything.
  const bool has_row = cta.load(&params.tables.rows[row].sequence) >= 0;
  const Element* from = static_cast<const Element*>(params.projection) +
                        static_cast<std::int64_t>(row) * params.projection_stride;
  for (int p = warp; p < pieces; p += kSquaresWarps) {
    const bool is_key = p >= query_pieces;
    const int piece = is_key ? p - query_pieces : p;
    const int column = piece * dense::kPieceColumns + lane * dense::kLaneColumns;
    float value[dense::kLaneColumns];
    load_square_columns(cta, from + (is_key ? params.key_column : params.query_column), column,
                        has_row ? (is_key ? params.key_columns : params.query_columns) : 0, value);
    const float sum = dense::piece_square_sum(cta, value);
    if (lane == 0) cta.store_shared(&storage.piece_sums[is_key][piece], sum);
  }
  cta.sync_block();  // every piece is summed
  if (cta.thread() != 0) return;
  float total[2] = {};
#pragma unroll
  for (int part = 0; part < 2; ++part)
    for (int piece = 0; piece < (part ? pieces - query_pieces : query_pieces); ++piece)
      total[part] = Cta::add(total[part], cta.load_shared(&storage.piece_sums[part][piece]));
  cta.store(params.squares + row, device::F32x4{{total[0], total[1], 0.0f, 0.0f}});
}

}  // namespace fourfold::attention
