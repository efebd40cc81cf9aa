// Rings of weights that one warp of the block fills for all the others: lane w has warp w's ring. A warp that
// multiplies only waits, reads and gives back. Four records a copy, two copies a ring: decoding FP4 keeps the
// integer units busy as long as memory takes to bring it, so every instruction beside it shows
// (docs/decisions/0033).
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/record/lane_tile.h"
#include "kernels/record/record.h"

namespace fourfold::moe_few {

inline constexpr int kFedRecords = 4;  // of one copy
inline constexpr int kFedStages = 2;
template <class Format>
inline constexpr int kFedRingBytes = kFedStages* kFedRecords* record::kRecordBytes<Format>;

template <int Warps>
struct FedBarriers {
  device::Mbarrier full[Warps][kFedStages];
  device::Mbarrier empty[Warps][kFedStages];

  // Lane 0 of each warp that multiplies; a block-wide barrier must follow.
  template <class Cta>
  FOURFOLD_DEVICE void init(Cta cta, int warp) {
#pragma unroll
    for (int stage = 0; stage < kFedStages; ++stage) {
      cta.init(&full[warp][stage], 1);
      cta.init(&empty[warp][stage], Cta::kWarpArrivals);
    }
  }
};

// One ring, as the warp that reads it or the lane that fills it goes along it.
template <class FormatT>
struct FedRing {
  using Format = FormatT;
  device::Mbarrier *full, *empty;
  unsigned char* bytes;
  int stage = 0;
  std::uint32_t phase = 0;

  template <class Barriers>
  FOURFOLD_DEVICE FedRing(Barriers& barriers, unsigned char* rings, int warp)
      : full(barriers.full[warp]),
        empty(barriers.empty[warp]),
        bytes(rings + warp * kFedRingBytes<FormatT>) {}
  FOURFOLD_DEVICE unsigned char* records() const {
    return bytes + stage * kFedRecords * record::kRecordBytes<Format>;
  }
  FOURFOLD_DEVICE void advance() {
    if (++stage == kFedStages) {
      stage = 0;
      phase ^= 1u;
    }
  }
};

// What a lane of the feeding warp knows of its ring.
template <class RingT>
struct FedFeeder {
  using Ring = RingT;
  Ring ring;
  int fresh = kFedStages;  // places that nobody has read yet
};

// All lanes of the feeding warp: the stretches that a lane's `next()` gives, one after another, until one is
// empty. The lanes go together, a copy each: one after another, they would take longer to find their records
// than the warps take to multiply them (H200, gpt-oss's experts: 27.4 us against 25.7). So a lane may wait
// here for another's warp: what one call feeds, warps must be able to read without meeting in between.
// `full_once()` is called when the rings are full for the first time: to wait for the predecessor then,
// rather than for warps that wait for it themselves, leaves the SM to the predecessor's blocks.
template <class Feeder, class Next, class Full, class Cta>
FOURFOLD_DEVICE void feed_rings(Cta cta, Feeder& feeder, const Next& next, const Full& full_once) {
  constexpr int record_bytes = record::kRecordBytes<typename Feeder::Ring::Format>;
  auto& ring = feeder.ring;
  Stretch stretch = next();
#pragma unroll 1
  for (int turn = 0; cta.ballot(stretch.count > 0) != 0u; ++turn) {
    if (turn == kFedStages) full_once();
    // The warp has read what lies there.
    if (stretch.count > 0 && feeder.fresh == 0) cta.wait(&ring.empty[ring.stage], ring.phase ^ 1u);
    cta.sync_warp();  // the lanes go together
    if (stretch.count <= 0) continue;
    feeder.fresh -= feeder.fresh > 0;
    const int bytes = (stretch.count < kFedRecords ? stretch.count : kFedRecords) * record_bytes;
    cta.arrive_expect(&ring.full[ring.stage], bytes);
    cta.bulk_load(ring.records(), stretch.records, bytes, &ring.full[ring.stage]);
    ring.advance();
    stretch.count -= kFedRecords;
    stretch.records += kFedRecords * record_bytes;
    if (stretch.count <= 0) stretch = next();
  }
}

// What a lane reads of Count records and their tokens, all of it before any of it is used. As LaneRecords of
// record_ring.h, with one load for the scales of both tiles: each is as its kernels were timed.
template <int Tiles, int Count, class Format, record::BitOrder order>
struct FedRecords {
  record::LaneTiles<Format, Tiles, order> weights[Count];
  device::U32x4 token[Count][2];

  template <class Cta>
  FOURFOLD_DEVICE FedRecords(Cta cta, const unsigned char* records, int first_tile,
                             const unsigned char* tokens) {
#pragma unroll
    for (int r = 0; r < Count; ++r) {
      weights[r].load(
          cta.lane(), [&](const auto* from) { return cta.load_shared(from); },
          records + r * record::kRecordBytes<Format>, first_tile);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        token[r][half] = cta.load_shared(
            reinterpret_cast<const device::U32x4*>(tokens + 2 * record::kColumns * r + 64 * half));
    }
  }
  template <class Cta>
  FOURFOLD_DEVICE void multiply(Cta cta, int first_tile, float (&sum)[Tiles][4]) const {
#pragma unroll
    for (int r = 0; r < Count; ++r)
#pragma unroll
      for (int m = 0; m < Tiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          std::uint32_t steps[2][4];
          weights[r].template decode<Cta>(cta.lane(), m, first_tile, half, steps);
          cta.mma_bf16(sum[m], steps[0], token[r][half].v[0], token[r][half].v[1]);
          cta.mma_bf16(sum[m], steps[1], token[r][half].v[2], token[r][half].v[3]);
        }
  }
};

// sum += tiles * tokens over one segment of K, in the order every decode kernel uses. `tokens` is where this
// lane's token row has its column 8t of the segment, in shared memory.
template <int Tiles, record::BitOrder order, class Cta, class Ring>
FOURFOLD_DEVICE void multiply_fed(Cta cta, Ring& ring, int records, int first_tile,
                                  const unsigned char* tokens, float (&sum)[Tiles][4]) {
  using Format = typename Ring::Format;
  const auto give_back = [&] {
    cta.sync_warp();  // every lane has read
    if (cta.lane() < Cta::kWarpArrivals) cta.arrive(&ring.empty[ring.stage]);
    ring.advance();
  };
#pragma unroll 1
  for (; records >= kFedRecords; records -= kFedRecords, tokens += 2 * record::kColumns * kFedRecords) {
    cta.wait(&ring.full[ring.stage], ring.phase);
    const FedRecords<Tiles, kFedRecords, Format, order> lane(cta, ring.records(), first_tile, tokens);
    give_back();
    lane.multiply(cta, first_tile, sum);
  }
  if (records <= 0) return;
  cta.wait(&ring.full[ring.stage], ring.phase);
  const unsigned char* from = ring.records();
#pragma unroll 1
  for (int r = 0; r < records; ++r) {
    const FedRecords<Tiles, 1, Format, order> lane(cta, from + r * record::kRecordBytes<Format>, first_tile,
                                                   tokens + 2 * record::kColumns * r);
    lane.multiply(cta, first_tile, sum);
  }
  give_back();
}

}  // namespace fourfold::moe_few
