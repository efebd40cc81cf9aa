// Decode attention: one split of a sequence for one KV head and up to Row::tile query vectors. Inside a split
// the softmax runs over pages in ascending order, from scratch; what it leaves (largest score, sum of
// weights, weighted sum of values) is merged by combine.h. A query vector's numbers depend on its own row and
// on the split alone: the other rows of the tile, the batch and the grid never enter them.
//
//   scores    a warp multiplies its 16 (or 8) positions of a page with all query vectors
//   softmax   largest scores and weights (bf16) meet in shared memory: two barriers a page
//   values    a warp multiplies all 64 positions with its share of every V piece
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/attention/attention_params.h"
#include "kernels/attention/find_work.h"
#include "kernels/attention/operands.h"
#include "kernels/attention/piece_ring.h"
#include "kernels/attention/softmax.h"
#include "kernels/attention/splits.h"

namespace fourfold::attention {

// One unit of work, the same in every warp.
struct AttendUnit {
  Found found;
  int split = 0;
  int first_split = 0;  // of the sequence's rows
  int kv_head = 0;
  int first_query = 0;  // query vector i of a KV head: row i / heads_per_kv, head i % heads_per_kv
  int query_count = 0;  // of the sequence and KV head
  int begin = 0;        // positions of the split, from the first page that a row sees something of
  int last = 0;         // the sequence's last position, in whatever split
  int pages = 0;
};

template <class Row, class Cta>
FOURFOLD_DEVICE AttendUnit find_unit(Cta cta, const AttendParams& params, std::int64_t index) {
  const auto tiles_of = [&](int row_count) {
    return (row_count * params.heads_per_kv + Row::tile - 1) / Row::tile;
  };
  const int window = window_of<Row>(params);
  const auto units_of = [&](const step::SequencePlace& place) {
    return split_count(place.position, place.position + place.row_count - 1, window) * params.kv_heads *
           tiles_of(place.row_count);
  };
  const auto slots = [&](const step::SequencePlace& place) {
    return static_cast<int>(slots_of(place.position + place.row_count - 1, place.row_count, window));
  };
  AttendUnit unit;
  unit.found = find_item(cta, params.tables, index, units_of, slots);
  const Found& found = unit.found;
  if (found.sequence < 0) return unit;
  unit.last = found.position + found.row_count - 1;
  unit.query_count = found.row_count * params.heads_per_kv;
  const int tiles = tiles_of(found.row_count), shares = tiles * params.kv_heads;
  // The last splits are the longest: they start first.
  unit.split = split_count(unit.last) - 1 - found.item / shares;
  unit.kv_head = found.item % shares / tiles;
  unit.first_query = found.item % tiles * Row::tile;
  unit.begin = split_begin(unit.split);
  if constexpr (Row::is_windowed) {
    // Pages that none of the rows sees would add weights of 0 to sums of 0.
    unit.first_split = first_split(found.position, window);
    const int seen = first_seen(found.position, window) / kPageTokens * kPageTokens;
    if (seen > unit.begin) unit.begin = seen;
  }
  const int next = split_begin(unit.split + 1), end = next < unit.last + 1 ? next : unit.last + 1;
  unit.pages = (end - unit.begin + kPageTokens - 1) / kPageTokens;
  return unit;
}

template <class Row, class Cta>
FOURFOLD_DEVICE void stage_queries(Cta cta, const AttendParams& params, const AttendUnit& unit,
                                   unsigned char* to) {
  stage_vectors<typename Row::Layout, Row::tile, Row::threads>(
      cta, cta.thread(), to, [&](int vector) -> const std::uint16_t* {
        const int query = unit.first_query + vector;
        if (query >= unit.query_count) return nullptr;
        const int row = query / params.heads_per_kv, head = query - row * params.heads_per_kv;
        return params.query + (static_cast<std::int64_t>(unit.found.first_row + row) * params.heads +
                               unit.kv_head * params.heads_per_kv + head) *
                                  Row::head_dim;
      });
}

// What a lane keeps of its query vectors g and g + 8 of every m16 tile, besides the sums.
template <class Row>
struct SoftmaxState {
  int position[Row::tiles][2];
  float largest[Row::tiles][2];
  float total[Row::tiles][2];
};

// Scores of this warp's positions, scaled. Even and odd pieces of the head dimension are two chains of
// products, added at the end: half the latency of one.
template <class Row, class Cta>
FOURFOLD_DEVICE void score_page(Cta cta, typename Row::Storage& storage, PieceRing<Row>& ring,
                                const PageList& list, int warp, float scale_log2,
                                float (&score)[Row::tiles][Row::key_tiles][4]) {
  using Layout = typename Row::Layout;
  constexpr int chains = Layout::pieces > 1 ? 2 : 1, steps = Layout::key_piece_dims / 16;
  float chain[chains][Row::tiles][Row::key_tiles][4] = {};
  const auto add_piece = [&](int piece, float(&sum)[Row::tiles][Row::key_tiles][4]) {
    const unsigned char* keys = ring.take(cta, storage, list, warp == 0);
#pragma unroll
    for (int step = 0; step < steps; step += 4) {
      std::uint32_t b[4][Row::key_tiles][2];
      load_keys<Layout>(cta, keys, 8 * Row::key_tiles * warp, step, b);
#pragma unroll
      for (int s = 0; s < 4; ++s)
#pragma unroll
        for (int m = 0; m < Row::tiles; ++m) {
          std::uint32_t a[4];
          load_rows<Row::tile>(cta, storage.query, m, piece * steps + step + s, a);
#pragma unroll
          for (int n = 0; n < Row::key_tiles; ++n) cta.mma_bf16(sum[m][n], a, b[s][n][0], b[s][n][1]);
        }
    }
    cta.sync_warp();  // every lane has read
    ring.give_back(cta, storage);
  };
  // Rolled: a pair of pieces is a few hundred instructions, and most steps have few pages to run them for.
#pragma unroll 1
  for (int piece = 0; piece < Layout::pieces; piece += chains)
#pragma unroll
    for (int c = 0; c < chains; ++c) add_piece(piece + c, chain[c]);
#pragma unroll
  for (int m = 0; m < Row::tiles; ++m)
#pragma unroll
    for (int n = 0; n < Row::key_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float sum = chain[0][m][n][i];
        if constexpr (chains == 2) sum = Cta::add(sum, chain[1][m][n][i]);
        score[m][n][i] = Cta::mul(sum, scale_log2);
      }
}

// Hides positions behind each row's own and before its window, then leaves this warp's largest scores for the
// others.
template <class Row, class Cta>
FOURFOLD_DEVICE void share_largest(Cta cta, typename Row::Storage& storage, const SoftmaxState<Row>& state,
                                   int warp, int page_position, int window,
                                   float (&score)[Row::tiles][Row::key_tiles][4]) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
#pragma unroll
  for (int m = 0; m < Row::tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = kUnseen;
      [[maybe_unused]] const int earliest = first_seen(state.position[m][half], window);
#pragma unroll
      for (int n = 0; n < Row::key_tiles; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = score[m][n][2 * half + i];
          const int position = page_position + 8 * (Row::key_tiles * warp + n) + 2 * t + i;
          if (position > state.position[m][half]) s = kUnseen;
          if constexpr (Row::is_windowed)
            if (position < earliest) s = kUnseen;
          largest = Cta::max(largest, s);
        }
      largest = Cta::max(largest, cta.shuffle_xor(largest, 1));
      largest = Cta::max(largest, cta.shuffle_xor(largest, 2));
      if (t == 0) cta.store_shared(&storage.largest[warp][16 * m + 8 * half + g], largest);
    }
}

// Weights of this warp's positions, rounded to bf16, and their sums before rounding, eight positions at a
// time (the order of the total must not depend on the number of warps). factor: what sums so far are
// multiplied with.
template <class Row, class Cta>
FOURFOLD_DEVICE void share_weights(Cta cta, typename Row::Storage& storage, SoftmaxState<Row>& state,
                                   int warp, const float (&score)[Row::tiles][Row::key_tiles][4],
                                   float (&factor)[Row::tiles][2]) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
#pragma unroll
  for (int m = 0; m < Row::tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = 16 * m + 8 * half + g;
      float largest = state.largest[m][half];
#pragma unroll
      for (int w = 0; w < Row::warps; ++w)
        largest = Cta::max(largest, cta.load_shared(&storage.largest[w][query]));
      factor[m][half] = exp2_weight<Cta>(Cta::add(state.largest[m][half], -largest));
      state.largest[m][half] = largest;
#pragma unroll
      for (int n = 0; n < Row::key_tiles; ++n) {
        const int group = Row::key_tiles * warp + n;
        float weight[2];
#pragma unroll
        for (int i = 0; i < 2; ++i)
          weight[i] = exp2_weight<Cta>(Cta::add(score[m][n][2 * half + i], -largest));
        const std::uint32_t at = query_offset<Row::tile>(query, group) + 4 * static_cast<std::uint32_t>(t);
        cta.store_shared(reinterpret_cast<std::uint32_t*>(storage.weights + at),
                         Cta::pack_bf16(weight[0], weight[1]));
        float sum = Cta::add(weight[0], weight[1]);
        sum = Cta::add(sum, cta.shuffle_xor(sum, 1));
        sum = Cta::add(sum, cta.shuffle_xor(sum, 2));
        if (t == 0) cta.store_shared(&storage.sum[group][query], sum);
      }
    }
}

template <class Row>
using ValueSums = float[Row::tiles][Row::value_tiles][4];

// Brings sums of earlier pages to this page's unit, and adds its sum of weights.
template <class Row, class Cta>
FOURFOLD_DEVICE void rescale(Cta cta, const typename Row::Storage& storage, SoftmaxState<Row>& state,
                             const float (&factor)[Row::tiles][2], ValueSums<Row>& sums) {
#pragma unroll
  for (int m = 0; m < Row::tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = 16 * m + 8 * half + (cta.lane() >> 2);
      float sum = cta.load_shared(&storage.sum[0][query]);
#pragma unroll
      for (int group = 1; group < 8; ++group)
        sum = Cta::add(sum, cta.load_shared(&storage.sum[group][query]));
      state.total[m][half] = Cta::fma(state.total[m][half], factor[m][half], sum);
    }
#pragma unroll
    for (int n = 0; n < Row::value_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] = Cta::mul(sums[m][n][i], factor[m][i / 2]);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void add_values(Cta cta, typename Row::Storage& storage, PieceRing<Row>& ring,
                                const PageList& list, int warp, int written, ValueSums<Row>& sums) {
  using Layout = typename Row::Layout;
  constexpr int dims = Layout::value_piece_dims / Row::warps, tiles = dims / 8;
  // Weights stay in registers for all pieces where there is room; four tiles of them are read again.
  constexpr bool keeps_weights = Row::tiles <= 2;
  std::uint32_t weight[keeps_weights ? Row::tiles : 1][4][4];
  if constexpr (keeps_weights) {
#pragma unroll
    for (int m = 0; m < Row::tiles; ++m)
#pragma unroll
      for (int step = 0; step < 4; ++step)
        load_rows<Row::tile>(cta, storage.weights, m, step, weight[m][step]);
  }
  std::uint32_t mask[4][2];
  mask_values(cta, written, mask);
#pragma unroll
  for (int piece = 0; piece < Layout::pieces; ++piece) {
    const unsigned char* values = ring.take(cta, storage, list, warp == 0);
    std::uint32_t b[tiles][4][2];
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      load_values<Layout>(cta, values, warp * dims + 8 * n, b[n]);
#pragma unroll
      for (int i = 0; i < 8; ++i) b[n][i / 2][i % 2] &= mask[i / 2][i % 2];
    }
    cta.sync_warp();  // every lane has read
    ring.give_back(cta, storage);
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int m = 0; m < Row::tiles; ++m) {
        std::uint32_t(&a)[4] = weight[keeps_weights ? m : 0][step];
        if constexpr (!keeps_weights) load_rows<Row::tile>(cta, storage.weights, m, step, a);
#pragma unroll
        for (int n = 0; n < tiles; ++n)
          cta.mma_bf16(sums[m][piece * tiles + n], a, b[n][step][0], b[n][step][1]);
      }
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void store_partial(Cta cta, const AttendParams& params, const AttendUnit& unit, int warp,
                                   const SoftmaxState<Row>& state, const ValueSums<Row>& sums) {
  using Layout = typename Row::Layout;
  constexpr int dims = Layout::value_piece_dims / Row::warps, tiles = dims / 8;
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
#pragma unroll
  for (int m = 0; m < Row::tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = unit.first_query + 16 * m + 8 * half + g;
      // Rows that stand before the split see nothing of it; their partial is not read.
      if (query >= unit.query_count || state.position[m][half] < unit.begin) continue;
      const int row = query / params.heads_per_kv, head = query - row * params.heads_per_kv;
      const std::int64_t slot =
          unit.found.slots + static_cast<std::int64_t>(unit.split - unit.first_split) * unit.found.row_count +
          row;
      const std::int64_t vector = slot * params.heads + unit.kv_head * params.heads_per_kv + head;
      float* to = params.partial + vector * Row::head_dim + warp * dims + 2 * t;
#pragma unroll
      for (int n = 0; n < Row::value_tiles; ++n)
        cta.store(reinterpret_cast<device::F32x2*>(to + n / tiles * Layout::value_piece_dims + n % tiles * 8),
                  device::F32x2{{sums[m][n][2 * half], sums[m][n][2 * half + 1]}});
      if (warp == 0 && t == 0)
        cta.store(reinterpret_cast<device::F32x2*>(params.partial_scale) + vector,
                  device::F32x2{{state.largest[m][half], state.total[m][half]}});
    }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void attend_unit(Cta cta, const AttendParams& params, typename Row::Storage& storage,
                                 PieceRing<Row>& ring, const AttendUnit& unit, int warp) {
  const PageList list = list_pages<typename Row::Layout>(
      params.keys, params.values, unit.kv_head, params.kv_heads,
      params.tables.pages + unit.found.page_begin + unit.begin / kPageTokens, unit.pages);
  ring.enter();
  if (warp == 0) ring.start(cta, storage, list);
  stage_queries<Row>(cta, params, unit, storage.query);
  SoftmaxState<Row> state;
#pragma unroll
  for (int m = 0; m < Row::tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = unit.first_query + 16 * m + 8 * half + (cta.lane() >> 2);
      state.position[m][half] = unit.found.position + query / params.heads_per_kv;
      state.largest[m][half] = kFirstLargest<Row>;
      state.total[m][half] = 0.0f;
    }
  ValueSums<Row> sums = {};
  cta.sync_block();  // the query vectors are in place
  for (int page = 0; page < unit.pages; ++page) {
    const int page_position = unit.begin + page * kPageTokens;
    float score[Row::tiles][Row::key_tiles][4], factor[Row::tiles][2];
    score_page<Row>(cta, storage, ring, list, warp, params.scale_log2, score);
    share_largest<Row>(cta, storage, state, warp, page_position, window_of<Row>(params), score);
    cta.sync_block();  // all largest scores; and every warp has left the weights of the page before
    share_weights<Row>(cta, storage, state, warp, score, factor);
    cta.sync_block();  // all weights
    rescale<Row>(cta, storage, state, factor, sums);
    add_values<Row>(cta, storage, ring, list, warp, unit.last + 1 - page_position, sums);
  }
  store_partial<Row>(cta, params, unit, warp, state, sums);
}

template <class Row, class Cta>
FOURFOLD_DEVICE void attend(Cta cta, const AttendParams& params) {
  auto& storage = cta.template shared<typename Row::Storage>();
  const int warp = cta.warp();
  PieceRing<Row> ring;
  PieceRing<Row>::init(cta, storage);
  cta.wait_predecessors();
  cta.release_successors();
  for (std::int64_t index = cta.block();; index += cta.blocks()) {
    const AttendUnit unit = find_unit<Row>(cta, params, index);
    if (unit.found.sequence < 0) return;
    attend_unit<Row>(cta, params, storage, ring, unit, warp);
  }
}

}  // namespace fourfold::attention
