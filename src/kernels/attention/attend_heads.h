// Decode attention from the projection on, for sequences of one row each: prepare.h and attend.h in one
// kernel, with the bits of both. A block norms and turns the query heads of its KV head itself. Where its
// split has the row's own position, it makes the new key and value as well, and puts them over the copies
// that have landed in the ring, whose bytes of that position are older; into the pages they go when the
// copies have been read. No other block reads that page.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/attention/attend.h"
#include "kernels/attention/attend_row.h"
#include "kernels/attention/attention_params.h"
#include "kernels/attention/kv_numbers.h"
#include "kernels/attention/prepare.h"

namespace fourfold::attention {

template <class Layout, int Tile, int Warps, int Stages>
struct AttendHeadsStorage : AttendStorage<Layout, Tile, Warps, Stages> {
  alignas(16) float key[Layout::head_dim];  // of the row's own position, before they are rounded
  alignas(16) float value[Layout::head_dim];
};

// Where word `word` (two columns) of query vector `vector` goes: what stage_vectors does with 16 columns.
template <class Kv, int Rows>
constexpr std::uint32_t query_word_offset(int vector, int word) {
  const int within = word % 8;
  const int chunk = Kv::bytes == 1 ? within % 2 : within / 4,
            place = Kv::bytes == 1 ? within / 2 : within % 4;
  return query_offset<Rows>(vector, 2 * (word / 8) + chunk) + 4 * static_cast<std::uint32_t>(place);
}

// The row's own position, put into a page's pieces; `is_there` in its page alone.
template <class Row>
struct OwnPosition {
  using Layout = typename Row::Layout;
  using Kv = typename Layout::Kv;
  typename Row::Storage& storage;
  bool is_there;
  int within;  // its page
  int warp;

  // A position's keys are read by one warp.
  template <class Cta>
  FOURFOLD_DEVICE void keys(Cta cta, int piece, unsigned char* slot) const {
    if (!is_there || warp != within / (8 * Row::key_tiles)) return;
    constexpr int chunks = Layout::key_row_bytes / 16, numbers = Layout::chunk_elements;
    if (cta.lane() < chunks) {
      const float* from = storage.key + piece * Layout::key_piece_dims + cta.lane() * numbers;
      cta.store_shared(reinterpret_cast<device::U32x4*>(slot + chunk_offset<Layout::key_row_bytes>(
                                                                   static_cast<std::uint32_t>(within),
                                                                   static_cast<std::uint32_t>(cta.lane()))),
                       packed_chunk(cta, from));
    }
    cta.sync_warp();  // its row is whole
  }
  // A dimension's values are read by one warp; the words of its row are this lane's alone.
  template <class Cta>
  FOURFOLD_DEVICE void values(Cta cta, int piece, unsigned char* slot) const {
    if (!is_there) return;
    constexpr int dims = Layout::value_piece_dims / Row::warps;
    static_assert(dims <= 32);
    if (cta.lane() < dims) {
      const int dim = warp * dims + cta.lane(), byte = Layout::place_in_chunk(within) * Kv::bytes;
      auto* word = reinterpret_cast<std::uint32_t*>(
          slot +
          chunk_offset<Layout::value_row_bytes>(static_cast<std::uint32_t>(dim),
                                                static_cast<std::uint32_t>(within / Layout::chunk_elements)) +
          byte / 4 * 4);
      const float value = cta.load_shared(&storage.value[piece * Layout::value_piece_dims + dim]);
      const int shift = 8 * (byte % 4);
      const std::uint32_t mask = (Kv::bytes == 2 ? 0xFFFFu : 0xFFu) << shift;
      cta.store_shared(word, (cta.load_shared(word) & ~mask) | number_bits<Kv, Cta>(value) << shift);
    }
    cta.sync_warp();  // its columns are whole
  }

  // Sixteen bytes of keys, as a page has them.
  template <class Cta>
  static FOURFOLD_DEVICE device::U32x4 packed_chunk(Cta cta, const float* from) {
    float value[Layout::chunk_elements];
#pragma unroll
    for (int i = 0; i < Layout::chunk_elements; i += 4) {
      const auto four = cta.load_shared(reinterpret_cast<const device::F32x4*>(from + i));
#pragma unroll
      for (int j = 0; j < 4; ++j) value[i + j] = four.v[j];
    }
    const auto packed = pack_numbers<Kv, Cta>(value);
    return {{packed.word[0], packed.word[1], packed.word[2], packed.word[3]}};
  }

  // Into the pages, by all warps: each has waited for the last copies of this page.
  template <class Cta>
  FOURFOLD_DEVICE void write(Cta cta, unsigned char* key_page, unsigned char* value_page) const {
    constexpr int chunks = Layout::head_dim / Layout::chunk_elements;
    if (cta.thread() < chunks)
      cta.store(reinterpret_cast<device::U32x4*>(
                    key_page + Layout::key_offset(within, cta.thread() * Layout::chunk_elements)),
                packed_chunk(cta, storage.key + cta.thread() * Layout::chunk_elements));
    for (int dim = cta.thread(); dim < Layout::head_dim; dim += Row::threads)
      store_number<Kv>(cta, value_page + Layout::value_offset(within, dim),
                       cta.load_shared(&storage.value[dim]));
  }
};

template <int Count, class Cta>
FOURFOLD_DEVICE void store_shared_f32(Cta cta, float* to, const float (&value)[Count]) {
  if constexpr (Count == 2) {
    cta.store_shared(reinterpret_cast<device::F32x2*>(to), device::F32x2{{value[0], value[1]}});
  } else {
#pragma unroll
    for (int i = 0; i < Count; i += 4)
      cta.store_shared(reinterpret_cast<device::F32x4*>(to + i),
                       device::F32x4{{value[i], value[i + 1], value[i + 2], value[i + 3]}});
  }
}

// The heads of one unit, a warp a head: of one row, and at most Row::tile of a KV head (the runner sees to
// both). All of a warp's rows are on their way before the first is used.
template <class Row, class Cta>
FOURFOLD_DEVICE void stage_heads(Cta cta, const AttendHeadsParams& params, typename Row::Storage& storage,
                                 const AttendUnit& unit, const float (&query_factor)[kLaneColumns<Row>],
                                 const float (&key_factor)[kLaneColumns<Row>], bool has_own, int warp) {
  constexpr int count = kLaneColumns<Row>, rounds = Row::tile / Row::warps;
  const PrepareParams& heads = params.heads;
  const int queries = params.attend.heads_per_kv, first_head = unit.kv_head * queries;
  const int row = unit.found.first_row, column = cta.lane() * count;
  const bool has_key = has_own && warp == 0, has_value = has_own && warp == 1;
  float own[count], value[rounds][count];
  if (has_key || has_value)
    load_columns<Row>(cta, heads, row,
                      (has_key ? heads.key_column : heads.value_column) + unit.kv_head * Row::head_dim, own);
#pragma unroll
  for (int i = 0; i < rounds; ++i)
    if (warp + i * Row::warps < queries)
      load_columns<Row>(cta, heads, row,
                        heads.query_column + (first_head + warp + i * Row::warps) * heads.head_stride,
                        value[i]);
  const LaneTurn<Row> turn = load_turn<Row>(cta, heads, unit.last);
  // Rolled: a round is a hundred instructions.
#pragma unroll 1
  for (int vector = warp; vector < Row::tile; vector += Row::warps) {
    if (vector < queries) {
      add_bias<Row>(cta, heads.query_bias, first_head + vector, value[0]);
      if (heads.query_weight != nullptr) norm_head<Row>(cta, query_factor, heads.epsilon, value[0]);
      turn_head<Row>(cta, turn, value[0]);
    } else {  // of no head
#pragma unroll
      for (int i = 0; i < count; ++i) value[0][i] = 0.0f;
    }
    const auto packed = pack_numbers<Bf16Kv, Cta>(value[0]);
#pragma unroll
    for (int i = 0; i < count / 2; ++i)
      cta.store_shared(reinterpret_cast<std::uint32_t*>(
                           storage.query + query_word_offset<typename Row::Layout::Kv, Row::tile>(
                                               vector, cta.lane() * (count / 2) + i)),
                       packed.word[i]);
#pragma unroll
    for (int i = 0; i + 1 < rounds; ++i)
#pragma unroll
      for (int j = 0; j < count; ++j) value[i][j] = value[i + 1][j];
  }
  if (has_key) {
    add_bias<Row>(cta, heads.key_bias, unit.kv_head, own);
    if (heads.key_weight != nullptr) norm_head<Row>(cta, key_factor, heads.epsilon, own);
    turn_head<Row>(cta, turn, own);
    store_shared_f32(cta, storage.key + column, own);
  }
  if (has_value) {
    add_bias<Row>(cta, heads.value_bias, unit.kv_head, own);
    store_shared_f32(cta, storage.value + column, own);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void attend_heads(Cta cta, const AttendHeadsParams& params) {
  auto& storage = cta.template shared<typename Row::Storage>();
  const int warp = cta.warp();
  const PrepareParams& heads = params.heads;
  PieceRing<Row> ring;
  PieceRing<Row>::init(cta, storage);
  // Constants of the model: on their way while the predecessor still computes.
  constexpr int count = kLaneColumns<Row>;
  float query_factor[count] = {}, key_factor[count] = {};
  if (heads.query_weight != nullptr) load_f32(cta, heads.query_weight + cta.lane() * count, query_factor);
  if (heads.key_weight != nullptr && warp == 0)
    load_f32(cta, heads.key_weight + cta.lane() * count, key_factor);
  cta.wait_predecessors();
  cta.release_successors();
  for (std::int64_t index = cta.block();; index += cta.blocks()) {
    const AttendUnit unit = find_unit<Row>(cta, params.attend, index);
    if (unit.found.sequence < 0) return;
    const bool has_own = unit.split == split_of(unit.last);
    const auto own_of = [&](int page) {
      return OwnPosition<Row>{storage, has_own && page == unit.pages - 1, unit.last % kPageTokens, warp};
    };
    attend_unit<Row>(
        cta, params.attend, storage, ring, unit, warp,
        [&] { stage_heads<Row>(cta, params, storage, unit, query_factor, key_factor, has_own, warp); },
        own_of);
    if (!has_own) continue;
    const std::int64_t page =
        cta.load(params.attend.tables.pages + unit.found.page_begin + unit.last / kPageTokens);
    const std::int64_t at = (page * heads.kv_heads + unit.kv_head) * Row::Layout::page_bytes;
    own_of(unit.pages - 1).write(cta, heads.keys + at, heads.values + at);
    cta.fence_async_proxy();  // what was put into the ring, before the next unit's copies
    cta.sync_block();         // key and value have been read
  }
}

// Biased: with code for biases.
template <class ArchT, class KvT, int HeadDim, bool Biased = false, bool Windowed = false>
struct AttendHeadsRow : AttendRow<ArchT, KvT, HeadDim, kHeadsAtOnce, Windowed> {
  using Base = AttendRow<ArchT, KvT, HeadDim, kHeadsAtOnce, Windowed>;
  using Params = AttendHeadsParams;
  using Element = float;  // of the projection's rows
  static constexpr bool is_biased = Biased;
  template <int Stages>
  using StorageOf = AttendHeadsStorage<typename Base::Layout, kHeadsAtOnce, Base::warps, Stages>;
  static constexpr int stages =
      plan::deepest_stages<StorageOf, plan::smem_budget_for(ArchT::facts, Base::blocks_per_sm), 12>();
  using Storage = StorageOf<stages>;
  // A piece that was changed is not copied over before the unit's end, where the fence is: a page's own
  // copies are never two laps of the ring.
  static_assert(stages >= 6 && stages >= 2 * Base::Layout::pieces);

  static std::string name() { return attend_heads_row(HeadDim, KvT::name, Biased, Windowed); }
  static plan::RowFacts facts() {
    return decode_facts<AttendHeadsRow>("attend_heads", Biased ? "biased" : "decode");
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    attend_heads<AttendHeadsRow>(cta, params);
  }
};

}  // namespace fourfold::attention
