// Which weights a warp of dense_many or dense_tall reads, and their way into its part of the block's ring.
//
// A block owns one segment of K (dense_tall: all of it), at most Row::n tokens and a share of the units; its
// warps take units in turn. A unit is a strip of 32 rows or half of one, as in weight_feed.h.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/many_params.h"
#include "kernels/dense/weight_feed.h"

namespace fourfold::dense {

// The grid is [share][segment][part of the tokens]: blocks that read the same weights for other tokens are
// neighbours and find them in L2.
struct ManyShare {
  int segment;
  int first_record;
  int records;      // of the segment
  int first_group;  // of eight tokens
  int groups;
  int share, shares;  // of the units: share, share + shares, ...
  int own;            // how many these are
  int active;         // warps that have work, the first ones
  bool works;

  // block_records: of K that a block takes.
  template <class Row, class Cta>
  FOURFOLD_DEVICE ManyShare(Cta cta, const DenseParams& params, int block_records, Row, int warp) {
    const int all_groups = groups_of(params.token_count), units = Row::units(params);
    const int segments = (params.records + block_records - 1) / block_records;
    const int parts = (all_groups + Row::groups - 1) / Row::groups;
    const int each = (all_groups + parts - 1) / parts;
    const int cell = cta.block() / parts;
    first_group = (cta.block() - cell * parts) * each;
    groups = all_groups - first_group < each ? all_groups - first_group : each;
    share = cell / segments;
    segment = cell - share * segments;
    shares = cta.blocks() / (parts * segments);
    first_record = segment * block_records;
    records = params.records - first_record;
    if (records > block_records) records = block_records;
    own = share < shares && share < units && groups > 0 ? (units - 1 - share) / shares + 1 : 0;
    active = active_warps(own, Row::warps, Row::stages);
    works = warp < active;
  }

  // As many warps as end together: the ring is divided among them, and what a warp without work would have of
  // it lies idle. Where its stages are few, so many warps that they divide evenly.
  static constexpr int active_warps(int own, int warps, int stages) {
    if (own <= warps) return own;
    const int rounds = (own + warps - 1) / warps, even = (own + rounds - 1) / rounds, half = warps / 2;
    if (stages >= 2 * even) return even;
    return rounds * warps == (own + half - 1) / half * half ? warps : half;
  }
};

// A walk along the records of a warp's units, a stage at a time.
template <class Row>
struct RecordWalk {
  const unsigned char* next = nullptr;
  int unit;
  int left = 0;

  FOURFOLD_DEVICE RecordWalk(const DenseParams& params, const ManyShare& share, int warp)
      : unit(share.share + share.shares * warp) {
    if (share.works) locate(params, share);
  }
  FOURFOLD_DEVICE int stage_records() const {
    return Row::stage_records == 1 || left >= Row::stage_records ? Row::stage_records : left;
  }
  FOURFOLD_DEVICE void advance(const DenseParams& params, const ManyShare& share) {
    const int records = stage_records();
    next += records * record::kRecordBytes<typename Row::Format>;
    left -= records;
    if (left > 0) return;
    unit += share.shares * share.active;
    if (unit < Row::units(params)) locate(params, share);
  }

 private:
  FOURFOLD_DEVICE void locate(const DenseParams& params, const ManyShare& share) {
    const std::int64_t record =
        static_cast<std::int64_t>(Row::strip_of(unit)) * params.records + share.first_record;
    next = params.weights + record * record::kRecordBytes<typename Row::Format> +
           Row::tile_of(unit) * Row::Format::tile_bytes;
    left = share.records;
  }
};

// All lanes keep the same account, lane 0 issues the copies. Tokens leave the ring little of the shared
// memory, so weights beyond it are asked into L2: the ring then has the latency of L2 to cover.
template <class Row>
class ManyFeed {
 public:
  FOURFOLD_DEVICE ManyFeed(Ring<Row>& ring, const DenseParams& params, const ManyShare& share, int warp)
      : ring_(ring), params_(params), share_(share), load_(params, share, warp), ahead_(load_) {}

  // Both walks start together, and the second runs `count` stages ahead once the ring is filled.
  template <class Cta>
  FOURFOLD_DEVICE void look_ahead(Cta cta, int count) {
    ahead_ = load_;
    looks_ = count > 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i) prefetch(cta);
  }
  // The next records into a free stage.
  template <class Cta>
  FOURFOLD_DEVICE void push(Cta cta, int stage) {
    if (load_.left == 0) return;
    if (cta.lane() == 0) {
      const int bytes = load_.stage_records() * Row::copy_bytes;
      cta.arrive_expect(&ring_.full[stage], bytes);
      cta.bulk_load(ring_.stage(stage), load_.next, bytes, &ring_.full[stage]);
    }
    load_.advance(params_, share_);
    if (looks_) prefetch(cta);
  }
  FOURFOLD_DEVICE bool done() const { return load_.left == 0; }

 private:
  template <class Cta>
  FOURFOLD_DEVICE void prefetch(Cta cta) {
    if (ahead_.left == 0) return;
    if (cta.lane() == 0) cta.prefetch_l2(ahead_.next, ahead_.stage_records() * Row::copy_bytes);
    ahead_.advance(params_, share_);
  }

  Ring<Row>& ring_;
  const DenseParams& params_;
  const ManyShare& share_;
  RecordWalk<Row> load_, ahead_;
  bool looks_ = false;
};

}  // namespace fourfold::dense
