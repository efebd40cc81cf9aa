// The dense matrix of decode where an SM has few rows of it: one to eight tokens times units of 16 rows, the
// weights straight from memory to registers.
//
// dense_few.h keeps bytes on their way in a ring, which pays where a block has many strips. A matrix of 2,048
// rows is 64 strips of FP4, so that half of the SMs would have none, and a record's half is too small a copy
// for the ring. Here a warp asks for all of its segment of a unit before there is a token: 32 lanes of 16
// bytes for the codes of a record, and its scales. Behind each product it asks for the same record of its
// next unit.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/dense_epilogue.h"
#include "kernels/dense/dense_few.h"
#include "kernels/dense/dense_params.h"
#include "kernels/dense/dense_tokens.h"
#include "kernels/dense/weight_feed.h"
#include "kernels/device/named_barrier.h"
#include "kernels/device/types.h"
#include "kernels/record/lane_tile.h"

namespace fourfold::dense {

// A token's columns of a segment, apart from those of the next so that two rows meet different banks.
inline constexpr int kNearRowBytes = 2 * moe::kSegmentColumns + 64;

template <class Row>
struct NearStorage {
  alignas(128) unsigned char tokens[Row::warps * kTokens * kNearRowBytes];
  PartialSums<Row::warps, 1> partial;
  [[no_unique_address]] typename Row::Prologue::template Storage<Row::warps> prologue;
};

// A warp's segment of a unit, in registers.
template <class Row>
struct NearWeights {
  record::LaneTile<typename Row::Format> record[kSegmentRecords];

  template <class Cta>
  FOURFOLD_DEVICE void ask(Cta cta, const DenseParams& params, int unit, int segment, int r) {
    const std::int64_t at =
        static_cast<std::int64_t>(unit >> 1) * params.records + segment * kSegmentRecords + r;
    const auto read = [&](const auto* from) { return cta.load_stream(from); };
    record[r].load(cta.lane(), read, params.weights + at * record::kRecordBytes<typename Row::Format>,
                   unit & 1);
  }
};

// Given tokens' columns of the warp's segment into the warp's own place; where this lane reads its token's.
template <class Cta>
FOURFOLD_DEVICE const unsigned char* stage_tokens(Cta cta, const DenseParams& params, int segment,
                                                  unsigned char* to) {
  const int first = segment * moe::kSegmentColumns, columns = params.records * record::kColumns;
  constexpr int batch = 4;  // tokens on their way at once
#pragma unroll 1
  for (int token = 0; token < params.token_count; token += batch) {
    device::U32x4 part[batch][2] = {};
#pragma unroll
    for (int b = 0; b < batch; ++b)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (token + b < params.token_count && first + 8 * (32 * i + cta.lane()) < columns)
          part[b][i] = cta.load(reinterpret_cast<const device::U32x4*>(
                                    static_cast<const std::uint16_t*>(params.tokens) +
                                    static_cast<std::int64_t>(token + b) * params.token_stride + first) +
                                32 * i + cta.lane());
#pragma unroll
    for (int b = 0; b < batch; ++b)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (token + b < params.token_count)
          cta.store_shared(
              reinterpret_cast<device::U32x4*>(to + (token + b) * kNearRowBytes) + 32 * i + cta.lane(),
              part[b][i]);
  }
  cta.sync_warp();  // what the other lanes have brought
  return to + token_of_place(cta.lane() >> 2, params.token_count) * kNearRowBytes + 16 * (cta.lane() & 3);
}

// The segment's products in the order every decode kernel uses. next: the warp's next unit, or none.
template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_near(Cta cta, const DenseParams& params, NearWeights<Row>& weights, int segment,
                                   int next, const unsigned char* tokens, float (&sum)[4]) {
  const int left = params.records - segment * kSegmentRecords;
#pragma unroll
  for (int r = 0; r < kSegmentRecords; ++r) {
    if (r >= left) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto chunk =
          cta.load_shared(reinterpret_cast<const device::U32x4*>(tokens + 128 * r + 64 * half));
      std::uint32_t steps[2][4];
      weights.record[r].template decode<Cta>(cta.lane(), half, steps);
#pragma unroll
      for (int s = 0; s < 2; ++s) cta.mma_bf16(sum, steps[s], chunk.v[2 * s], chunk.v[2 * s + 1]);
    }
    if (next < Row::units(params)) weights.ask(cta, params, next, segment, r);
  }
}

// The group's segments, added in order by one of its warps. Two sets of places, as in dense_few.h.
template <class Row, class Cta>
FOURFOLD_DEVICE void add_near(Cta cta, NearStorage<Row>& storage, const WarpShare& share, int warp, int turn,
                              bool adds, float (&sum)[4]) {
  auto& partial = storage.partial[turn & 1];
  cta.store_shared(&partial[warp][0][cta.lane()], device::F32x4{{sum[0], sum[1], sum[2], sum[3]}});
  cta.barrier_sync(device::group_barrier(share.group), 32 * share.group_warps);  // every segment is there
  if (!adds) return;
  const int first = share.group * share.group_warps;
  const device::F32x4 start = cta.load_shared(&partial[first][0][cta.lane()]);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = start.v[i];
#pragma unroll 4
  for (int s = 1; s < share.group_warps; ++s) {
    const device::F32x4 part = cta.load_shared(&partial[first + s][0][cta.lane()]);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = Cta::add(sum[i], part.v[i]);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_near_units(Cta cta, const DenseParams& params, NearStorage<Row>& storage,
                                         const WarpShare& share, int warp, NearWeights<Row>& weights,
                                         const unsigned char* tokens) {
  int turn = 0, adder = 0;  // the warps of a group take turns at adding up
#pragma unroll 1
  for (int unit = share.first_unit; unit < Row::units(params); unit += share.unit_step, ++turn) {
    const bool adds = adder == share.place;
    adder = adder + 1 == share.group_warps ? 0 : adder + 1;
    TileInputs inputs;
    if (adds) inputs = load_tile_inputs(cta, params, unit >> 1, unit & 1);
    float sum[4] = {};
    multiply_near<Row>(cta, params, weights, share.place, unit + share.unit_step, tokens, sum);
    if (share.segments > 1) add_near<Row>(cta, storage, share, warp, turn, adds, sum);
    if (adds)
      finish_tile<typename Row::Format, Row::is_biased>(cta, params, unit >> 1, unit & 1, sum, inputs);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void dense_near(Cta cta, const DenseParams& params) {
  auto& storage = cta.template shared<NearStorage<Row>>();
  const int warp = cta.warp();
  const WarpShare share(cta, Row::warps, warp, Row::units(params), params.records);
  NearWeights<Row> weights;
  if (share.works) {
    const int left = params.records - share.place * kSegmentRecords;
#pragma unroll
    for (int r = 0; r < kSegmentRecords; ++r)
      if (r < left) weights.ask(cta, params, share.first_unit, share.place, r);
  }
  const unsigned char* tokens = nullptr;
  if constexpr (Row::Prologue::norms) {
    PassValues weight;
    load_norm_weight<Row::warps>(cta, params, warp, weight);
    const int columns = params.records * record::kColumns;
    const float per_column = Cta::keep(Cta::reciprocal(static_cast<float>(columns)));
    const bool early = Row::is_of_pair && params.token_count == 1;  // as in dense_few.h
    if (early) cta.release_successors();
    cta.wait_predecessors();
    if (!early) cta.release_successors();
    if (share.active > 0)
      norm_tokens<Row::warps>(cta, params, storage.prologue, storage.tokens, warp, weight, per_column);
    tokens = storage.tokens + normed_offset(cta, params, share.place);
  } else {
    cta.wait_predecessors();
    cta.release_successors();
    if (share.works)
      tokens = stage_tokens(cta, params, share.place, storage.tokens + warp * kTokens * kNearRowBytes);
  }
  if (share.works) multiply_near_units<Row>(cta, params, storage, share, warp, weights, tokens);
}

}  // namespace fourfold::dense
