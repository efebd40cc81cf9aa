// GEMM1 for one to four tokens of models whose K is long. Every block routes as in few_gate_up, then takes a
// contiguous share of the list of (tile of tokens, strip of weights). The segments of its strips are dealt
// out to the warps in turn, so that no warp is idle whatever their number; when all are there, a warp a strip
// adds them up in order.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/named_barrier.h"
#include "kernels/device/quotient.h"
#include "kernels/moe/epilogue.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe/paths.h"
#include "kernels/moe_few/fed_ring.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/moe_few/few_route.h"
#include "kernels/moe_few/token_rows.h"

namespace fourfold::moe_few {

template <class Row>
struct StreamStorage {
  FewRoute route;
  device::Mbarrier tokens_full;
  FedBarriers<Row::warps> barriers;
  alignas(
      16) float sum[kStreamSums][record::kRows];  // [strip of the batch, segment, token of the tile][slot]
  alignas(128) unsigned char rings[Row::warps * kFedRingBytes<typename Row::Format>];
  alignas(128) unsigned char tokens[kStreamTokenBytes];
};

// A block's strips. A batch is at most a strip a warp, and as many as have room for their sums.
struct StreamShare {
  int begin, end;  // positions in the list
  int segments;
  int per_batch;  // at most a strip a warp

  template <class Cta>
  FOURFOLD_DEVICE StreamShare(Cta cta, int warps, int tile_count, const FewParams& few,
                              const moe::GemmParams& params) {
    const int total = tile_count * params.strips;
    begin = device::quotient<Cta>(cta.block() * total, cta.blocks());
    end = device::quotient<Cta>((cta.block() + 1) * total, cta.blocks());
    segments = (params.records + kSegmentRecords - 1) / kSegmentRecords;
    per_batch = device::quotient<Cta>(kStreamSums, segments * few.tokens);
    if (per_batch > warps) per_batch = warps;
  }
  FOURFOLD_DEVICE int strips(int batch) const { return end - batch < per_batch ? end - batch : per_batch; }
};

// The segments of a batch that are a warp's: every `warps`-th.
struct SegmentWalk {
  int strip, segment;  // strip: of the batch

  template <class Cta>
  FOURFOLD_DEVICE SegmentWalk(Cta, int warp, int segments) {
    strip = device::quotient<Cta>(warp, segments);
    segment = warp - strip * segments;
  }
  FOURFOLD_DEVICE void advance(int warps, int segments) {
    segment += warps;
    while (segment >= segments) {
      segment -= segments;
      ++strip;
    }
  }
};

FOURFOLD_DEVICE int records_of_segment(const moe::GemmParams& params, int segment) {
  const int left = params.records - segment * kSegmentRecords;
  return left < kSegmentRecords ? left : kSegmentRecords;
}

// A strip's place in the list, and what its epilogue wants to know: asked for before the products are there.
template <class Row>
struct StripEnd {
  int tile, strip, count;
  float factor, factor_up;
  [[maybe_unused]] device::F32x2 bias[2];

  template <class Cta>
  FOURFOLD_DEVICE StripEnd(Cta cta, const FewRoute& route, const moe::GemmParams& params, int position) {
    constexpr float decode = moe::kDecodeFactor<typename Row::Path, typename Row::Format>;
    tile = device::quotient<Cta>(position, params.strips);
    strip = position - tile * params.strips;
    const int expert = cta.load_shared(&route.tile_expert[tile]);
    count = cta.load_shared(&route.tile_count[tile]);
    factor = moe::dot_factor(cta, params.scale, nullptr, expert, decode);
    factor_up = moe::dot_factor(cta, params.scale_up, nullptr, expert, decode);
    if constexpr (Row::Glu::adds_bias)
#pragma unroll
      for (int m = 0; m < 2; ++m) bias[m] = moe::row_biases(cta, params, expert, strip, m);
  }
};

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_one(Cta cta, const FewParams& few, const moe::GemmParams& params,
                                  StreamStorage<Row>& storage, FedRing<typename Row::Format>& ring,
                                  const StreamShare& share, int batch, const SegmentWalk& walk) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
  const int tile = device::quotient<Cta>(batch + walk.strip, params.strips);
  const int count = cta.load_shared(&storage.route.tile_count[tile]);
  // Places beyond the count repeat the last token; their results are not kept.
  const int token =
      token_of_entry(cta.load_shared(&storage.route.tile_entry[tile][g < count ? g : count - 1]));
  float sum[2][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
  multiply_fed<2, Row::Path::bit_order>(cta, ring, records_of_segment(params, walk.segment), 0,
                                        storage.tokens +
                                            token * row_stride(record::kColumns * params.records) +
                                            walk.segment * kSegmentRecords * 2 * record::kColumns + 16 * t,
                                        sum);
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    const int place = 2 * t + b;
    if (place >= count) continue;
    float* to = storage.sum[(walk.strip * share.segments + walk.segment) * few.tokens + place] + g;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      cta.store_shared(to + 16 * m, sum[m][b]);
      cta.store_shared(to + 16 * m + 8, sum[m][2 + b]);
    }
  }
}

// The segments of a strip in order, SwiGLU, store.
template <class Row, class Cta>
FOURFOLD_DEVICE void finish_one(Cta cta, const FewParams& few, const moe::GemmParams& params,
                                const StreamStorage<Row>& storage, const StreamShare& share, int strip,
                                const StripEnd<Row>& end) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
  float total[2][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    const int place = 2 * t + b;
    if (place >= end.count) continue;
#pragma unroll 1
    for (int s = 0; s < share.segments; ++s) {
      const float* from = storage.sum[(strip * share.segments + s) * few.tokens + place] + g;
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float part = cta.load_shared(from + 16 * m + 8 * half);
          float& of = total[m][2 * half + b];
          of = s == 0 ? part : Cta::add(of, part);
        }
    }
  }
  float factor = end.factor, factor_up = end.factor_up;
  if constexpr (Row::Glu::adds_bias) {
#pragma unroll
    for (int m = 0; m < 2; ++m) moe::bias_rows<Cta>(total[m], factor, factor_up, end.bias[m]);
    factor = factor_up = 1.0f;
  }
  moe::store_gate_up_plain<Row::Path::bit_order>(
      cta, static_cast<std::uint16_t*>(params.out), params.out_columns,
      moe::TokenGroup{moe::kSlotGroup * end.tile, end.count}, end.strip, total[0], total[1], factor,
      factor_up, typename Row::Glu(params));
}

// What the warp beside those that multiply does: lane w fills warp w's ring, a batch after another, for the
// warps meet at the end of each.
template <class Row, class Cta>
FOURFOLD_DEVICE void feed_stream(Cta cta, const moe::GemmParams& params, StreamStorage<Row>& storage,
                                 const StreamShare& share) {
  const bool feeds = cta.lane() < Row::warps;
  const int warp = feeds ? cta.lane() : 0;
  using Ring = FedRing<typename Row::Format>;
  FedFeeder<Ring> feeder{Ring(storage.barriers, storage.rings, warp)};
#pragma unroll 1
  for (int batch = share.begin; batch < share.end; batch += share.per_batch) {
    const int strips = feeds ? share.strips(batch) : 0;
    SegmentWalk walk(cta, warp, share.segments);
    const auto next = [&]() -> Stretch {
      if (walk.strip >= strips) return {};
      const int position = batch + walk.strip, tile = device::quotient<Cta>(position, params.strips);
      const int expert = cta.load_shared(&storage.route.tile_expert[tile]);
      const std::int64_t first =
          (static_cast<std::int64_t>(expert) * params.strips + (position - tile * params.strips)) *
              params.records +
          walk.segment * kSegmentRecords;
      const int records = records_of_segment(params, walk.segment);
      walk.advance(Row::warps, share.segments);
      return {params.weights + first * record::kRecordBytes<typename Row::Format>, records};
    };
    feed_rings(cta, feeder, next, [] {});
  }
}

// params.tiles, tile_count and slot_token are not read; params.out rows are slots (8 per tile).
template <class Row, class Cta>
FOURFOLD_DEVICE void few_stream(Cta cta, const FewParams& few, const moe::GemmParams& params) {
  auto& storage = *Cta::keep(&cta.template shared<StreamStorage<Row>>());
  const int warp = cta.warp();
  if (cta.lane() == 0 && warp < Row::warps) {
    storage.barriers.init(cta, warp);
    if (warp == 0) cta.init(&storage.tokens_full, 1);
    cta.fence_barrier_init();
  }
  prepare_route(cta, few, storage.route);
  cta.sync_block();         // barriers and tables are prepared
  cta.wait_predecessors();  // logits and tokens
  cta.release_successors();
  if (warp == Row::warps - 1 && cta.lane() == 0)  // a warp that does not route
    copy_token_rows(cta, storage.tokens, &storage.tokens_full, few, params);
  const int tile_count = route_few<Row, false>(cta, few, storage.route, warp);
  const StreamShare share(cta, Row::warps, tile_count, few, params);
  if (warp == Row::warps) return feed_stream<Row>(cta, params, storage, share);

  FedRing<typename Row::Format> ring(storage.barriers, storage.rings, warp);
  const device::NamedBarrier meeting = device::group_barrier(0);
  cta.wait(&storage.tokens_full, 0u);
#pragma unroll 1
  for (int batch = share.begin; batch < share.end; batch += share.per_batch) {
    const int strips = share.strips(batch);
    const StripEnd<Row> end(cta, storage.route, params, batch + (warp < strips ? warp : 0));
#pragma unroll 1
    for (SegmentWalk walk(cta, warp, share.segments); walk.strip < strips;
         walk.advance(Row::warps, share.segments))
      multiply_one<Row>(cta, few, params, storage, ring, share, batch, walk);
    cta.barrier_sync(meeting, 32 * Row::warps);  // every segment of the batch is written
    if (warp < strips) finish_one<Row>(cta, few, params, storage, share, warp, end);
    if (batch + share.per_batch < share.end)
      cta.barrier_sync(meeting, 32 * Row::warps);  // the sums are read; the next batch may overwrite them
  }
}

}  // namespace fourfold::moe_few
