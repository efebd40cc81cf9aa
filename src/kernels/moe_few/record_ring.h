// Weights of few_gate_up and of the half strips of few_down: each warp has a small ring of its own in shared
// memory, fed by bulk copies of a few records each. What a warp will read is on its way before the first
// record is needed, and issuing it stalls no warp: with loads into registers the warps would wait for the
// memory's queue instead of computing.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/record/decode.h"
#include "kernels/record/record.h"

namespace fourfold::moe_few {

// Records of one copy: the engine that makes them takes its time over each, however small, but a warp can
// begin only when one has landed. Two measured best.
inline constexpr int kCopyRecords = 2;

template <class Format>
inline constexpr int kStageBytes = kCopyRecords* record::kRecordBytes<Format>;

// Copies a warp's ring can hold: one segment of K. Beyond that a warp waits for its products, not for bytes.
inline constexpr int kMaxDepth = kSegmentRecords / kCopyRecords;

// The barriers of a block's rings.
template <int Warps>
struct OwnBarriers {
  device::Mbarrier full[Warps][kMaxDepth];

  // Lane 0 of each warp; a block-wide barrier must follow.
  template <class Cta>
  FOURFOLD_DEVICE void init(Cta cta, int warp) {
#pragma unroll
    for (int place = 0; place < kMaxDepth; ++place) cta.init(&full[warp][place], 1);
  }
};

// How many copies a ring of each warp holds in so many bytes. The fewer tokens lie beside them, the deeper.
template <class Format>
constexpr int ring_depth(int bytes, int warps) {
  const int depth = bytes / (warps * kStageBytes<Format>);
  return depth < kMaxDepth ? depth : kMaxDepth;
}

// A warp's ring, and the place it reads next.
template <class FormatT>
struct WarpRing {
  using Format = FormatT;
  device::Mbarrier* full;
  unsigned char* bytes;
  int depth;
  int stage = 0;
  std::uint32_t phase = 0;

  template <class Barriers>
  FOURFOLD_DEVICE WarpRing(Barriers& barriers, unsigned char* rings, int rings_depth, int warp)
      : full(barriers.full[warp]),
        bytes(rings + warp * rings_depth * kStageBytes<FormatT>),
        depth(rings_depth) {}
  FOURFOLD_DEVICE record::WeightRecord<FormatT>* records(int at) const {
    return reinterpret_cast<record::WeightRecord<FormatT>*>(bytes + at * kStageBytes<FormatT>);
  }
  FOURFOLD_DEVICE void advance() {
    if (++stage == depth) {
      stage = 0;
      phase ^= 1u;
    }
  }
};

// The records a warp reads, in order. `next()` gives the stretch after the current one, with a count of zero
// after the last: nothing may be in flight when the block ends.
template <class Ring, class Next>
class RecordFeed {
 public:
  FOURFOLD_DEVICE RecordFeed(Ring& ring, const Next& next) : ring_(ring), next_(next), stretch_(next_()) {}

  // Whether a place that has been read is filled again: if not, nothing need be in order before it.
  FOURFOLD_DEVICE bool has_more() const { return stretch_.count > 0; }
  // The next records into a free place of the ring; all lanes call it.
  template <class Cta>
  FOURFOLD_DEVICE void push(Cta cta, int place) {
    if (stretch_.count <= 0) return;
    const int records = stretch_.count < kCopyRecords ? stretch_.count : kCopyRecords;
    const int bytes = records * record::kRecordBytes<typename Ring::Format>;
    if (cta.lane() == 0) {
      cta.arrive_expect(&ring_.full[place], bytes);
      cta.bulk_load(ring_.records(place), stretch_.records, bytes, &ring_.full[place]);
    }
    stretch_.records += bytes;
    stretch_.count -= records;
    if (stretch_.count == 0) stretch_ = next_();
  }
  template <class Cta>
  FOURFOLD_DEVICE void fill(Cta cta) {
#pragma unroll 1
    for (int place = 0; place < ring_.depth; ++place) push(cta, place);
  }

 private:
  Ring& ring_;
  Next next_;
  Stretch stretch_;
};

// What a lane reads of Count records and their tokens, all of it before any of it is used.
template <int Tiles, int Count, class Format, record::BitOrder order>
struct LaneRecords {
  device::U32x4 codes[Count][Tiles];
  record::TileScales<Format> scales[Count][Tiles];
  device::U32x4 token[Count][2];

  template <class Cta>
  FOURFOLD_DEVICE LaneRecords(Cta cta, const record::WeightRecord<Format>* from, int first_tile,
                              const unsigned char* tokens) {
    using Word = typename record::TileScales<Format>::Word;
    const int lane = cta.lane();
#pragma unroll
    for (int r = 0; r < Count; ++r) {
#pragma unroll
      for (int m = 0; m < Tiles; ++m) {
        codes[r][m] = cta.load_shared(reinterpret_cast<const device::U32x4*>(
            from[r].payload + record::payload_offset(first_tile + m, lane)));
        scales[r][m].words = cta.load_shared(reinterpret_cast<const Word*>(
            from[r].scales + record::tile_scale_offset<Format>(lane, first_tile + m)));
      }
#pragma unroll
      for (int half = 0; half < 2; ++half)
        token[r][half] = cta.load_shared(
            reinterpret_cast<const device::U32x4*>(tokens + 2 * record::kColumns * r + 64 * half));
    }
  }

  template <class Cta>
  FOURFOLD_DEVICE void multiply(Cta cta, float (&sum)[Tiles][4]) const {
#pragma unroll
    for (int r = 0; r < Count; ++r)
#pragma unroll
      for (int m = 0; m < Tiles; ++m) {
        const std::uint32_t pair_g = record::scale_pair<Cta, order>(scales[r][m], 0, cta.lane());
        const std::uint32_t pair_g8 = record::scale_pair<Cta, order>(scales[r][m], 1, cta.lane());
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          std::uint32_t steps[2][4];
          record::decode_tile_half<Format, Cta, order>(codes[r][m], pair_g, pair_g8, half, steps);
          cta.mma_bf16(sum[m], steps[0], token[r][half].v[0], token[r][half].v[1]);
          cta.mma_bf16(sum[m], steps[1], token[r][half].v[2], token[r][half].v[3]);
        }
      }
  }
};

// sum += tiles * tokens over one segment of K, in the order every decode kernel uses. `tokens` is where this
// lane's token row has its column 8t of the segment, in shared memory.
template <int Tiles, record::BitOrder order, class Cta, class Ring, class Feed>
FOURFOLD_DEVICE void multiply_segment(Cta cta, Ring& ring, Feed& feed, int records, int first_tile,
                                      const unsigned char* tokens, float (&sum)[Tiles][4]) {
  using Format = typename Ring::Format;
  const auto release = [&] {
    if (feed.has_more()) {
      cta.fence_async_proxy();  // the reads come before the copy that writes here next
      cta.sync_warp();          // every lane has read the records: their place is free
      feed.push(cta, ring.stage);
    }
    ring.advance();
  };
#pragma unroll 1
  for (; records >= kCopyRecords; records -= kCopyRecords, tokens += 2 * record::kColumns * kCopyRecords) {
    cta.wait(&ring.full[ring.stage], ring.phase);
    const LaneRecords<Tiles, kCopyRecords, Format, order> lane(cta, ring.records(ring.stage), first_tile,
                                                               tokens);
    release();
    lane.multiply(cta, sum);
  }
  static_assert(kCopyRecords == 2, "an odd record at the end");
  if (records > 0) {
    cta.wait(&ring.full[ring.stage], ring.phase);
    const LaneRecords<Tiles, 1, Format, order> lane(cta, ring.records(ring.stage), first_tile, tokens);
    release();
    lane.multiply(cta, sum);
  }
}

}  // namespace fourfold::moe_few
