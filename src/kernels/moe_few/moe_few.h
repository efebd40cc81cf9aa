// The layer for one to four tokens in two kernels and no tables in global memory. Each block redoes the
// top-k. GEMM1 is the streaming kernel. In GEMM2 a block owns a strip of the output and all the experts that
// feed it: their sums meet in shared memory, in rank order, and leave as the finished result; no partial
// results, no counters, no third kernel.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/moe_few/few_route.h"
#include "kernels/moe_stream/moe_stream.h"

namespace fourfold::moe_few {

template <class Row>
struct GateUpStorage {
  FewRoute route;
  typename Row::Storage stream;
};

// params.tiles, tile_count and slot_token are not read; params.out rows are slots (8 per tile).
template <class Row, class Cta>
FOURFOLD_DEVICE void few_gate_up(Cta cta, const FewParams& few, const moe::GemmParams& params) {
  auto& storage = cta.template shared<GateUpStorage<Row>>();
  cta.wait_predecessors();  // logits and tokens
  cta.release_successors();
  const int tile_count = route_few(cta, few, storage.route);
  const FewTiles tiles{storage.route, true};
  moe_stream::stream_tiles<Row>(cta, params, tiles, tile_count, storage.stream, false);
}

// ---- GEMM2 ----

template <class Row>
struct DownStorage {
  FewRoute route;
  float factor[kFewPairs];  // of the tiles' dot products
  // Sum of one segment for up to four tokens: [unit][token place][row of the strip].
  float sum[kMaxUnits][kFewTokens][record::kRows];
};

// A lane's share of a unit's sums: rows 2g, 2g + 1 of both tiles for tokens 2t and 2t + 1.
template <class Row, class Cta>
FOURFOLD_DEVICE void keep_sums(Cta cta, DownStorage<Row>& storage, int unit,
                               const moe_stream::Sums<Row>& sums) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    const int place = 2 * t + b;
    if (place >= kFewTokens) continue;
    auto* rows = reinterpret_cast<device::F32x2*>(storage.sum[unit][place]) + g;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile)
      cta.store_shared(rows + 8 * tile, device::F32x2{{sums[tile][0][b], sums[tile][0][2 + b]}});
  }
}

// Two rows of one token: the segments of each expert in order, then the experts in rank order.
template <class Row, class Cta>
FOURFOLD_DEVICE void combine_rows(Cta cta, const FewParams& few, const moe::GemmParams& params,
                                  const DownStorage<Row>& storage, int segments, int strip, int token,
                                  int row) {
  float result[2] = {0.0f, 0.0f};
  for (int rank = 0; rank < few.top_k; ++rank) {
    const int pair = token * few.top_k + rank;
    const int at = cta.load_shared(&storage.route.pair_place[pair]);
    const int tile = at / kFewTokens, place = at % kFewTokens;
    float total[2];
    for (int s = 0; s < segments; ++s) {
      const auto part = cta.load_shared(
          reinterpret_cast<const device::F32x2*>(&storage.sum[tile * segments + s][place][row]));
#pragma unroll
      for (int i = 0; i < 2; ++i) total[i] = s == 0 ? part.v[i] : Cta::add(total[i], part.v[i]);
    }
    const float factor = cta.load_shared(&storage.factor[tile]);
    const float weight = cta.load_shared(&storage.route.pair_weight[pair]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float value = Cta::mul(Cta::mul(total[i], factor), weight);
      result[i] = rank == 0 ? value : Cta::add(result[i], value);
    }
  }
  std::uint16_t* out = static_cast<std::uint16_t*>(params.out) +
                       static_cast<std::int64_t>(token) * params.out_columns + record::kRows * strip + row;
  cta.store(reinterpret_cast<std::uint32_t*>(out), Cta::pack_bf16(result[0], result[1]));
}

// params.tokens: the slots few_gate_up wrote. params.out: [tokens, out_columns] bf16, finished. The grid is
// one block a strip. unit_records must divide every segment; a unit here is a whole segment's worth of parts.
template <class Row, class Cta>
FOURFOLD_DEVICE void few_down(Cta cta, const FewParams& few, const moe::GemmParams& params) {
  auto& storage = cta.template shared<DownStorage<Row>>();
  // The logits are older than GEMM1, which had waited for them before it let us start: routing and the first
  // weights need not wait for GEMM1's result.
  const int tile_count = route_few(cta, few, storage.route);
  const FewTiles tiles{storage.route, false};
  const int strip = cta.block(), warp = cta.warp();
  const int segments = (params.records + moe_stream::kSegmentRecords - 1) / moe_stream::kSegmentRecords;
  const int units = tile_count * segments;
  const auto weights_of = [&](int unit) {
    const int tile = unit / segments, segment = unit - tile * segments;
    const std::int64_t first =
        (static_cast<std::int64_t>(tiles.expert(cta, tile)) * params.strips + strip) * params.records +
        segment * moe_stream::kSegmentRecords;
    return params.weights + first * Row::record_bytes;
  };
  moe_stream::Operands<Row> operands;
  const unsigned char* current = warp < units ? weights_of(warp) : params.weights;
#pragma unroll
  for (int r = 0; r < Row::depth; ++r)
    moe_stream::load_record<Row>(cta, operands, r, current + r * Row::record_bytes);
  // What this warp reads later comes into L2, and the factors into shared memory, while GEMM1 still runs.
  for (int later = warp + Row::warps; later < units; later += Row::warps) {
    const int left =
        params.records - later % segments * moe_stream::kSegmentRecords;  // the last segment may be short
    const int records = left < moe_stream::kSegmentRecords ? left : moe_stream::kSegmentRecords;
    if (cta.lane() == 0) cta.prefetch_l2(weights_of(later), records * Row::record_bytes);
  }
  constexpr float decode = moe::kDecodeFactor<typename Row::Path, typename Row::Format>;
  for (int tile = cta.thread(); tile < tile_count; tile += cta.threads())
    cta.store_shared(&storage.factor[tile],
                     moe::dot_factor(cta, params.scale, params.token_scale, tiles.expert(cta, tile), decode));
  cta.wait_predecessors();  // GEMM1's result
  cta.release_successors();

  for (int unit = warp; unit < units; unit += Row::warps) {
    const int tile = unit / segments, segment = unit - tile * segments;
    moe_stream::enter_tile<Row>(cta, operands, params, tiles, tile, tiles.tile(cta, tile));
    const int first_record = segment * moe_stream::kSegmentRecords;
    const int left = params.records - first_record;
    const int parts =
        (left < moe_stream::kSegmentRecords ? left : moe_stream::kSegmentRecords) / Row::unit_records;
    const unsigned char* after = unit + Row::warps < units ? weights_of(unit + Row::warps) : current;
    moe_stream::Sums<Row> sums;
    moe_stream::clear<Row>(sums);
    for (int part = 0; part < parts; ++part) {
      const unsigned char* next = part + 1 < parts ? current + Row::unit_records * Row::record_bytes : after;
      moe_stream::multiply_unit<Row>(cta, operands, current, next, first_record + part * Row::unit_records,
                                     sums);
      current = next;
    }
    keep_sums<Row>(cta, storage, unit, sums);
  }
  cta.sync_block();  // every expert's sums are in shared memory
  for (int i = cta.thread(); i < few.tokens * (record::kRows / 2); i += cta.threads())
    combine_rows<Row>(cta, few, params, storage, segments, strip, i / (record::kRows / 2),
                      2 * (i % (record::kRows / 2)));
}

}  // namespace fourfold::moe_few
