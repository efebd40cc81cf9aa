// The dense matrix of decode for 9 to 128 tokens: K is divided among blocks by segment, so that few rows are
// work for every SM and a block's tokens fit its shared memory. See README.md for the picture.
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

template <class Row>
struct ManyStorage {
  Ring<Row> ring;
  alignas(128) typename Row::Tokens tokens;
  device::Mbarrier tokens_full[kSegmentRecords];  // 64 columns of all rows
};

// The block's tokens, 64 columns after 64 columns. All threads.
template <class Row, class Cta>
FOURFOLD_DEVICE void stage_tokens(Cta cta, const DenseParams& params, const ManyShare& share,
                                  ManyStorage<Row>& storage) {
  constexpr int kTurns = (8 * Row::n + Row::threads - 1) / Row::threads;
  const int chunk = cta.thread() & 7, column = share.segment * moe::kSegmentColumns + 8 * chunk;
  const std::uint16_t* from[kTurns];
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int row = (cta.thread() + i * Row::threads) >> 3;
    const int token = token_of_place(kTokens * share.first_group + row, params.token_count);
    from[i] = static_cast<const std::uint16_t*>(params.tokens) +
              static_cast<std::int64_t>(token) * params.token_stride + column;
  }
#pragma unroll 2
  for (int r = 0; r < share.records; ++r) {
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int row = (cta.thread() + i * Row::threads) >> 3;
      if (8 * Row::n % Row::threads == 0 || row < Row::n)
        cta.copy_16_async(storage.tokens + token_offset<Row>(row, r, chunk), from[i] + r * record::kColumns);
    }
    cta.copy_arrive(&storage.tokens_full[r]);
  }
}

// A unit's segment times all tokens of the block, in the order every decode kernel uses.
template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_unit(Cta cta, ManyStorage<Row>& storage, ManyFeed<Row>& feed,
                                   RingCursor& cursor, int records, bool is_first, ManySums<Row>& sum) {
  const auto read = [&](const auto* from) { return cta.load_shared(from); };
#pragma unroll 1
  for (int r = 0; r < records; r += Row::stage_records) {
    cta.wait(&storage.ring.full[cursor.stage], cursor.phase);
#pragma unroll
    for (int c = 0; c < Row::stage_records; ++c) {
      if (c > 0 && r + c >= records) break;
      ManyWeights<Row> weights;
      weights.load(cta.lane(), read, storage.ring.stage(cursor.stage) + c * Row::copy_bytes, 0);
      if (c + 1 == Row::stage_records || r + c + 1 >= records) {
        cta.fence_async_proxy();  // the reads come before the copy that writes here next
        cta.sync_warp();          // every lane has read the records: their stage is free
        feed.push(cta, cursor.stage);
        cursor.advance();
      }
      if (is_first) cta.wait(&storage.tokens_full[r + c], 0);  // they come once and stay
      multiply_many<Row>(cta, weights, storage.tokens + token_offset<Row>(0, r + c, 0), sum);
    }
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void store_sums(Cta cta, const ManyParams& params, const ManyShare& share, int unit,
                                const ManySums<Row>& sum) {
  auto* to =
      partial_place(cta, params, share.segment, share.first_group, Row::strip_of(unit), Row::tile_of(unit));
  const std::int64_t group_step = static_cast<std::int64_t>(params.dense.strips) * kStripFragments * 32;
#pragma unroll
  for (int n = 0; n < Row::groups; ++n)
    if (n < share.groups)
#pragma unroll
      for (int m = 0; m < Row::tiles; ++m) {
        const float(&c)[4] = sum[m][n];
        cta.store(to + n * group_step + m * 32, device::F32x4{{c[0], c[1], c[2], c[3]}});
      }
}

// A unit's rows of complete sums. What the epilogue reads is asked for together; then the sums move up, so
// that the code stands here once.
template <class Row, class Cta>
FOURFOLD_DEVICE void finish_unit(Cta cta, const DenseParams& params, const ManyShare& share, int unit,
                                 ManySums<Row>& sum) {
  const int strip = Row::strip_of(unit), tile = Row::tile_of(unit);
  TileInputs inputs[Row::groups][Row::tiles];
#pragma unroll
  for (int n = 0; n < Row::groups; ++n) {
    DenseParams part = params_of_group(params, share.first_group + n);
    if (n > 0) part.row_scale = nullptr;  // it is the same for all tokens
#pragma unroll
    for (int m = 0; m < Row::tiles; ++m) {
      if (n < share.groups) inputs[n][m] = load_tile_inputs(cta, part, strip, tile + m);
      if (n > 0) inputs[n][m].row_scale = inputs[0][m].row_scale;
    }
  }
#pragma unroll 1
  for (int n = 0; n < share.groups; ++n) {
    const DenseParams part = params_of_group(params, share.first_group + n);
#pragma unroll 1
    for (int m = 0; m < Row::tiles; ++m) {
      finish_tile<typename Row::Format, false>(cta, part, strip, tile + m, sum[0][0], inputs[0][0]);
      if constexpr (Row::tiles > 1) {
        move_up(sum[0][0], sum[1][0]);
        inputs[0][0] = inputs[0][1];
      }
    }
#pragma unroll
    for (int m = 0; m < Row::tiles; ++m)
#pragma unroll
      for (int next = 0; next + 1 < Row::groups; ++next) {
        move_up(sum[m][next], sum[m][next + 1]);
        inputs[next][m] = inputs[next + 1][m];
      }
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_units(Cta cta, const ManyParams& params, ManyStorage<Row>& storage,
                                    const ManyShare& share, int warp, ManyFeed<Row>& feed,
                                    RingCursor& cursor) {
  const DenseParams& dense = params.dense;
  const bool finishes = dense.records <= kSegmentRecords;
  bool is_first = true;
#pragma unroll 1
  for (int i = warp; i < share.own; i += share.active) {
    const int unit = share.share + share.shares * i;
    ManySums<Row> sum;
    clear<Row>(sum);
    multiply_unit<Row>(cta, storage, feed, cursor, share.records, is_first, sum);
    is_first = false;
    if constexpr (Row::finishes_in_registers)
      if (finishes) {
        finish_unit<Row>(cta, dense, share, unit, sum);
        continue;
      }
    store_sums<Row>(cta, params, share, unit, sum);
    // Every lane reads what itself has written: the loop need not hold the sums in registers.
    if constexpr (!Row::finishes_in_registers)
#pragma unroll 1
      for (int f = 0; finishes && f < Row::tiles * share.groups; ++f)
        finish_fragment<typename Row::Format, false>(cta, params, 1, share.first_group + f / Row::tiles,
                                                     Row::strip_of(unit),
                                                     Row::tile_of(unit) + f % Row::tiles);
  }
}

// blocks: a multiple of segments and parts of the tokens (choose_many.h).
template <class Row, class Cta>
FOURFOLD_DEVICE void dense_many(Cta cta, const ManyParams& params) {
  auto& storage = cta.template shared<ManyStorage<Row>>();
  const int warp = cta.warp();
  const ManyShare share(cta, params.dense, kSegmentRecords, Row{}, warp);
  const int depth = share.works ? Row::stages / share.active : 0;
  RingCursor cursor(warp * depth, depth);
  ManyFeed<Row> feed(storage.ring, params.dense, share, warp);
  if (cta.thread() < kSegmentRecords) cta.init(&storage.tokens_full[cta.thread()], Row::threads);
  if (share.works) {
    fill_ring(cta, storage.ring, feed, cursor);
    feed.look_ahead(cta, Row::stages_ahead / share.active);
  }
  cta.sync_block();  // the barriers of the tokens are there
  cta.wait_predecessors();
  cta.release_successors();
  if (share.own == 0) return;
  stage_tokens<Row>(cta, params.dense, share, storage);
  if (share.works) multiply_units<Row>(cta, params, storage, share, warp, feed, cursor);
}

}  // namespace fourfold::dense
