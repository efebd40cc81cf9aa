// Which strips a warp works on, and in which order. Every role that needs the order uses this one walk.
//
// The work of a launch is the list of (token tile, strip); a block takes a contiguous share of it, so that
// its weights are a contiguous stretch of memory and all blocks read the same number of bytes. Inside a block
// each warp takes whole strips as long as there are enough for all; the last few are shared: their segments
// are dealt out to the warps in turn, as many strips at once as shared memory has room for sums. Who computes
// a segment never changes the result: a dot product is the ordered sum of its segments.
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
  int rounds;     // strips that are this warp's own
  int first;      // position of the block's first shared strip
  int rest;       // strips the warps share
  int segments;   // of a strip
  int per_batch;  // shared strips whose segments have room in shared memory together

  FOURFOLD_DEVICE WarpShare(BlockShare share, int warp, int records) {
    const int strips = share.end - share.begin;
    segments = (records + kSegmentRecords - 1) / kSegmentRecords;
    rounds = strips / Row::warps;
    rest = strips - rounds * Row::warps;
    first = share.end - rest;
    per_batch = kMaxSegments / segments;
    if (Row::splits_strips && segments > 1 && segments <= kMaxSegments) return;
    rounds += warp < rest;
    rest = 0;
  }
  FOURFOLD_DEVICE int strips_of_batch(int begin) const {
    return rest - begin < per_batch ? rest - begin : per_batch;
  }
};

// Which of the segments of shared strips a unit belongs to, in one register: its place among those of its
// batch, and the batch's first strip, counted from the first shared one.
inline constexpr int kPlaceBits = 8;
inline constexpr int kOwn = -1;  // of a unit whose strip is not shared
static_assert(kMaxSegments < 1 << kPlaceBits);
FOURFOLD_DEVICE constexpr int place_of(int shared) { return shared & ((1 << kPlaceBits) - 1); }
FOURFOLD_DEVICE constexpr int batch_of(int shared) { return shared >> kPlaceBits; }

// A stretch of at most unit_records records of one strip.
struct Unit {
  const unsigned char* weights;
  int tile;   // index into the tile list
  int strip;  // of the expert
  int segment;
  int part;    // unit inside the segment
  int shared;  // place and batch, or kOwn
};

template <class Row, class Cta, class TileList>
class UnitWalk {
 public:
  FOURFOLD_DEVICE UnitWalk(Cta cta, const moe::GemmParams& params, const TileList& tiles, BlockShare share,
                           const WarpShare<Row>& warps, int warp)
      : cta_(cta), params_(params), tiles_(tiles), warps_(warps), warp_(warp), rounds_left_(warps.rounds) {
    unit_.weights = params.weights;
    unit_.part = 0;
    unit_.shared = kOwn;
    if (rounds_left_ > 0)
      place_at(share.begin + warp, 0);
    else
      enter_batch(0);
  }
  FOURFOLD_DEVICE bool done() const { return rounds_left_ < 0; }
  FOURFOLD_DEVICE const Unit& unit() const { return unit_; }

  // To the next unit; when there is none the position stays on the last one, so prefetches stay in bounds.
  FOURFOLD_DEVICE void advance() {
    if (++unit_.part < parts(unit_.segment)) {
      unit_.weights += Row::unit_records * Row::record_bytes;
      return;
    }
    if (unit_.shared != kOwn) return advance_shared();
    if (unit_.segment + 1 < warps_.segments) {
      // Only the last segment can be short, so the way to the next one is a whole unit.
      unit_.part = 0;
      ++unit_.segment;
      unit_.weights += Row::unit_records * Row::record_bytes;
      return;
    }
    if (--rounds_left_ == 0) return enter_batch(0);
    unit_.part = 0;
    unit_.segment = 0;
    unit_.strip += Row::warps;
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
  // Records of the unit: fewer than unit_records at the end of a strip, in rows that are ragged.
  FOURFOLD_DEVICE int records(const Unit& unit) const {
    if constexpr (!Row::ragged) return Row::unit_records;
    const int left = params_.records - unit.segment * kSegmentRecords - unit.part * Row::unit_records;
    return left < Row::unit_records ? left : Row::unit_records;
  }

 private:
  FOURFOLD_DEVICE int parts(int segment) const {
    const int left = params_.records - segment * kSegmentRecords;
    if constexpr (Row::unit_records == kSegmentRecords) return 1;
    return (left < kSegmentRecords ? left : kSegmentRecords) / Row::unit_records;
  }
  // The segments of a batch of shared strips, dealt out to the warps in turn.
  FOURFOLD_DEVICE void advance_shared() {
    unit_.shared += Row::warps;
    const int batch = batch_of(unit_.shared);
    if (place_of(unit_.shared) >= warps_.strips_of_batch(batch) * warps_.segments)
      return enter_batch(batch + warps_.per_batch);
    unit_.part = 0;
    unit_.segment += Row::warps;
    while (unit_.segment >= warps_.segments) {
      unit_.segment -= warps_.segments;
      if (++unit_.strip < params_.strips) continue;
      unit_.strip = 0;
      ++unit_.tile;
      enter_tile();
    }
    point();
  }
  FOURFOLD_DEVICE void enter_batch(int batch) {
    const int left = warps_.rest - batch;
    if (left <= 0 || warp_ >= left * warps_.segments) {
      rounds_left_ = -1;
      --unit_.part;
      return;
    }
    unit_.shared = batch << kPlaceBits | warp_;
    unit_.part = 0;
    const int strip = warp_ < warps_.segments ? 0 : device::quotient<Cta>(warp_, warps_.segments);
    place_at(warps_.first + batch + strip, warp_ - strip * warps_.segments);
  }
  FOURFOLD_DEVICE void place_at(int position, int segment) {
    unit_.tile = device::quotient<Cta>(position, params_.strips);
    unit_.strip = position - unit_.tile * params_.strips;
    unit_.segment = segment;
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
  int warp_;
  int rounds_left_;  // of own strips; below 0: there is no unit any more
  const unsigned char* expert_weights_ = nullptr;
  Unit unit_;
};

}  // namespace fourfold::moe_stream
