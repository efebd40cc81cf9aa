// GEMM2 for one to four tokens. A block owns a strip of the output, or half of one, and all the experts that
// feed it: their sums meet in shared memory, in rank order, and leave as the finished result; no partial
// results, no counters, no third kernel.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/quotient.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe/paths.h"
#include "kernels/moe_few/fed_ring.h"
#include "kernels/moe_few/few_route.h"
#include "kernels/moe_few/few_shared.h"
#include "kernels/moe_few/record_ring.h"

namespace fourfold::moe_few {

using PairFactors = float[kFewPairs];  // of the pairs' dot products
template <int Rows>
using SharedSums = float[kFewTokens][Rows];  // the shared expert's part

template <class Row>
struct DownStorage {
  FewRoute route;
  device::Mbarrier tokens_full;
  typename Row::Barriers barriers;
  PairFactors factor;
  alignas(8) SharedSums<Row::rows> shared;
  alignas(128) unsigned char area[Row::area_bytes];
};

// How a block divides the area: the rings of the warps that multiply, then the pairs' rows, sums and biases.
// Fed rings have a size, so that there may be no room for all of them; others take what is left.
template <class Row>
struct DownArea {
  using Format = typename Row::Format;
  using Rows = float[Row::rows];
  int warps, depth;
  int segments;
  unsigned char *rings, *tokens;
  Rows* sum;   // [pair and segment]
  Rows* bias;  // [pair]

  FOURFOLD_DEVICE DownArea(DownStorage<Row>& storage, const FewParams& few, const moe::GemmParams& params) {
    const DownBytes bytes(few.tokens * few.top_k, record::kColumns * params.records, Row::rows,
                          Row::Glu::adds_bias);
    const int room = Row::area_bytes - bytes.total();
    warps = Row::warps;
    if constexpr (Row::fed) {
      depth = kFedStages;
      if (room < Row::warps * kFedRingBytes<Format>) warps = room / kFedRingBytes<Format>;
    } else {
      depth = ring_depth<Format>(room, Row::warps);
    }
    segments = (params.records + kSegmentRecords - 1) / kSegmentRecords;
    rings = storage.area;
    tokens = rings + Row::area_bytes - bytes.total();
    sum = reinterpret_cast<Rows*>(tokens + bytes.tokens);
    bias = reinterpret_cast<Rows*>(tokens + bytes.tokens + bytes.sums);
  }
};

// A unit is one segment of one tile's K; warp w of those that have a ring takes units w, w + warps, ...
struct DownUnit {
  int tile, segment, first_record, records;
  template <class Cta>
  FOURFOLD_DEVICE DownUnit(Cta, int unit, int segments, const moe::GemmParams& params) {
    tile = device::quotient<Cta>(unit, segments);
    segment = unit - tile * segments;
    first_record = segment * kSegmentRecords;
    const int left = params.records - first_record;
    records = left < kSegmentRecords ? left : kSegmentRecords;
  }
};

// Two rows of one token: the segments of each expert in order, then the experts in rank order. Nothing else
// runs beside it, once a layer: a few ranks are read at once, and the code is short enough to arrive in time.
template <class Row, class Cta>
FOURFOLD_DEVICE device::F32x2 combine_rows(Cta cta, const FewParams& few, const DownStorage<Row>& storage,
                                           const DownArea<Row>& area, int token, int row) {
  const int segments = area.segments;
  constexpr int ranks = 4;
  device::F32x2 result{};
#pragma unroll 1
  for (int first = 0; first < few.top_k; first += ranks) {
    const int pair = token * few.top_k + first, left = few.top_k - first;
    device::F32x2 total[ranks];
    [[maybe_unused]] device::F32x2 bias[ranks];
    float factor[ranks], weight[ranks];
#pragma unroll
    for (int i = 0; i < ranks; ++i) {
      const int of = pair + (i < left ? i : left - 1);  // beyond the last: read, not added
      total[i] = cta.load_shared(reinterpret_cast<const device::F32x2*>(&area.sum[of * segments][row]));
      factor[i] = cta.load_shared(&storage.factor[of]);
      weight[i] = cta.load_shared(&storage.route.pair_weight[of]);
      if constexpr (Row::Glu::adds_bias)
        bias[i] = cta.load_shared(reinterpret_cast<const device::F32x2*>(&area.bias[of][row]));
    }
#pragma unroll 1
    for (int s = 1; s < segments; ++s)
#pragma unroll
      for (int i = 0; i < ranks; ++i) {
        const int of = pair + (i < left ? i : left - 1);
        const auto part =
            cta.load_shared(reinterpret_cast<const device::F32x2*>(&area.sum[of * segments + s][row]));
        total[i] = {{Cta::add(total[i].v[0], part.v[0]), Cta::add(total[i].v[1], part.v[1])}};
      }
#pragma unroll
    for (int i = 0; i < ranks; ++i) {
      if (i >= left) break;
      const bool starts = i == 0 && first == 0;
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        float dot = Cta::mul(total[i].v[b], factor[i]);
        if constexpr (Row::Glu::adds_bias) dot = Cta::add(dot, bias[i].v[b]);
        const float value = Cta::mul(dot, weight[i]);
        result.v[b] = starts ? value : Cta::add(result.v[b], value);
      }
    }
  }
  return result;
}

// Two finished rows of one token: bf16, or added to what the residual stream held before.
template <class Cta>
FOURFOLD_DEVICE void store_result(Cta cta, const FewParams& few, const moe::GemmParams& params,
                                  std::int64_t at, const device::F32x2& result, device::F32x2 before,
                                  const float* shared) {
  if (few.residual == nullptr) {
    cta.store(reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(params.out) + at),
              Cta::pack_bf16(result.v[0], result.v[1]));
    return;
  }
  if (few.shared.weights) {
    const auto part = cta.load_shared(reinterpret_cast<const device::F32x2*>(shared));
    before = {{Cta::add(before.v[0], part.v[0]), Cta::add(before.v[1], part.v[1])}};
  }
  cta.store(reinterpret_cast<device::F32x2*>(few.residual + at),
            device::F32x2{{Cta::add(before.v[0], result.v[0]), Cta::add(before.v[1], result.v[1])}});
}

// The factor of every pair's dot products, a thread a pair.
template <class Row, class Cta>
FOURFOLD_DEVICE void store_factors(Cta cta, DownStorage<Row>& storage, const FewParams& few,
                                   const moe::GemmParams& params) {
  static_assert(Row::threads >= kFewPairs);
  constexpr float decode = moe::kDecodeFactor<typename Row::Path, typename Row::Format>;
  const int pair = cta.thread();
  if (pair >= few.tokens * few.top_k) return;
  const int tile = cta.load_shared(&storage.route.pair_tile[pair]);
  const int expert = cta.load_shared(&storage.route.tile_expert[tile]);
  cta.store_shared(&storage.factor[pair], moe::dot_factor(cta, params.scale, nullptr, expert, decode));
}

// The biases of this block's rows, of every pair's expert: asked for before they are needed.
template <class Row, class Cta>
FOURFOLD_DEVICE void store_biases(Cta cta, DownStorage<Row>& storage, const DownArea<Row>& area,
                                  const FewParams& few, const moe::GemmParams& params) {
  if constexpr (Row::Glu::adds_bias) {
    constexpr int row_pairs = Row::rows / 2;
#pragma unroll 1
    for (int i = cta.thread(); i < few.tokens * few.top_k * row_pairs; i += 32 * Row::warps) {
      const int pair = i / row_pairs, row = 2 * (i % row_pairs);
      const int tile = cta.load_shared(&storage.route.pair_tile[pair]);
      const std::int64_t expert = cta.load_shared(&storage.route.tile_expert[tile]);
      device::F32x2 bias{{0.0f, 0.0f}};
      if (params.bias)
        bias = cta.load(reinterpret_cast<const device::F32x2*>(params.bias + expert * params.out_columns +
                                                               Row::rows * cta.block() + row));
      cta.store_shared(reinterpret_cast<device::F32x2*>(&area.bias[pair][row]), bias);
    }
  }
}

// GEMM1's result, a row a pair. The warps share the rows: one lane after another would take longer.
template <class Row, class Cta>
FOURFOLD_DEVICE void copy_pair_rows(Cta cta, DownStorage<Row>& storage, unsigned char* to,
                                    const FewParams& few, const moe::GemmParams& params, int warp) {
  if (cta.lane() != 0) return;
  const int columns = record::kColumns * params.records, pairs = few.tokens * few.top_k;
  if (warp == 0) cta.arrive_expect(&storage.tokens_full, pairs * 2 * columns);
#pragma unroll 1
  for (int pair = warp; pair < pairs; pair += Row::warps) {
    const std::int64_t slot = cta.load_shared(&storage.route.pair_slot[pair]);
    cta.bulk_load(to + pair * row_stride(columns), params.tokens + slot * 2 * columns, 2 * columns,
                  &storage.tokens_full);
  }
}

// Rows 2g and 2g + 1 of each m16 tile for the tokens at places 2t and 2t + 1.
template <class Row, class Cta>
FOURFOLD_DEVICE void keep_sums(Cta cta, const DownStorage<Row>& storage, const DownArea<Row>& area, int tile,
                               int count, int segment, const float (&sum)[Row::rows / 16][4]) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    const int place = 2 * t + b;
    if (place >= count) continue;
    const int pair = pair_of_entry(cta.load_shared(&storage.route.tile_entry[tile][place]));
    auto* rows = reinterpret_cast<device::F32x2*>(area.sum[pair * area.segments + segment]) + g;
#pragma unroll
    for (int m = 0; m < Row::rows / 16; ++m)
      cta.store_shared(rows + 8 * m, device::F32x2{{sum[m][b], sum[m][2 + b]}});
  }
}

// Where the records of a warp's units lie, one after another.
template <class Row, class Cta>
struct UnitStretches {
  Cta cta;
  const moe::GemmParams& params;
  const DownStorage<Row>& storage;
  int strip, segments, warps, units;
  mutable int index;  // of the next unit

  FOURFOLD_DEVICE Stretch operator()() const {
    if (index >= units) return {};
    const DownUnit unit(cta, index, segments, params);
    index += warps;
    const int expert = cta.load_shared(&storage.route.tile_expert[unit.tile]);
    const std::int64_t first =
        (static_cast<std::int64_t>(expert) * params.strips + strip) * params.records + unit.first_record;
    return {params.weights + first * record::kRecordBytes<typename Row::Format>, unit.records};
  }
};

// The warp behind those that multiply: lane w fills warp w's ring. Nothing of GEMM1's is read here.
template <class Row, class Cta>
FOURFOLD_DEVICE void feed_experts(Cta cta, const moe::GemmParams& params, DownStorage<Row>& storage,
                                  const DownArea<Row>& area, int tile_count, int strip) {
  const bool feeds = cta.lane() < area.warps;
  const int warp = feeds ? cta.lane() : 0;
  const UnitStretches<Row, Cta> next{
      cta, params, storage, strip, area.segments, area.warps, feeds ? tile_count * area.segments : 0, warp};
  using Ring = FedRing<typename Row::Format>;
  FedFeeder<Ring> feeder{Ring(storage.barriers, area.rings, warp)};
  feed_rings(cta, feeder, next, [&] { cta.wait_predecessors(); });
}

// Between the routing and GEMM1's result, and then the rows of that.
template <class Row, class Cta>
FOURFOLD_DEVICE void meet_gate_up(Cta cta, const FewParams& few, const moe::GemmParams& params,
                                  DownStorage<Row>& storage, const DownArea<Row>& area, int warp) {
  store_factors<Row>(cta, storage, few, params);
  store_biases<Row>(cta, storage, area, few, params);
  cta.wait_predecessors();  // GEMM1's result
  cta.release_successors();
  copy_pair_rows<Row>(cta, storage, area.tokens, few, params, warp);
  cta.wait(&storage.tokens_full, 0u);
}

// A warp's units. multiply(records, token, sum): one segment's products.
template <class Row, class Cta, class Multiply>
FOURFOLD_DEVICE void multiply_units(Cta cta, const moe::GemmParams& params, const DownStorage<Row>& storage,
                                    const DownArea<Row>& area, int units, int warp,
                                    const Multiply& multiply) {
  const int stride = row_stride(record::kColumns * params.records);
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
#pragma unroll 1
  for (int index = warp; index < units; index += area.warps) {
    const DownUnit unit(cta, index, area.segments, params);
    const int count = cta.load_shared(&storage.route.tile_count[unit.tile]);
    const int of =
        pair_of_entry(cta.load_shared(&storage.route.tile_entry[unit.tile][g < count ? g : count - 1]));
    float sum[Row::rows / 16][4] = {};
    multiply(unit.records, area.tokens + of * stride + unit.first_record * 2 * record::kColumns + 16 * t,
             sum);
    keep_sums<Row>(cta, storage, area, unit.tile, count, unit.segment, sum);
  }
}

// What the expert warps do between the first barrier and the last, once the routing is known.
template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_experts(Cta cta, const FewParams& few, const moe::GemmParams& params,
                                      DownStorage<Row>& storage, const DownArea<Row>& area, int tile_count,
                                      int warp, int strip, int first_tile) {
  constexpr int tiles = Row::rows / 16;
  constexpr record::BitOrder order = Row::Path::bit_order;
  const int units = tile_count * area.segments;
  if constexpr (Row::fed) {
    meet_gate_up<Row>(cta, few, params, storage, area, warp);
    if (warp >= area.warps) return;  // no room for its ring
    FedRing<typename Row::Format> ring(storage.barriers, area.rings, warp);
    multiply_units<Row>(cta, params, storage, area, units, warp,
                        [&](int records, const unsigned char* token, float(&sum)[tiles][4]) {
                          multiply_fed<tiles, order>(cta, ring, records, first_tile, token, sum);
                        });
  } else {
    WarpRing<typename Row::Format> ring(storage.barriers, area.rings, area.depth, warp);
    const UnitStretches<Row, Cta> next{cta, params, storage, strip, area.segments, area.warps, units, warp};
    RecordFeed feed(ring, next);
    feed.fill(cta);
    meet_gate_up<Row>(cta, few, params, storage, area, warp);
    multiply_units<Row>(cta, params, storage, area, units, warp,
                        [&](int records, const unsigned char* token, float(&sum)[tiles][4]) {
                          multiply_segment<tiles, order>(cta, ring, feed, records, first_tile, token, sum);
                        });
  }
}

// params.tokens: the slots few_gate_up wrote. params.out: [tokens, out_columns] bf16, finished; or
// few.residual. The grid is out_columns / Row::rows blocks. Behind the experts' warps are the one that feeds
// them, if they are fed, and the shared expert's, which starts at once, without waiting for the routing.
template <class Row, class Cta>
FOURFOLD_DEVICE void few_down(Cta cta, const FewParams& few, const moe::GemmParams& params) {
  constexpr int parts = record::kRows / Row::rows, row_pairs = Row::rows / 2;
  auto& storage = *Cta::keep(&cta.template shared<DownStorage<Row>>());
  const int warp = cta.warp(), strip = cta.block() / parts, first_tile = cta.block() % parts;
  if (cta.lane() == 0 && warp < Row::warps) {
    storage.barriers.init(cta, warp);
    if (warp == 0) cta.init(&storage.tokens_full, 1);
    cta.fence_barrier_init();
  }
  prepare_route(cta, few, storage.route);
  cta.sync_block();  // barriers and tables are prepared
  static_assert(Row::threads >= kFewTokens * row_pairs, "a thread finishes two rows of a token");
  const int token = cta.thread() / row_pairs, row = 2 * (cta.thread() % row_pairs);
  const std::int64_t place =
      static_cast<std::int64_t>(token) * params.out_columns + Row::rows * cta.block() + row;
  const bool finishes = token < few.tokens;
  // The residual stream is older than GEMM1, too.
  device::F32x2 before{};
  if (finishes && few.residual)
    before = cta.load(reinterpret_cast<const device::F32x2*>(few.residual + place));
  const DownArea<Row> area(storage, few, params);
  if (warp < Row::routing_warps) {
    // The logits are older than GEMM1, which had waited for them before it let us start: routing and weights
    // need not wait for GEMM1's result.
    const int tile_count = route_few<Row, true>(cta, few, storage.route, warp);
    if (warp < Row::warps)
      multiply_experts<Row>(cta, few, params, storage, area, tile_count, warp, strip, first_tile);
    else if constexpr (Row::fed)
      feed_experts<Row>(cta, params, storage, area, tile_count, strip);
  } else if (few.shared.weights) {
    // Nothing of GEMM1's is read here: the others wait for it.
    multiply_shared<Row>(cta, few.shared, few.tokens, strip, first_tile, storage.shared);
  }
  cta.sync_block();  // every expert's sums and factor, and the shared expert's, are in shared memory
  if (finishes)
    store_result(cta, few, params, place, combine_rows<Row>(cta, few, storage, area, token, row), before,
                 &storage.shared[token][row]);
}

}  // namespace fourfold::moe_few
