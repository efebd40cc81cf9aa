// Which weights a warp reads, and their way into its part of the block's ring.
//
// A unit is a strip of 32 rows, or half of one (an m16 tile), times all of K. The warps of a group take a
// segment of K each; units are dealt out to blocks and groups in turn. Where K has more segments than the
// block has warps, a unit takes several waves.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/dense_params.h"
#include "kernels/device/quotient.h"
#include "kernels/device/types.h"

namespace fourfold::dense {

struct WarpShare {
  int segments;     // of K
  int group_warps;  // warps that share a unit
  int waves;        // turns in which they take its segments
  int place;        // of this warp in its group
  int group;
  int active;      // warps of this block that have work, the first ones: 0 in a block without a unit
  int first_unit;  // of this warp's group
  int unit_step;
  bool works;

  template <class Cta>
  FOURFOLD_DEVICE WarpShare(Cta cta, int warps, int warp, int units, int records) {
    segments = (records + kSegmentRecords - 1) / kSegmentRecords;
    group_warps = segments < warps ? segments : warps;
    waves = (segments + warps - 1) / warps;
    const int groups = device::quotient<Cta>(warps, group_warps);
    group = device::quotient<Cta>(warp, group_warps);
    place = warp - group * group_warps;
    first_unit = cta.block() + cta.blocks() * group;
    unit_step = cta.blocks() * groups;
    active = 0;
    for (int unit = cta.block(), g = 0; g < groups && unit < units; ++g, unit += cta.blocks())
      active += group_warps;
    works = warp < active;
  }
};

// The block's ring. Its stages are divided among the warps that have work: a block with little to do still
// has all its bytes in flight. Rows that norm keep their tokens behind the last stage.
template <class Row>
struct Ring {
  alignas(128) unsigned char bytes[Row::ring_bytes];
  device::Mbarrier full[Row::ring_bytes / Row::stage_bytes];
  FOURFOLD_DEVICE unsigned char* stage(int index) { return bytes + index * Row::stage_bytes; }
};

// A place in a warp's part of the ring; advance() is the only place where a phase flips.
struct RingCursor {
  int stage, first, end;
  std::uint32_t phase = 0;
  FOURFOLD_DEVICE RingCursor(int first_stage, int depth)
      : stage(first_stage), first(first_stage), end(first_stage + depth) {}
  FOURFOLD_DEVICE void advance() {
    if (++stage == end) {
      stage = first;
      phase ^= 1u;
    }
  }
};

// The records of a warp's units in the order it multiplies them; all lanes keep the same account, lane 0
// issues the copies. push() stands eight times in the kernel, so what happens once a segment is kept short.
template <class Row>
class WeightFeed {
 public:
  FOURFOLD_DEVICE WeightFeed(Ring<Row>& ring, const DenseParams& params, const WarpShare& share)
      : ring_(ring), params_(params), share_(share), unit_(share.first_unit) {
    if (share.works) locate();
  }

  // Whether a stage that has been read is filled again: if not, nothing need be in order before it.
  FOURFOLD_DEVICE bool has_more() const { return left_ > 0; }
  // The next records into a free stage.
  template <class Cta>
  FOURFOLD_DEVICE void push(Cta cta, int stage) {
    if (left_ == 0) return;
    const int records =
        Row::stage_records == 1 ? 1 : (left_ < Row::stage_records ? left_ : Row::stage_records);
    const int bytes = records * Row::copy_bytes;
    if (cta.lane() == 0) {
      cta.arrive_expect(&ring_.full[stage], bytes);
      cta.bulk_load(ring_.stage(stage), next_, bytes, &ring_.full[stage]);
    }
    next_ += records * record::kRecordBytes<typename Row::Format>;
    left_ -= records;
    if (left_ == 0) advance();
  }

 private:
  // The stretch of (unit, wave): one segment of one unit.
  FOURFOLD_DEVICE void locate() {
    const int segment = wave_ * Row::warps + share_.place, first = segment * kSegmentRecords;
    const int strip = Row::tiles == 2 ? unit_ : unit_ >> 1;
    const std::int64_t record = static_cast<std::int64_t>(strip) * params_.records + first;
    next_ = params_.weights + record * record::kRecordBytes<typename Row::Format>;
    if constexpr (Row::tiles == 1) next_ += (unit_ & 1) * Row::Format::tile_bytes;
    left_ = params_.records - first < kSegmentRecords ? params_.records - first : kSegmentRecords;
  }
  FOURFOLD_DEVICE void advance() {
    ++wave_;
    if (wave_ * Row::warps + share_.place >= share_.segments) {
      wave_ = 0;
      unit_ += share_.unit_step;
    }
    if (unit_ < Row::units(params_)) locate();
  }

  Ring<Row>& ring_;
  const DenseParams& params_;
  const WarpShare& share_;
  int unit_, wave_ = 0, left_ = 0;
  const unsigned char* next_ = nullptr;
};

// The warp's stages are prepared and filled as far as they reach.
template <class Row, class Feed, class Cta>
FOURFOLD_DEVICE void fill_ring(Cta cta, Ring<Row>& ring, Feed& feed, const RingCursor& cursor) {
#pragma unroll 1
  for (int stage = cursor.first + cta.lane(); stage < cursor.end; stage += 32) cta.init(&ring.full[stage], 1);
  cta.fence_barrier_init();
  cta.sync_warp();  // the barriers are this warp's alone
#pragma unroll 1
  for (int stage = cursor.first; stage < cursor.end; ++stage) feed.push(cta, stage);
}

}  // namespace fourfold::dense
