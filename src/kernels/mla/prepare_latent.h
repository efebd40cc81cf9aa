// From projections to what latent attention reads. latent_rows: the query's latent normed for its second
// matrix; the cache's latent normed and its key turned, into the row's page. turn_queries: the turned part of
// every query head, behind the part that head_linear absorbs. A warp has one of these of one row.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/macros.h"
#include "kernels/attention/row_squares.h"
#include "kernels/dense/norm.h"
#include "kernels/mla/latent_page.h"
#include "kernels/mla/mla_params.h"

namespace fourfold::mla {

template <class Element, class Cta>
FOURFOLD_DEVICE float load_number(Cta cta, const Element* from) {
  if constexpr (std::is_same_v<Element, float>)
    return cta.load(from);
  else
    return std::bit_cast<float>(static_cast<std::uint32_t>(cta.load(from)) << 16);
}

// Normed columns of a row, eight at a time, to store(column, chunk): zeros from `columns` to `width`. The
// squares are summed as everywhere: pieces of 256 columns, one after another.
template <class Element, class Cta, class Store>
FOURFOLD_DEVICE void norm_columns(Cta cta, const Element* row, int columns, int width, const float* weight,
                                  float epsilon, const Store& store) {
  constexpr int lane_columns = dense::kLaneColumns;
  float total = 0.0f, value[lane_columns];
  for (int piece = 0; piece < columns; piece += dense::kPieceColumns) {
    attention::load_square_columns(cta, row, piece + cta.lane() * lane_columns, columns, value);
    total = Cta::add(total, dense::piece_square_sum(cta, value));
  }
  const float mean = Cta::mul(total, Cta::reciprocal(static_cast<float>(columns)));
  const float inverse = Cta::reciprocal(Cta::sqrt(Cta::add(mean, epsilon)));
  for (int column = cta.lane() * lane_columns; column < width; column += dense::kPieceColumns) {
    device::U32x4 chunk{};
    if (column < columns) {
      float factor[lane_columns];
      attention::load_square_columns(cta, row, column, columns, value);
      dense::load_eight(cta, weight, column, columns, factor);
      chunk = dense::normed_eight<Cta>(value, inverse, factor);
    }
    store(column, chunk);
  }
}

// Cosine and sine of this lane's pair, if it has one.
template <class Cta>
FOURFOLD_DEVICE device::F32x2 load_turn(Cta cta, const float* rotary, int pairs, int position) {
  if (cta.lane() >= pairs) return {};
  return cta.load(reinterpret_cast<const device::F32x2*>(rotary) +
                  static_cast<std::int64_t>(position) * pairs + cta.lane());
}

// The 64 turned columns of a head to store(column, bf16): a lane has pair `lane`, columns j and j + pairs;
// lanes without one write the zeros behind them.
template <class Element, class Cta, class Store>
FOURFOLD_DEVICE void turn_columns(Cta cta, const Element* from, device::F32x2 turn, int pairs,
                                  const Store& store) {
  const int lane = cta.lane();
  if (lane >= pairs) {
    store(2 * lane, 0u);
    store(2 * lane + 1, 0u);
    return;
  }
  const float first = load_number(cta, from + lane), second = load_number(cta, from + lane + pairs);
  const std::uint32_t both = Cta::pack_bf16(Cta::fma(first, turn.v[0], Cta::mul(second, -turn.v[1])),
                                            Cta::fma(second, turn.v[0], Cta::mul(first, turn.v[1])));
  store(lane, both & 0xFFFFu);
  store(lane + pairs, both >> 16);
}

template <class Row, class Cta>
FOURFOLD_DEVICE unsigned char* page_of(Cta cta, const LatentRowsParams& params, const step::RowPlace& place) {
  const std::int64_t number = cta.load(params.tables.pages + place.page_begin + place.position / kPageTokens);
  return params.pages + number * Row::Page::page_bytes;
}

// A row of the cache, into its page.
template <class Row, class Cta>
FOURFOLD_DEVICE void cache_row(Cta cta, const LatentRowsParams& params, int row, const step::RowPlace& place,
                               unsigned char* page) {
  using Element = typename Row::Element;
  using Page = typename Row::Page;
  const Element* from = static_cast<const Element*>(params.projection) + row * params.projection_stride;
  const int within = place.position % kPageTokens;
  const device::F32x2 turn = load_turn(cta, params.rotary, params.rotary_pairs, place.position);
  norm_columns(cta, from + params.latent_column, params.latent_columns, Page::latent, params.latent_weight,
               params.latent_epsilon, [&](int column, device::U32x4 chunk) {
                 cta.store(reinterpret_cast<device::U32x4*>(page + Page::offset(within, column)), chunk);
               });
  turn_columns(cta, from + params.key_column, turn, params.rotary_pairs, [&](int column, std::uint32_t bits) {
    cta.store(reinterpret_cast<std::uint16_t*>(page + Page::offset(within, Page::latent + column)),
              static_cast<std::uint16_t>(bits));
  });
}

template <class Row, class Cta>
FOURFOLD_DEVICE void latent_rows(Cta cta, const LatentRowsParams& params) {
  using Element = typename Row::Element;
  const std::int64_t index = static_cast<std::int64_t>(cta.block()) * kLatentWarps + cta.warp();
  const int row = static_cast<int>(index / 2);
  const bool is_query = index % 2 == 1;
  cta.wait_predecessors();
  cta.release_successors();
  if (row >= params.tables.row_limit || (is_query && params.query_columns == 0)) return;
  const step::RowPlace place = cta.load(params.tables.rows + row);
  if (is_query) {
    // A row without a sequence is multiplied like the others: by zeros.
    const int columns = place.sequence < 0 ? 0 : params.query_columns;
    const Element* from = static_cast<const Element*>(params.projection) + row * params.projection_stride;
    std::uint16_t* to = params.query_latent + static_cast<std::int64_t>(row) * params.query_stride;
    norm_columns(cta, from + params.query_column, columns, params.query_stride, params.query_weight,
                 params.query_epsilon, [&](int column, device::U32x4 chunk) {
                   cta.store(reinterpret_cast<device::U32x4*>(to + column), chunk);
                 });
    return;
  }
  if (place.sequence >= 0) cache_row<Row>(cta, params, row, place, page_of<Row>(cta, params, place));
}

// Where a row stands was written long before the projection: it is asked for before the wait.
template <class Row, class Cta>
FOURFOLD_DEVICE void turn_queries(Cta cta, const TurnQueriesParams& params) {
  using Element = typename Row::Element;
  const std::int64_t index = static_cast<std::int64_t>(cta.block()) * kLatentWarps + cta.warp();
  const int row = static_cast<int>(index / params.heads), head = static_cast<int>(index % params.heads);
  step::RowPlace place{-1, 0, 0, 0};
  if (row < params.tables.row_limit) place = cta.load(params.tables.rows + row);
  device::F32x2 turn{};
  if (place.sequence >= 0) turn = load_turn(cta, params.rotary, params.rotary_pairs, place.position);
  cta.wait_predecessors();
  cta.release_successors();
  if (place.sequence < 0) return;
  const Element* from = static_cast<const Element*>(params.projection) + row * params.projection_stride +
                        params.column + head * 2 * params.rotary_pairs;
  std::uint16_t* to = params.query + index * (params.page_latent + kPanelColumns);
  for (int column = params.latent_columns + cta.lane(); column < params.page_latent; column += 32)
    cta.store(to + column, std::uint16_t{0});
  turn_columns(cta, from, turn, params.rotary_pairs, [&](int column, std::uint32_t bits) {
    cta.store(to + params.page_latent + column, static_cast<std::uint16_t>(bits));
  });
}

}  // namespace fourfold::mla
