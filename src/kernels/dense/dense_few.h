// The dense matrix of decode: one to eight tokens times all of a matrix, at the speed the memory gives it.
// See README.md for the picture.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/macros.h"
#include "kernels/dense/dense_epilogue.h"
#include "kernels/dense/dense_params.h"
#include "kernels/dense/dense_tokens.h"
#include "kernels/dense/weight_feed.h"
#include "kernels/device/named_barrier.h"
#include "kernels/device/types.h"
#include "kernels/record/lane_tile.h"

namespace fourfold::dense {

template <class Row>
using Sums = float[Row::tiles][4];

template <int Warps, int Tiles>
using PartialSums = device::F32x4[2][Warps][Tiles][32];  // [turn][warp][tile][lane]
template <int Tiles>
using TotalSums = device::F32x4[Tiles][32];  // of the warp that adds, between two waves

template <class Row>
struct FewStorage {
  Ring<Row> ring;
  PartialSums<Row::warps, Row::tiles> partial;
  TotalSums<Row::tiles> total;
  [[no_unique_address]] typename Row::Prologue::template Storage<Row::warps> prologue;
};

template <class Row>
using LaneWeights = record::LaneTiles<typename Row::Format, Row::tiles>;

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_record(Cta cta, const LaneWeights<Row>& weights,
                                     const device::U32x4 (&token)[2], Sums<Row>& sum) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t steps[Row::tiles][2][4];
#pragma unroll
    for (int m = 0; m < Row::tiles; ++m) weights.template decode<Cta>(cta.lane(), m, 0, half, steps[m]);
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
      for (int m = 0; m < Row::tiles; ++m)
        cta.mma_bf16(sum[m], steps[m][s], token[half].v[2 * s], token[half].v[2 * s + 1]);
  }
}

// Record r of a segment from the ring into registers; its stage is refilled once all of it has been read.
template <class Row, class Cta>
FOURFOLD_DEVICE void take_record(Cta cta, Ring<Row>& ring, WeightFeed<Row>& feed, RingCursor& cursor, int r,
                                 int records, LaneWeights<Row>& weights) {
  const int c = r % Row::stage_records;
  if (c == 0) cta.wait(&ring.full[cursor.stage], cursor.phase);
  const auto read = [&](const auto* from) { return cta.load_shared(from); };
  weights.load(cta.lane(), read, ring.stage(cursor.stage) + c * Row::copy_bytes, 0);
  if (c + 1 < Row::stage_records && r + 1 < records) return;
  if (feed.has_more()) {
    cta.fence_async_proxy();  // the reads come before the copy that writes here next
    cta.sync_warp();          // every lane has read the records: their stage is free
    feed.push(cta, cursor.stage);
  }
  cursor.advance();
}

// sum = tiles * tokens over one segment of K, in the order every decode kernel uses. The products are a
// chain: where there are registers for it, a record is read while those of the one before it are made.
// Tokens in registers: a record's are known by name, so the loop is unrolled.
template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_segment(Cta cta, Ring<Row>& ring, WeightFeed<Row>& feed, RingCursor& cursor,
                                      int records, const Tokens& tokens, Sums<Row>& sum) {
  constexpr int ahead = Row::reads_ahead ? 1 : 0;
  LaneWeights<Row> weights[1 + ahead];
  if constexpr (ahead == 1) take_record<Row>(cta, ring, feed, cursor, 0, records, weights[0]);
#pragma unroll
  for (int r = 0; r < kSegmentRecords; ++r) {
    if (r >= records) break;
    if (r + ahead < kSegmentRecords && r + ahead < records)
      take_record<Row>(cta, ring, feed, cursor, r + ahead, records, weights[(r + ahead) % (1 + ahead)]);
    multiply_record<Row>(cta, weights[r % (1 + ahead)], tokens.chunk[r], sum);
  }
}

// Tokens in shared memory: the loop is rolled. It runs once or a few times a layer, and what an SM fetches
// then is instructions as well as weights. `tokens` is where this lane's row has its columns of the segment.
template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_segment(Cta cta, Ring<Row>& ring, WeightFeed<Row>& feed, RingCursor& cursor,
                                      int records, const unsigned char* tokens, Sums<Row>& sum) {
  constexpr int ahead = Row::reads_ahead ? 1 : 0, turns = ahead == 1 ? 2 : Row::stage_records;
  LaneWeights<Row> weights[1 + ahead];
  device::U32x4 chunk[1 + ahead][2];
  const auto take = [&](int r, int place) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      chunk[place][half] =
          cta.load_shared(reinterpret_cast<const device::U32x4*>(tokens + 128 * r + 64 * half));
    take_record<Row>(cta, ring, feed, cursor, r, records, weights[place]);
  };
  if constexpr (ahead == 1) take(0, 0);
#pragma unroll 1
  for (int first = 0; first < records; first += turns)
#pragma unroll
    for (int c = 0; c < turns; ++c) {
      const int r = first + c;
      if (r >= records) break;
      if (r + ahead < records) take(r + ahead, (c + ahead) % (1 + ahead));
      multiply_record<Row>(cta, weights[c % (1 + ahead)], chunk[c % (1 + ahead)], sum);
    }
}

// The warps of a group leave the segments of a wave; the one that adds goes on with them in order and has the
// total so far in `sum`. Two sets of places: while it reads one wave the others may leave the next; a warp
// that leaves the one after has met it at the barrier in between.
template <class Row, class Cta>
FOURFOLD_DEVICE void add_wave(Cta cta, FewStorage<Row>& storage, const WarpShare& share, int warp, int turn,
                              int wave, bool adds, Sums<Row>& sum) {
  auto& partial = storage.partial[turn & 1];
#pragma unroll
  for (int m = 0; m < Row::tiles; ++m)
    cta.store_shared(&partial[warp][m][cta.lane()],
                     device::F32x4{{sum[m][0], sum[m][1], sum[m][2], sum[m][3]}});
  cta.barrier_sync(device::group_barrier(share.group),
                   32 * share.group_warps);  // every segment of the wave is written
  if (!adds) return;
  const int first = share.group * share.group_warps, left = share.segments - wave * Row::warps;
  const int count = left < share.group_warps ? left : share.group_warps;
#pragma unroll
  for (int m = 0; m < Row::tiles; ++m) {
    const device::F32x4 start =
        cta.load_shared(wave == 0 ? &partial[first][m][cta.lane()] : &storage.total[m][cta.lane()]);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[m][i] = start.v[i];
  }
#pragma unroll 4
  for (int s = wave == 0 ? 1 : 0; s < count; ++s)
#pragma unroll
    for (int m = 0; m < Row::tiles; ++m) {
      const device::F32x4 part = cta.load_shared(&partial[first + s][m][cta.lane()]);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[m][i] = Cta::add(sum[m][i], part.v[i]);
    }
  if (wave + 1 < share.waves)
#pragma unroll
    for (int m = 0; m < Row::tiles; ++m)
      cta.store_shared(&storage.total[m][cta.lane()],
                       device::F32x4{{sum[m][0], sum[m][1], sum[m][2], sum[m][3]}});
}

// A warp's units, one after the other.
template <class Row, class Cta, class TokensT>
FOURFOLD_DEVICE void multiply_units(Cta cta, const DenseParams& params, FewStorage<Row>& storage,
                                    const WarpShare& share, int warp, WeightFeed<Row>& feed,
                                    RingCursor& cursor, TokensT& tokens) {
  int turn = 0, adder = 0;  // the warps of a group take turns at adding up
#pragma unroll 1
  for (int unit = share.first_unit; unit < Row::units(params); unit += share.unit_step) {
    const int strip = Row::tiles == 2 ? unit : unit >> 1, tile = Row::tiles == 2 ? 0 : unit & 1;
    const bool adds = adder == share.place;
    adder = adder + 1 == share.group_warps ? 0 : adder + 1;
    Sums<Row> sum;
    TileInputs inputs[Row::tiles];
    const auto load_inputs = [&] {
#pragma unroll
      for (int m = 0; m < Row::tiles; ++m) inputs[m] = load_tile_inputs(cta, params, strip, tile + m);
    };
    // As early as there are registers for it; normed tokens do not go to the residual stream.
    constexpr bool early = Row::tiles == 1 && !Row::Prologue::norms;
    if (adds && early) load_inputs();
#pragma unroll 1
    for (int wave = 0; wave < share.waves; ++wave) {
#pragma unroll
      for (int m = 0; m < Row::tiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[m][i] = 0.0f;
      const int segment = wave * Row::warps + share.place;
      if (segment < share.segments) {
        if constexpr (std::is_same_v<TokensT, Tokens>)
          if (share.waves > 1) load_given(cta, params, segment, tokens);
        const int left = params.records - segment * kSegmentRecords;
        multiply_segment<Row>(cta, storage.ring, feed, cursor,
                              left < kSegmentRecords ? left : kSegmentRecords, tokens, sum);
      }
      if (adds && !early && wave + 1 == share.waves) load_inputs();
      if (share.segments > 1) add_wave<Row>(cta, storage, share, warp, turn++, wave, adds, sum);
    }
    if (adds)
#pragma unroll
      for (int m = 0; m < Row::tiles; ++m)
        finish_tile<typename Row::Format, Row::is_biased>(cta, params, strip, tile + m, sum[m], inputs[m]);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void dense_few(Cta cta, const DenseParams& params) {
  auto* at = &cta.template shared<FewStorage<Row>>();
  // Found once: it would be made anew for every access. Not where tokens take the registers.
  if constexpr (Row::Prologue::norms) at = Cta::keep(at);
  auto& storage = *at;
  const int warp = cta.warp();
  const WarpShare share(cta, Row::warps, warp, Row::units(params), params.records);
  const int columns = params.records * record::kColumns;
  const int token_bytes = Row::Prologue::template shared_bytes<Row::warps>(columns, params.token_count);
  const int stages = (Row::ring_bytes - token_bytes) / Row::stage_bytes;
  const int depth = share.works ? device::quotient<Cta>(stages, share.active) : 0;
  RingCursor cursor(warp * depth, depth);
  WeightFeed<Row> feed(storage.ring, params, share);
  if (share.works) fill_ring(cta, storage.ring, feed, cursor);
  if constexpr (Row::Prologue::norms) {
    unsigned char* rows = storage.ring.bytes + Row::ring_bytes - token_bytes;
    PassValues weight;
    load_norm_weight<Row::warps>(cta, params, warp, weight);
    const float per_column = Cta::keep(Cta::reciprocal(static_cast<float>(columns)));
    // Early only where it measured faster (docs/decisions/0009). What comes behind a pair may then come while
    // the kernel in front of this one still runs, so before its wait it may read constants, the step's tables
    // and what an earlier step wrote, and nothing of the two kernels in front of it: GEMM1 reads nothing, the
    // delta rule its state, absorb_queries and a latent query's matrix weights and tables.
    const bool early = Row::is_of_pair && params.token_count == 1;
    if (early) cta.release_successors();
    cta.wait_predecessors();
    if (!early) cta.release_successors();
    if (share.active > 0)
      norm_tokens<Row::warps>(cta, params, storage.prologue, rows, warp, weight, per_column);
    const unsigned char* tokens = rows + normed_offset(cta, params, share.place);
    if (share.works) multiply_units<Row>(cta, params, storage, share, warp, feed, cursor, tokens);
  } else {
    cta.wait_predecessors();
    cta.release_successors();
    if (!share.works) return;
    if (GivenRows::stages(columns, params.token_count, Row::warps)) {
      const unsigned char* tokens =
          stage_given(cta, params, share.place,
                      storage.ring.bytes + Row::ring_bytes - (Row::warps - warp) * kStagedBytes);
      multiply_units<Row>(cta, params, storage, share, warp, feed, cursor, tokens);
    } else {
      Tokens tokens;
      if (share.waves == 1) load_given(cta, params, share.place, tokens);
      multiply_units<Row>(cta, params, storage, share, warp, feed, cursor, tokens);
    }
  }
}

}  // namespace fourfold::dense
