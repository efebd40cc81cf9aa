// Attention over a latent cache, for generated rows and for prompts: one arithmetic, of which decode leaves
// the sums of every split and a prompt the result. The softmax runs over tiles of 32 positions in ascending
// order. A query vector's numbers depend on its own row and on where its positions begin: the other vectors
// of the block, the batch and the grid never enter them, and a tile it may not see multiplies by exactly 1
// and adds exactly 0.
//
//   query     in registers for the whole unit: a warp has 16 vectors and a quarter of the columns
//   scores    a warp multiplies its quarter (16 columns of every panel) with its positions: four sums meet in
//             shared memory and are added as (0 + 1) + (2 + 3)
//   softmax   a thread has two or four neighbouring scores of a vector: largest, weights (bf16), their sum
//   values    a warp multiplies the weights with a panel of 64 columns of the same tile, read by columns
//
// Values by columns, without a transposed copy: a lane reads chunk g (eight columns) of the four positions
// its k16 step wants and pairs them with byte_permute, so n8 tile j has columns j, 8 + j, ..., 56 + j of the
// panel, and a lane's results are sixteen neighbouring columns.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/macros.h"
#include "kernels/attention/page_layout.h"
#include "kernels/attention/softmax.h"
#include "kernels/mla/find_unit.h"
#include "kernels/mla/latent_page.h"
#include "kernels/mla/mla_params.h"
#include "kernels/mla/tile_ring.h"

namespace fourfold::mla {

using attention::exp2_weight;
using attention::kUnseen;

inline constexpr int kQuarters = 4;  // of a panel's columns, a k16 step each

// Place of score `position` of a vector among its 32: groups of eight are moved so that eight rows stored at
// once lie in different banks.
constexpr int score_place(int vector, int position) {
  return vector * kTilePositions + ((position / 8) ^ (vector & 3)) * 8 + position % 8;
}

// The A operands of this warp, all panels: vectors 16 m + g and + 8, columns of its quarter.
template <class Row, class Cta>
FOURFOLD_DEVICE void load_query(Cta cta, const AttendParams& params, const LatentUnit& unit, int warp,
                                std::uint32_t (&query)[Row::Page::panels][4]) {
  using Page = typename Row::Page;
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
  const std::int64_t first = static_cast<std::int64_t>(unit.found.first_row) * params.heads;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int vector = unit.first_query + 16 * Row::score_tile(warp) + 8 * half + g;
    const std::uint16_t* from =
        params.query + (first + vector) * Page::width + 16 * (warp % kQuarters) + 2 * t;
#pragma unroll
    for (int panel = 0; panel < Page::panels; ++panel)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        query[panel][half + 2 * k] =
            vector < unit.query_count
                ? cta.load(reinterpret_cast<const std::uint32_t*>(from + kPanelColumns * panel + 8 * k))
                : 0u;
  }
}

// This warp's quarter of the scores of its positions.
template <class Row, class Cta>
FOURFOLD_DEVICE void score_tile(Cta cta, typename Row::Storage& storage, const unsigned char* tile, int warp,
                                const std::uint32_t (&query)[Row::Page::panels][4]) {
  const int lane = cta.lane(), g = lane >> 2, t = lane & 3, matrix = lane >> 3;
  const int quarter = warp % kQuarters, first = Row::key_tiles * Row::key_group(warp);
  const auto chunk = static_cast<std::uint32_t>(2 * quarter + (matrix & 1));
  float score[Row::key_tiles][4] = {};
#pragma unroll
  for (int panel = 0; panel < Row::Page::panels; ++panel)
#pragma unroll
    for (int n = 0; n < Row::key_tiles; n += 2) {
      const auto row = static_cast<std::uint32_t>(8 * (first + n + (matrix >> 1)) + (lane & 7));
      const device::U32x4 b =
          cta.load_matrix_x4(tile + panel * kPanelBytes + device::swizzled_offset(row, chunk));
      cta.mma_bf16(score[n], query[panel], b.v[0], b.v[1]);
      cta.mma_bf16(score[n + 1], query[panel], b.v[2], b.v[3]);
    }
#pragma unroll
  for (int n = 0; n < Row::key_tiles; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int vector = 16 * Row::score_tile(warp) + 8 * half + g;
      cta.store_shared(reinterpret_cast<device::F32x2*>(
                           &storage.score[quarter][score_place(vector, 8 * (first + n) + 2 * t)]),
                       device::F32x2{{score[n][2 * half], score[n][2 * half + 1]}});
    }
}

// Of one query vector, in every thread that has scores of it.
struct VectorState {
  int position = 0;
  float scale_log2 = 0.0f;
  float largest = kUnseen;
  float total = 0.0f;
};

// Threads of a vector beyond the sequence's last do as if it were that one.
template <class Row, class Cta>
FOURFOLD_DEVICE VectorState first_state(Cta cta, const AttendParams& params, const LatentUnit& unit) {
  int query = unit.first_query + cta.thread() * Row::thread_scores / kTilePositions;
  if (query >= unit.query_count) query = unit.query_count - 1;
  VectorState state;
  state.position = unit.found.position + query / params.heads;
  state.scale_log2 = params.growth_positions == 0
                         ? params.scale_log2
                         : cta.load(params.grown_scale + state.position / params.growth_positions);
  return state;
}

// Scores become weights; what sums so far are multiplied with goes to `factor`. Behind the unit's last tile a
// prompt also wants 1 / total.
template <class Row, class Cta>
FOURFOLD_DEVICE void weigh_tile(Cta cta, typename Row::Storage& storage, int tile_position, bool is_last,
                                VectorState& state) {
  constexpr int count = Row::thread_scores, threads = kTilePositions / count;  // of a vector
  const int vector = cta.thread() / threads, first = cta.thread() % threads * count;
  using Scores = std::conditional_t<count == 4, device::F32x4, device::F32x2>;
  Scores part[kQuarters];
#pragma unroll
  for (int quarter = 0; quarter < kQuarters; ++quarter)
    part[quarter] =
        cta.load_shared(reinterpret_cast<const Scores*>(&storage.score[quarter][score_place(vector, first)]));
  float score[count], largest = state.largest;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const float sum = Cta::add(Cta::add(part[0].v[i], part[1].v[i]), Cta::add(part[2].v[i], part[3].v[i]));
    // Bytes of a position that was never written may be anything.
    score[i] = tile_position + first + i > state.position ? kUnseen : Cta::mul(sum, state.scale_log2);
    largest = Cta::max(largest, score[i]);
  }
#pragma unroll
  for (int mask = 1; mask < threads; mask *= 2) largest = Cta::max(largest, cta.shuffle_xor(largest, mask));
  const float factor = exp2_weight<Cta>(Cta::add(state.largest, -largest));
  state.largest = largest;
  float weight[count];
#pragma unroll
  for (int i = 0; i < count; ++i) weight[i] = exp2_weight<Cta>(Cta::add(score[i], -largest));
  unsigned char* to = storage.weights +
                      attention::chunk_offset<2 * kTilePositions>(static_cast<std::uint32_t>(vector),
                                                                  static_cast<std::uint32_t>(first / 8)) +
                      first % 8 * 2;
  // Pairs, pairs of pairs, and on: one order, however many scores a thread has.
  float sum = Cta::add(weight[0], weight[1]);
  if constexpr (count == 4) {
    sum = Cta::add(sum, Cta::add(weight[2], weight[3]));
    cta.store_shared(
        reinterpret_cast<device::U32x2*>(to),
        device::U32x2{{Cta::pack_bf16(weight[0], weight[1]), Cta::pack_bf16(weight[2], weight[3])}});
  } else {
    cta.store_shared(reinterpret_cast<std::uint32_t*>(to), Cta::pack_bf16(weight[0], weight[1]));
  }
#pragma unroll
  for (int mask = 1; mask < threads; mask *= 2) sum = Cta::add(sum, cta.shuffle_xor(sum, mask));
  state.total = Cta::fma(state.total, factor, sum);
  if (cta.thread() % threads != 0) return;
  cta.store_shared(&storage.factor[vector], factor);
  if constexpr (Row::is_prompt) {
    if (is_last) cta.store_shared(&storage.inverse[vector], Cta::reciprocal(state.total));
  }
}

// [m16 tile of vectors][panel of columns][n8 tile][register]
template <class Row>
using ValueSums = float[Row::value_tiles][Row::warp_panels][8][4];

// Multiplying by exactly 1 changes nothing: where no vector of the warp found a larger score, it is left out.
template <class Row, class Cta>
FOURFOLD_DEVICE void rescale(Cta cta, const typename Row::Storage& storage, int first_tile,
                             ValueSums<Row>& sums) {
#pragma unroll
  for (int m = 0; m < Row::value_tiles; ++m) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      factor[half] = cta.load_shared(&storage.factor[16 * (first_tile + m) + 8 * half + (cta.lane() >> 2)]);
    if (cta.ballot(factor[0] != 1.0f || factor[1] != 1.0f) == 0) continue;
#pragma unroll
    for (int panel = 0; panel < Row::warp_panels; ++panel)
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][panel][n][i] = Cta::mul(sums[m][panel][n][i], factor[i / 2]);
  }
}

// The B operands of one step of 16 positions for a panel's eight n8 tiles. Masked: a tile with positions that
// were never written, whose bytes may be anything; `written` of them are good.
template <bool Masked, class Cta>
FOURFOLD_DEVICE void load_value_columns(Cta cta, const unsigned char* panel, int step, int written,
                                        std::uint32_t (&b)[8][2]) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int position = 16 * step + 8 * k + 2 * t;
    const auto chunk_at = [&](int row) {
      return cta.load_shared(reinterpret_cast<const device::U32x4*>(
          panel + device::swizzled_offset(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(g))));
    };
    const device::U32x4 even = chunk_at(position), odd = chunk_at(position + 1);
    std::uint32_t mask = 0xFFFFFFFFu;
    if constexpr (Masked)
      mask = written >= position + 2 ? 0xFFFFFFFFu : written == position + 1 ? 0x0000FFFFu : 0u;
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      b[2 * word][k] = Cta::byte_permute(even.v[word], odd.v[word], 0x5410u) & mask;
      b[2 * word + 1][k] = Cta::byte_permute(even.v[word], odd.v[word], 0x7632u) & mask;
    }
  }
}

template <class Row, bool Masked, class Cta>
FOURFOLD_DEVICE void add_values(Cta cta, const typename Row::Storage& storage, const unsigned char* tile,
                                int warp, int written, ValueSums<Row>& sums) {
  constexpr int steps = kTilePositions / 16;
  std::uint32_t weight[Row::value_tiles][steps][4];
#pragma unroll
  for (int m = 0; m < Row::value_tiles; ++m)
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const auto row = static_cast<std::uint32_t>(16 * (Row::value_tile(warp) + m) + (cta.lane() & 15));
      const auto chunk = static_cast<std::uint32_t>(2 * step + (cta.lane() >> 4));
      const device::U32x4 a =
          cta.load_matrix_x4(storage.weights + attention::chunk_offset<2 * kTilePositions>(row, chunk));
#pragma unroll
      for (int i = 0; i < 4; ++i) weight[m][step][i] = a.v[i];
    }
#pragma unroll
  for (int panel = 0; panel < Row::warp_panels; ++panel)
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      std::uint32_t b[8][2];
      load_value_columns<Masked>(cta, tile + Row::value_panel(warp, panel) * kPanelBytes, step, written, b);
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int m = 0; m < Row::value_tiles; ++m)
          cta.mma_bf16(sums[m][panel][n], weight[m][step], b[n][0], b[n][1]);
    }
}

// Sixteen neighbouring columns of a vector, for every vector and panel of this lane.
template <class Row, class Cta, class Store>
FOURFOLD_DEVICE void store_columns(Cta cta, const LatentUnit& unit, int warp, const ValueSums<Row>& sums,
                                   const Store& store) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
#pragma unroll
  for (int m = 0; m < Row::value_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int place = 16 * (Row::value_tile(warp) + m) + 8 * half + g;
      if (unit.first_query + place >= unit.query_count) continue;
#pragma unroll
      for (int panel = 0; panel < Row::warp_panels; ++panel)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float value[8];
#pragma unroll
          for (int n = 0; n < 8; ++n) value[n] = sums[m][panel][n][2 * half + i];
          store(place, kPanelColumns * Row::value_panel(warp, panel) + 16 * t + 8 * i, value);
        }
    }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void store_partial(Cta cta, const AttendParams& params, const LatentUnit& unit, int warp,
                                   const VectorState& state, const ValueSums<Row>& sums) {
  const std::int64_t first =
      (unit.found.slots + static_cast<std::int64_t>(unit.split) * unit.found.row_count) * params.heads +
      unit.first_query;
  constexpr int threads = kTilePositions / Row::thread_scores;
  const int vector = cta.thread() / threads;
  // Rows that stand before the split see nothing of it; their partial is not read.
  if (cta.thread() % threads == 0 && unit.first_query + vector < unit.query_count &&
      state.position >= unit.begin)
    cta.store(reinterpret_cast<device::F32x2*>(params.partial_scale) + first + vector,
              device::F32x2{{state.largest, state.total}});
  if (!Row::has_values(warp)) return;
  store_columns<Row>(cta, unit, warp, sums, [&](int place, int column, const float(&value)[8]) {
    if (unit.found.position + (unit.first_query + place) / params.heads < unit.begin) return;
    float* to = params.partial + (first + place) * Row::Page::latent + column;
#pragma unroll
    for (int i = 0; i < 8; i += 4)
      cta.store(reinterpret_cast<device::F32x4*>(to + i),
                device::F32x4{{value[i], value[i + 1], value[i + 2], value[i + 3]}});
  });
}

template <class Row, class Cta>
FOURFOLD_DEVICE void store_result(Cta cta, const AttendParams& params, const LatentUnit& unit, int warp,
                                  const typename Row::Storage& storage, const ValueSums<Row>& sums) {
  if (!Row::has_values(warp)) return;
  const std::int64_t first =
      static_cast<std::int64_t>(unit.found.first_row) * params.heads + unit.first_query;
  store_columns<Row>(cta, unit, warp, sums, [&](int place, int column, const float(&value)[8]) {
    const float inverse = cta.load_shared(&storage.inverse[place]);
    std::uint32_t pair[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pair[i] = Cta::pack_bf16(Cta::mul(value[2 * i], inverse), Cta::mul(value[2 * i + 1], inverse));
    cta.store(reinterpret_cast<device::U32x4*>(params.out + (first + place) * Row::Page::latent + column),
              device::U32x4{{pair[0], pair[1], pair[2], pair[3]}});
  });
}

template <class Row, class Cta>
FOURFOLD_DEVICE void attend_unit(Cta cta, const AttendParams& params, typename Row::Storage& storage,
                                 TileRing<Row>& ring, const LatentUnit& unit, int warp) {
  const TileList list{params.pages, params.tables.pages + unit.found.page_begin + unit.begin / kPageTokens,
                      unit.tiles()};
  if (warp == 0) ring.start(cta, storage, list);
  std::uint32_t query[Row::Page::panels][4];
  load_query<Row>(cta, params, unit, warp, query);
  VectorState state = first_state<Row>(cta, params, unit);
  ValueSums<Row> sums = {};
#pragma unroll 1
  for (int i = 0; i < list.tiles; ++i) {
    const int tile_position = unit.begin + i * kTilePositions, written = unit.end - tile_position;
    const unsigned char* tile = ring.take(cta, storage);
    score_tile<Row>(cta, storage, tile, warp, query);
    cta.sync_block();  // all scores; and every warp has left the weights of the tile before
    if (warp == 0 && i > 0) ring.fill(cta, storage, list);
    weigh_tile<Row>(cta, storage, tile_position, i == list.tiles - 1, state);
    cta.sync_block();  // all weights
    if (Row::has_values(warp)) {
      rescale<Row>(cta, storage, Row::value_tile(warp), sums);
      if (written < kTilePositions)
        add_values<Row, true>(cta, storage, tile, warp, written, sums);
      else
        add_values<Row, false>(cta, storage, tile, warp, written, sums);
    }
    ring.give_back(cta, storage);
  }
  if constexpr (Row::is_prompt)
    store_result<Row>(cta, params, unit, warp, storage, sums);
  else
    store_partial<Row>(cta, params, unit, warp, state, sums);
}

template <class Row, class Cta>
FOURFOLD_DEVICE void attend_latent(Cta cta, const AttendParams& params) {
  auto& storage = cta.template shared<typename Row::Storage>();
  const int warp = cta.warp();
  TileRing<Row> ring;
  TileRing<Row>::init(cta, storage);
  cta.sync_block();  // the barriers are there
  cta.wait_predecessors();
  cta.release_successors();
  for (std::int64_t index = cta.block();; index += cta.blocks()) {
    const LatentUnit unit = find_unit<Row>(cta, params, index);
    if (unit.found.sequence < 0) return;
    attend_unit<Row>(cta, params, storage, ring, unit, warp);
  }
}

}  // namespace fourfold::mla
