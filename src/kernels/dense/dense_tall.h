// The dense matrix of decode for 9 to 128 tokens and very many rows (the head): every block has strips enough
// for its warps, so all of K stays with a warp and nothing is written but results. The tokens pass through
// shared memory in panels of 64 columns, once for every eight strips.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/dense_tokens.h"
#include "kernels/dense/many_feed.h"
#include "kernels/dense/many_multiply.h"
#include "kernels/dense/many_params.h"
#include "kernels/dense/many_sums.h"
#include "kernels/device/types.h"

namespace fourfold::dense {

inline constexpr int kPanels = 4;       // of the tokens' ring
inline constexpr int kPanelsAhead = 2;  // on their way; a warp may be one panel ahead of the slowest

template <class Row>
struct TallStorage {
  Ring<Row> ring;
  alignas(128) typename Row::Panels panel;
  device::Mbarrier full[kPanels], empty[kPanels];
};

// The panels in the order all warps read them: the records of K, once a round.
template <class Row>
class PanelFeed {
 public:
  template <class Cta>
  FOURFOLD_DEVICE PanelFeed(Cta cta, const DenseParams& params, const ManyShare& share,
                            TallStorage<Row>& storage, int rounds)
      : storage_(storage), records_(params.records), left_(rounds * params.records) {
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int token = token_of_place(kTokens * share.first_group + row(cta, i), params.token_count);
      from_[i] = static_cast<const std::uint16_t*>(params.tokens) +
                 static_cast<std::int64_t>(token) * params.token_stride + 8 * (cta.thread() & 7);
    }
  }
  // The next panel, once every warp has read what lies in its place. All threads.
  template <class Cta>
  FOURFOLD_DEVICE void push(Cta cta) {
    if (left_ == 0) return;
    if (reused_) cta.wait(&storage_.empty[at_.stage], at_.phase ^ 1u);
#pragma unroll
    for (int i = 0; i < kTurns; ++i)
      if (8 * Row::n % Row::threads == 0 || row(cta, i) < Row::n)
        cta.copy_16_async(storage_.panel[at_.stage] + token_offset<Row>(row(cta, i), 0, cta.thread() & 7),
                          from_[i] + record_ * record::kColumns);
    cta.copy_arrive(&storage_.full[at_.stage]);
    at_.advance();
    reused_ = reused_ || at_.stage == 0;
    record_ = record_ + 1 == records_ ? 0 : record_ + 1;
    --left_;
  }

 private:
  static constexpr int kTurns = (8 * Row::n + Row::threads - 1) / Row::threads;
  template <class Cta>
  static FOURFOLD_DEVICE int row(Cta cta, int turn) {
    return (cta.thread() + turn * Row::threads) >> 3;
  }

  TallStorage<Row>& storage_;
  const std::uint16_t* from_[kTurns];
  device::PipelineCursor<kPanels> at_;
  bool reused_ = false;
  int record_ = 0, records_, left_;
};

// sum = a segment of the warp's strip times all tokens. A warp without a strip only keeps step.
template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_panels(Cta cta, TallStorage<Row>& storage, PanelFeed<Row>& panels,
                                     device::PipelineCursor<kPanels>& panel, ManyFeed<Row>& feed,
                                     RingCursor& cursor, int records, bool works, ManySums<Row>& sum) {
  const auto read = [&](const auto* from) { return cta.load_shared(from); };
#pragma unroll 1
  for (int r = 0; r < records; ++r) {
    panels.push(cta);
    ManyWeights<Row> weights;
    if (works) {
      cta.wait(&storage.ring.full[cursor.stage], cursor.phase);
      weights.load(cta.lane(), read, storage.ring.stage(cursor.stage), 0);
      cta.fence_async_proxy();  // the reads come before the copy that writes here next
      cta.sync_warp();          // every lane has read the record: its stage is free
      feed.push(cta, cursor.stage);
      cursor.advance();
    }
    cta.wait(&storage.full[panel.stage], panel.phase);
    if (works) multiply_many<Row>(cta, weights, storage.panel[panel.stage], sum);
    cta.sync_warp();  // and the panel
    if (cta.lane() < Cta::kWarpArrivals) cta.arrive(&storage.empty[panel.stage]);
    panel.advance();
  }
}

// The strip's rows of all tokens, a group of eight after the other: the sums move up, so that the code stands
// here once.
template <class Row, class Cta>
FOURFOLD_DEVICE void finish_strip(Cta cta, const DenseParams& params, const ManyShare& share, int strip,
                                  ManySums<Row>& total) {
#pragma unroll 1
  for (int group = 0; group < share.groups; ++group) {
    const DenseParams part = params_of_group(params, share.first_group + group);
#pragma unroll
    for (int m = 0; m < Row::tiles; ++m)
      finish_tile<typename Row::Format, false>(cta, part, strip, m, total[m][0],
                                               load_tile_inputs(cta, part, strip, m));
#pragma unroll
    for (int m = 0; m < Row::tiles; ++m)
#pragma unroll
      for (int n = 0; n + 1 < Row::groups; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j) total[m][n][j] = total[m][n + 1][j];
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_rounds(Cta cta, const DenseParams& params, TallStorage<Row>& storage,
                                     const ManyShare& share, int warp, int rounds, ManyFeed<Row>& feed,
                                     RingCursor& cursor) {
  PanelFeed<Row> panels(cta, params, share, storage, rounds);
  for (int i = 0; i < kPanelsAhead; ++i) panels.push(cta);
  device::PipelineCursor<kPanels> panel;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const int i = round * share.active + warp;
    const bool works = share.works && i < share.own;
    ManySums<Row> total;
#pragma unroll 1
    for (int first = 0; first < params.records; first += kSegmentRecords) {
      const int left = params.records - first;
      ManySums<Row> sum;
      clear<Row>(sum);
      multiply_panels<Row>(cta, storage, panels, panel, feed, cursor,
                           left < kSegmentRecords ? left : kSegmentRecords, works, sum);
#pragma unroll
      for (int m = 0; m < Row::tiles; ++m)
#pragma unroll
        for (int n = 0; n < Row::groups; ++n)
#pragma unroll
          for (int j = 0; j < 4; ++j)
            total[m][n][j] = first == 0 ? sum[m][n][j] : Cta::add(total[m][n][j], sum[m][n][j]);
    }
    if (works) finish_strip<Row>(cta, params, share, share.share + share.shares * i, total);
  }
}

// blocks: a multiple of the parts of the tokens (choose_many.h). ManyParams::partial is not used.
template <class Row, class Cta>
FOURFOLD_DEVICE void dense_tall(Cta cta, const ManyParams& params) {
  auto& storage = cta.template shared<TallStorage<Row>>();
  const int warp = cta.warp();
  const ManyShare share(cta, params.dense, params.dense.records, Row{}, warp);
  const int depth = share.works ? Row::stages / share.active : 0;
  RingCursor cursor(warp * depth, depth);
  ManyFeed<Row> feed(storage.ring, params.dense, share, warp);
  if (cta.thread() < kPanels) {
    cta.init(&storage.full[cta.thread()], Row::threads);
    cta.init(&storage.empty[cta.thread()], Row::warps * Cta::kWarpArrivals);
  }
  if (share.works) {
    fill_ring(cta, storage.ring, feed, cursor);
    feed.look_ahead(cta, Row::stages_ahead / share.active);
  }
  cta.sync_block();  // the barriers of the panels are there
  cta.wait_predecessors();
  cta.release_successors();
  if (share.own > 0) {
    const int rounds = (share.own + share.active - 1) / share.active;
    multiply_rounds<Row>(cta, params.dense, storage, share, warp, rounds, feed, cursor);
  }
}

}  // namespace fourfold::dense
