// From a projection's rows to what attention reads: query heads normed and rotated, as bf16 rows; key heads
// the same, into their pages; value heads into theirs. Where the model has biases they are added first (rows
// with is_biased, which also norm over all heads of a row: other models do not fetch that code). A
// warp takes one head of one row; its lanes hold head_dim / 32 neighbouring columns each.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/macros.h"
#include "kernels/attention/attention_params.h"
#include "kernels/attention/kv_numbers.h"
#include "kernels/attention/page_layout.h"
#include "kernels/device/types.h"

namespace fourfold::attention {

// Columns of a head that one lane holds.
template <class Row>
inline constexpr int kLaneColumns = Row::head_dim / 32;

template <int Count, class Cta>
FOURFOLD_DEVICE void load_f32(Cta cta, const float* from, float (&value)[Count]) {
  if constexpr (Count == 2) {
    const auto pair = cta.load(reinterpret_cast<const device::F32x2*>(from));
    value[0] = pair.v[0];
    value[1] = pair.v[1];
  } else {
#pragma unroll
    for (int i = 0; i < Count; i += 4) {
      const auto four = cta.load(reinterpret_cast<const device::F32x4*>(from + i));
#pragma unroll
      for (int j = 0; j < 4; ++j) value[i + j] = four.v[j];
    }
  }
}

template <int Count, class Cta>
FOURFOLD_DEVICE void load_bf16(Cta cta, const std::uint16_t* from, float (&value)[Count]) {
  std::uint32_t word[Count / 2];
  if constexpr (Count == 2) {
    word[0] = cta.load(reinterpret_cast<const std::uint32_t*>(from));
  } else if constexpr (Count == 4) {
    const auto two = cta.load(reinterpret_cast<const device::U32x2*>(from));
    word[0] = two.v[0];
    word[1] = two.v[1];
  } else {
    const auto four = cta.load(reinterpret_cast<const device::U32x4*>(from));
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = four.v[i];
  }
#pragma unroll
  for (int i = 0; i < Count / 2; ++i) {
    value[2 * i] = std::bit_cast<float>(word[i] << 16);
    value[2 * i + 1] = std::bit_cast<float>(word[i] & 0xFFFF0000u);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void load_columns(Cta cta, const PrepareParams& params, int row, int column,
                                  float (&value)[kLaneColumns<Row>]) {
  using Element = typename Row::Element;
  const Element* from = static_cast<const Element*>(params.projection) + row * params.projection_stride +
                        column + cta.lane() * kLaneColumns<Row>;
  if constexpr (std::is_same_v<Element, float>)
    load_f32(cta, from, value);
  else
    load_bf16(cta, from, value);
}

// A lane's columns of one head's bias, added. null: none.
template <class Row, class Cta>
FOURFOLD_DEVICE void add_bias(Cta cta, const float* bias, int head, float (&value)[kLaneColumns<Row>]) {
  if (!Row::is_biased || bias == nullptr) return;
  float own[kLaneColumns<Row>];
  load_f32(cta, bias + head * Row::head_dim + cta.lane() * kLaneColumns<Row>, own);
#pragma unroll
  for (int i = 0; i < kLaneColumns<Row>; ++i) value[i] = Cta::add(value[i], own[i]);
}

// The norm over all heads of a row, at this head's columns.
template <class Row, class Cta>
FOURFOLD_DEVICE void norm_with_row(Cta cta, const PrepareParams& params, int row, bool is_query,
                                   const float (&factor)[kLaneColumns<Row>],
                                   float (&value)[kLaneColumns<Row>]) {
  float sum = 0.0f;
  for (int part = 0; part < params.square_parts; ++part) {  // in the order of ranks
    const auto quad = cta.load(params.squares + static_cast<std::int64_t>(row) * params.square_parts + part);
    sum = Cta::add(sum, is_query ? quad.v[0] : quad.v[1]);
  }
  const float mean = Cta::mul(sum, is_query ? params.per_query_column : params.per_key_column);
  const float inverse = Cta::reciprocal(Cta::sqrt(Cta::add(mean, params.epsilon)));
#pragma unroll
  for (int i = 0; i < kLaneColumns<Row>; ++i) value[i] = Cta::mul(Cta::mul(value[i], inverse), factor[i]);
}

// x * rsqrt(mean(x^2) + epsilon) * factor over the head; the sum's order: a lane's columns, then lanes that
// differ in bit 4, 3, 2, 1, 0.
template <class Row, class Cta>
FOURFOLD_DEVICE void norm_head(Cta cta, const float (&factor)[kLaneColumns<Row>], float epsilon,
                               float (&value)[kLaneColumns<Row>]) {
  constexpr int count = kLaneColumns<Row>;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < count; ++i) sum = Cta::fma(value[i], value[i], sum);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum = Cta::add(sum, cta.shuffle_xor(sum, mask));
  const float mean = Cta::fma(sum, 1.0f / Row::head_dim, epsilon);
  const float inverse = Cta::reciprocal(Cta::sqrt(mean));
#pragma unroll
  for (int i = 0; i < count; ++i) value[i] = Cta::mul(Cta::mul(value[i], inverse), factor[i]);
}

// Columns j and j + pairs turn by the angle of pair j; columns from 2 * pairs on stay.
template <class Row, class Cta>
FOURFOLD_DEVICE void rotate_head(Cta cta, const PrepareParams& params, int position,
                                 float (&value)[kLaneColumns<Row>]) {
  constexpr int count = kLaneColumns<Row>;
  if (params.rotary_pairs == 0) return;
  const int lane = cta.lane(), pair_lanes = params.rotary_pairs / count;
  const bool first = lane < pair_lanes, turns = lane < 2 * pair_lanes;
  const int partner = turns ? (first ? lane + pair_lanes : lane - pair_lanes) : lane;
  float turn[2 * count] = {};  // cos, sin of each column's pair
  if (turns)
    load_f32(cta,
             params.rotary + (static_cast<std::int64_t>(position) * params.rotary_pairs +
                              (first ? lane : lane - pair_lanes) * count) *
                                 2,
             turn);
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const float other = cta.shuffle(value[i], partner);
    const float sine = first ? -turn[2 * i + 1] : turn[2 * i + 1];
    if (turns) value[i] = Cta::fma(value[i], turn[2 * i], Cta::mul(other, sine));
  }
}

// Where the page of a row's position lies, for one KV head.
template <class Row, class Cta>
FOURFOLD_DEVICE unsigned char* page_of(Cta cta, const PrepareParams& params, unsigned char* cache,
                                       const step::RowPlace& place, int kv_head) {
  const std::int64_t page = cta.load(params.tables.pages + place.page_begin + place.position / kPageTokens);
  return cache + (page * params.kv_heads + kv_head) * Row::Layout::page_bytes;
}

// A chunk's worth of rows at once: the pages hold V transposed, so neighbouring positions share a chunk.
template <class Row, class Cta>
FOURFOLD_DEVICE void write_value_chunks(Cta cta, const PrepareParams& params, int first_row,
                                        const step::RowPlace& place, int kv_head) {
  using Layout = typename Row::Layout;
  using Kv = typename Layout::Kv;
  constexpr int count = kLaneColumns<Row>, positions = Layout::chunk_elements;
  std::uint32_t chunk[count][4] = {};
  const int column = params.value_column + kv_head * Row::head_dim;
#pragma unroll
  for (int i = 0; i < positions; i += 2) {
    float low[count], high[count];
    load_columns<Row>(cta, params, first_row + i, column, low);
    load_columns<Row>(cta, params, first_row + i + 1, column, high);
    const int byte = Layout::place_in_chunk(i) * Kv::bytes;
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const float pair[2] = {low[j], high[j]};
      chunk[j][byte / 4] |= pack_numbers<Kv, Cta>(pair).word[0] << (8 * (byte % 4));
    }
  }
  unsigned char* page = page_of<Row>(cta, params, params.values, place, kv_head);
  const int position = place.position % kPageTokens / positions * positions;
#pragma unroll
  for (int j = 0; j < count; ++j)
    cta.store(reinterpret_cast<device::U32x4*>(page + Layout::value_offset(position, cta.lane() * count + j)),
              device::U32x4{{chunk[j][0], chunk[j][1], chunk[j][2], chunk[j][3]}});
}

// The same with a bias, two positions at a time and rolled: held in registers as above, it would cost a third
// of the warps.
template <class Row, class Cta>
FOURFOLD_DEVICE void write_biased_chunk(Cta cta, const PrepareParams& params, int first_row,
                                        const step::RowPlace& place, int kv_head) {
  using Layout = typename Row::Layout;
  using Kv = typename Layout::Kv;
  constexpr int count = kLaneColumns<Row>, positions = Layout::chunk_elements;
  const int column = params.value_column + kv_head * Row::head_dim;
  float bias[count];
  load_f32(cta, params.value_bias + kv_head * Row::head_dim + cta.lane() * count, bias);
  unsigned char* page = page_of<Row>(cta, params, params.values, place, kv_head);
  const int position = place.position % kPageTokens / positions * positions;
#pragma unroll 1
  for (int i = 0; i < positions; i += 2) {
    float low[count], high[count];
    load_columns<Row>(cta, params, first_row + i, column, low);
    load_columns<Row>(cta, params, first_row + i + 1, column, high);
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const float pair[2] = {Cta::add(low[j], bias[j]), Cta::add(high[j], bias[j])};
      const std::uint32_t word = pack_numbers<Kv, Cta>(pair).word[0];
      unsigned char* to = page + Layout::value_offset(position, cta.lane() * count + j) +
                          Layout::place_in_chunk(i) * Kv::bytes;
      if constexpr (Kv::bytes == 2)
        cta.store(reinterpret_cast<std::uint32_t*>(to), word);
      else
        cta.store(reinterpret_cast<std::uint16_t*>(to), static_cast<std::uint16_t>(word));
    }
  }
}

// The row's values alone, or with the rows of its chunk: where all of them are in the batch, the first one's
// warp writes the chunk and the others have nothing to do.
template <class Row, class Cta>
FOURFOLD_DEVICE void write_values(Cta cta, const PrepareParams& params, int row, const step::RowPlace& place,
                                  int kv_head) {
  using Layout = typename Row::Layout;
  constexpr int count = kLaneColumns<Row>, positions = Layout::chunk_elements;
  const int within = place.position % positions;
  const int leader = row - within, last = leader + positions - 1;
  if (leader >= 0 && last < params.tables.row_limit &&
      cta.load(&params.tables.rows[leader].sequence) == place.sequence &&
      cta.load(&params.tables.rows[last].sequence) == place.sequence) {
    if (within != 0) return;
    if constexpr (Row::is_biased)
      if (params.value_bias != nullptr) return write_biased_chunk<Row>(cta, params, row, place, kv_head);
    return write_value_chunks<Row>(cta, params, row, place, kv_head);
  }
  float value[count];
  load_columns<Row>(cta, params, row, params.value_column + kv_head * Row::head_dim, value);
  add_bias<Row>(cta, params.value_bias, kv_head, value);
  unsigned char* page = page_of<Row>(cta, params, params.values, place, kv_head);
#pragma unroll
  for (int j = 0; j < count; ++j)
    store_number<typename Layout::Kv>(
        cta, page + Layout::value_offset(place.position % kPageTokens, cta.lane() * count + j), value[j]);
}

template <class Row, class Cta>
FOURFOLD_DEVICE void prepare(Cta cta, const PrepareParams& params) {
  using Layout = typename Row::Layout;
  constexpr int count = kLaneColumns<Row>;
  const int units = params.heads + 2 * params.kv_heads;
  const std::int64_t index = static_cast<std::int64_t>(cta.block()) * kPrepareWarps + cta.warp();
  const int row = static_cast<int>(index / units), unit = static_cast<int>(index % units);
  const bool is_query = unit < params.heads, is_value = unit >= params.heads + params.kv_heads;
  // Constants of the model: on their way while the predecessor still computes.
  const int head = is_query ? unit : unit - params.heads;
  const float* weight = is_query ? params.query_weight : params.key_weight;
  const bool norms_row = Row::is_biased && params.squares != nullptr;
  if (norms_row) weight += head * Row::head_dim;
  float factor[count];
  if (!is_value && weight != nullptr) load_f32(cta, weight + cta.lane() * count, factor);
  cta.wait_predecessors();
  cta.release_successors();
  if (row >= params.tables.row_limit) return;
  const step::RowPlace place = cta.load(params.tables.rows + row);
  if (place.sequence < 0) return;
  if (is_value) {
    write_values<Row>(cta, params, row, place, unit - params.heads - params.kv_heads);
    return;
  }
  float value[count];
  load_columns<Row>(
      cta, params, row,
      is_query ? params.query_column + head * params.head_stride : params.key_column + head * Row::head_dim,
      value);
  add_bias<Row>(cta, is_query ? params.query_bias : params.key_bias, head, value);
  if (norms_row)
    norm_with_row<Row>(cta, params, row, is_query, factor, value);
  else if (weight != nullptr)
    norm_head<Row>(cta, factor, params.epsilon, value);
  rotate_head<Row>(cta, params, place.position, value);
  const int column = cta.lane() * count;
  if (is_query) {
    std::uint16_t* to =
        params.query + (static_cast<std::int64_t>(row) * params.heads + head) * Row::head_dim + column;
    store_numbers(cta, reinterpret_cast<unsigned char*>(to), pack_numbers<Bf16Kv, Cta>(value));
  } else {
    unsigned char* page = page_of<Row>(cta, params, params.keys, place, head);
    store_numbers(cta, page + Layout::key_offset(place.position % kPageTokens, column),
                  pack_numbers<typename Layout::Kv, Cta>(value));
  }
}

}  // namespace fourfold::attention
