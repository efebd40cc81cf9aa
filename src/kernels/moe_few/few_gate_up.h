// GEMM1 for one to four tokens. The list of (tile of tokens, strip of weights) is dealt out to the blocks in
// turn; a group of a block's warps takes a strip at a time, a segment of K each, and one of them adds the
// segments up in order.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/named_barrier.h"
#include "kernels/device/quotient.h"
#include "kernels/moe/epilogue.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe/paths.h"
#include "kernels/moe_few/few_route.h"
#include "kernels/moe_few/record_ring.h"
#include "kernels/moe_few/token_rows.h"

namespace fourfold::moe_few {

template <int Warps>
using GateUpSums = device::F32x4[2][Warps][2][32];  // [turn][group and segment][tile][lane]

template <class Row>
struct GateUpStorage {
  FewRoute route;
  device::Mbarrier tokens_full;
  OwnBarriers<Row::warps> barriers;
  GateUpSums<Row::warps> partial;
  alignas(128) unsigned char area[Row::area_bytes];  // the rings from the front, the tokens at the end
};

// Which strips, and which segment of their K, are this warp's. Known before the routing is.
struct GateUpShare {
  int segments, group, place, groups;
  bool works;

  FOURFOLD_DEVICE GateUpShare(int warps, int warp, const moe::GemmParams& params) {
    segments = (params.records + kSegmentRecords - 1) / kSegmentRecords;
    int shift = 0;  // warps of a group: a power of two that has a warp for every segment
    while ((1 << shift) < segments) ++shift;
    group = warp >> shift;
    place = warp - (group << shift);
    groups = warps >> shift;
    works = place < segments;
  }
};

// A walk over this warp's strips: every blocks() * groups-th of the list.
struct StripWalk {
  int tile, strip;
  template <class Cta>
  FOURFOLD_DEVICE StripWalk(Cta cta, const GateUpShare& share, int strips) {
    const int first = cta.block() + cta.blocks() * share.group;
    tile = device::quotient<Cta>(first, strips);
    strip = first - tile * strips;
  }
  template <class Cta>
  FOURFOLD_DEVICE void advance(Cta cta, const GateUpShare& share, int strips) {
    strip += cta.blocks() * share.groups;
    while (strip >= strips) {
      strip -= strips;
      ++tile;
    }
  }
};

// The warps of a group leave their segments; one of them, in turn, gets the total. Two sets of places: while
// one warp reads a strip's segments the others may leave those of the next; a warp that leaves the one after
// has met the reader at the barrier in between.
template <class Row, class Cta>
FOURFOLD_DEVICE bool add_segments(Cta cta, GateUpStorage<Row>& storage, const GateUpShare& share, int round,
                                  bool adds, float (&sum)[2][4]) {
  if (share.segments == 1) return true;
  device::F32x4(*segment)[2][32] = storage.partial[round & 1] + share.group * share.segments;
#pragma unroll
  for (int m = 0; m < 2; ++m)
    cta.store_shared(&segment[share.place][m][cta.lane()],
                     device::F32x4{{sum[m][0], sum[m][1], sum[m][2], sum[m][3]}});
  cta.barrier_sync(device::group_barrier(share.group), 32 * share.segments);  // every segment is written
  if (!adds) return false;
  for (int s = 0; s < share.segments; ++s)
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const device::F32x4 part = cta.load_shared(&segment[s][m][cta.lane()]);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[m][i] = s == 0 ? part.v[i] : Cta::add(sum[m][i], part.v[i]);
    }
  return true;
}

// params.tiles, tile_count and slot_token are not read; params.out rows are slots (8 per tile).
template <class Row, class Cta>
FOURFOLD_DEVICE void few_gate_up(Cta cta, const FewParams& few, const moe::GemmParams& params) {
  auto& storage = *Cta::keep(&cta.template shared<GateUpStorage<Row>>());
  const int warp = cta.warp(), stride = row_stride(record::kColumns * params.records);
  const int token_bytes = few.tokens * stride;
  unsigned char* tokens = storage.area + Row::area_bytes - token_bytes;
  WarpRing<typename Row::Format> ring(
      storage.barriers, storage.area,
      ring_depth<typename Row::Format>(Row::area_bytes - token_bytes, Row::warps), warp);
  if (cta.lane() == 0) {
    storage.barriers.init(cta, warp);
    if (warp == 0) cta.init(&storage.tokens_full, 1);
    cta.fence_barrier_init();
  }
  prepare_route(cta, few, storage.route);
  const GateUpShare share(Row::warps, warp, params);
  const int first_record = share.place * kSegmentRecords, left = params.records - first_record;
  const int records = left < kSegmentRecords ? left : kSegmentRecords;
  StripWalk fetch(cta, share, params.strips), walk = fetch;
  cta.sync_block();         // barriers and tables are prepared
  cta.wait_predecessors();  // logits and tokens
  cta.release_successors();
  if (warp == Row::warps - 1 && cta.lane() == 0)  // a warp that does not route
    copy_token_rows(cta, tokens, &storage.tokens_full, few, params);
  const int tile_count = route_few<Row, false>(cta, few, storage.route, warp);
  const auto next_stretch = [&]() -> Stretch {
    if (!share.works || fetch.tile >= tile_count) return {};
    const int expert = cta.load_shared(&storage.route.tile_expert[fetch.tile]);
    const std::int64_t first =
        (static_cast<std::int64_t>(expert) * params.strips + fetch.strip) * params.records + first_record;
    fetch.advance(cta, share, params.strips);
    return {params.weights + first * record::kRecordBytes<typename Row::Format>, records};
  };
  RecordFeed<decltype(ring), decltype(next_stretch)> feed(ring, next_stretch);
  feed.fill(cta);
  cta.wait(&storage.tokens_full, 0u);

  constexpr float decode = moe::kDecodeFactor<typename Row::Path, typename Row::Format>;
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
  int turn = 0, round = 0;  // the warps of a group take turns at adding up
#pragma unroll 1
  for (; share.works && walk.tile < tile_count; walk.advance(cta, share, params.strips), ++round) {
    const int expert = cta.load_shared(&storage.route.tile_expert[walk.tile]);
    const int count = cta.load_shared(&storage.route.tile_count[walk.tile]);
    // Asked for now, looked at after the loop.
    const float scale = params.scale ? cta.load(params.scale + expert) : 1.0f;
    const float scale_up = params.scale_up ? cta.load(params.scale_up + expert) : 1.0f;
    // Places beyond the count repeat the last token; their results are not stored.
    const int token =
        token_of_entry(cta.load_shared(&storage.route.tile_entry[walk.tile][g < count ? g : count - 1]));
    float sum[2][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
    multiply_segment<2, Row::Path::bit_order>(
        cta, ring, feed, records, 0, tokens + token * stride + first_record * 2 * record::kColumns + 16 * t,
        sum);
    const bool adds = turn == share.place;
    turn = turn + 1 == share.segments ? 0 : turn + 1;
    if (!add_segments<Row>(cta, storage, share, round, adds, sum)) continue;
    moe::store_gate_up_plain<Row::Path::bit_order>(
        cta, static_cast<std::uint16_t*>(params.out), params.out_columns,
        moe::TokenGroup{moe::kSlotGroup * walk.tile, count}, walk.strip, sum[0], sum[1],
        Cta::mul(Cta::keep(scale), decode), Cta::mul(Cta::keep(scale_up), decode));
  }
}

}  // namespace fourfold::moe_few
