// Which strips a warp works on, and in which order. Every role that needs the order uses this one walk.
//
// The work of a launch is the list of (token tile, strip); a block takes a contiguous share of it, so that
// its weights are a contiguous stretch of memory and all blocks read the same number of bytes. Inside a block
// each warp takes whole strips as long as there are enough for all; the last few strips are shared, a segment
// of K per warp. Who computes a segment never changes the result: a dot product is the ordered sum of its
// segments.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/quotient.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_stream/stream_row.h"

namespace fourfold::moe_stream {

struct BlockShare {
  int begin;
  int end;
};

// Strips [begin, end) of the launch's tile_count * strips that belong to this block: the same number for
// every block but the last ones, which may have none and make room for the next kernel's blocks. Where that
// would leave more than a sixteenth of the places empty, shares differ by one strip instead (H200, 35b, in
// one run: 16 tokens 61.0 us against 61.7; at 64 tokens, where a twentieth is empty, 115.5 against 114.2).
template <class Cta>
FOURFOLD_DEVICE BlockShare block_share(Cta cta, int tile_count, int strips) {
  const int total = tile_count * strips, block = cta.block();
  int each =
      static_cast<int>(static_cast<unsigned>(total + cta.blocks() - 1) / static_cast<unsigned>(cta.blocks()));
  if (16 * (each * cta.blocks() - total) <= total) {
    const int begin = block * each;
    if (begin >= total) return {total, total};
    return {begin, begin + each < total ? begin + each : total};
  }
  const int with_one_more = total - --each * cta.blocks();
  const int begin = block * each + (block < with_one_more ? block : with_one_more);
  return {begin, begin + each + (block < with_one_more)};
}

// How a block divides its share among its warps.
template <class Row>
struct WarpShare {
  int whole_rounds;  // rounds in which every warp has a strip of its own
  int shift;         // 2^shift warps share a strip afterwards
  int group;         // this warp's group of them, and its place in it
  int place;
  int shared_rounds;  // strips this warp's group shares
  int segments;       // of a strip

  FOURFOLD_DEVICE WarpShare(BlockShare share, int warp, int records) {
    const int strips = share.end - share.begin;
    segments = (records + kSegmentRecords - 1) / kSegmentRecords;
    whole_rounds = strips / Row::warps;
    shift = Row::splits_strips && segments <= kMaxSegments ? sharing_shift(Row::warps, segments) : 0;
    group = warp >> shift;
    place = warp & (sharing() - 1);
    const int rest = strips - whole_rounds * Row::warps;
    shared_rounds = rest > group ? (rest - group + groups() - 1) >> (Row::warps_shift - shift) : 0;
  }
  FOURFOLD_DEVICE int sharing() const { return 1 << shift; }
  FOURFOLD_DEVICE int groups() const { return Row::warps >> shift; }
};

// A stretch of at most unit_records records of one strip.
struct Unit {
  const unsigned char* weights;
  int tile;   // index into the tile list
  int strip;  // of the expert
  int segment;
  int part;     // unit inside the segment
  bool shared;  // the strip is shared with the warps of the group
};

template <class Row, class Cta, class TileList>
class UnitWalk {
 public:
  FOURFOLD_DEVICE UnitWalk(Cta cta, const moe::GemmParams& params, const TileList& tiles, BlockShare share,
                           const WarpShare<Row>& warps, int warp)
      : cta_(cta), params_(params), tiles_(tiles), warps_(warps), share_(share) {
    rounds_left_ = warps.whole_rounds;
    const bool shared = rounds_left_ == 0;
    if (shared) rounds_left_ = warps.shared_rounds;
    place_at(share.begin + (shared ? warps.group : warp), shared);
  }
  FOURFOLD_DEVICE bool done() const { return rounds_left_ == 0; }
  FOURFOLD_DEVICE const Unit& unit() const { return unit_; }

  // To the next unit; when there is none the position stays on the last one, so prefetches stay in bounds.
  FOURFOLD_DEVICE void advance() {
    if (++unit_.part < parts(unit_.segment)) {
      unit_.weights += Row::unit_records * Row::record_bytes;
      return;
    }
    const int step = unit_.shared ? warps_.sharing() : 1;
    if (unit_.segment + step < warps_.segments) {
      // Only the last segment can be short, so the way to the next one is whole segments.
      unit_.part = 0;
      unit_.segment += step;
      unit_.weights += ((step - 1) * kSegmentRecords + Row::unit_records) * Row::record_bytes;
      return;
    }
    if (--rounds_left_ == 0) {
      if (unit_.shared || warps_.shared_rounds == 0) {
        --unit_.part;
        return;
      }
      rounds_left_ = warps_.shared_rounds;
      place_at(share_.begin + warps_.whole_rounds * Row::warps + warps_.group, true);
      return;
    }
    unit_.part = 0;
    unit_.segment = unit_.shared ? warps_.place : 0;
    unit_.strip += unit_.shared ? warps_.groups() : Row::warps;
    if (unit_.strip >= params_.strips) {
      do {
        unit_.strip -= params_.strips;
        ++unit_.tile;
      } while (unit_.strip >= params_.strips);
      enter_tile();
    }
    point();
  }

  FOURFOLD_DEVICE bool last_part(const Unit& unit) const { return unit.part + 1 == parts(unit.segment); }

 private:
  FOURFOLD_DEVICE int parts(int segment) const {
    const int left = params_.records - segment * kSegmentRecords;
    return (left < kSegmentRecords ? left : kSegmentRecords) / Row::unit_records;
  }
  FOURFOLD_DEVICE void place_at(int position, bool shared) {
    unit_.tile = device::quotient<Cta>(position, params_.strips);
    unit_.strip = position - unit_.tile * params_.strips;
    unit_.shared = shared;
    unit_.segment = shared ? warps_.place : 0;
    unit_.part = 0;
    if (rounds_left_ == 0) {
      unit_.weights = params_.weights;
      return;
    }
    enter_tile();
    point();
  }
  FOURFOLD_DEVICE void enter_tile() {
    const std::int64_t strip = static_cast<std::int64_t>(tiles_.expert(cta_, unit_.tile)) * params_.strips;
    expert_weights_ = params_.weights + strip * params_.records * Row::record_bytes;
  }
  FOURFOLD_DEVICE void point() {
    const std::int64_t first =
        static_cast<std::int64_t>(unit_.strip) * params_.records + unit_.segment * kSegmentRecords;
    unit_.weights = expert_weights_ + first * Row::record_bytes;
  }

  Cta cta_;
  const moe::GemmParams& params_;
  const TileList& tiles_;
  const WarpShare<Row>& warps_;
  BlockShare share_;
  int rounds_left_;
  const unsigned char* expert_weights_ = nullptr;
  Unit unit_;
};

}  // namespace fourfold::moe_stream
