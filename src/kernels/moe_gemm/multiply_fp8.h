// FP8 x FP8 with Hopper's warpgroup instruction: the words of an fp8 record are its A operands as they lie,
// and the tokens' bytes are laid out to meet them (record.h). The tensor core keeps 13 bits of a sum, so what
// it adds up is never longer than a stage, 128 columns; stages are added in f32, in order. Where K is no
// multiple of 128 the first stage is the short one. All of it follows from K alone, so a row's bits are the
// same in every tile.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe_gemm/finish_group.h"
#include "kernels/moe_gemm/multiply_mma.h"
#include "kernels/moe_gemm/tile_row.h"
#include "kernels/moe_gemm/tile_walk.h"
#include "kernels/record/record.h"

namespace fourfold::moe_gemm {

inline constexpr int kStepsOfRecord = 2;  // of k32

// Token columns of one product. Products run in two sets of sums by turns, so that the tensor core has one at
// work while the other is added to the totals; wider sets would leave no registers to those.
constexpr int fp8_part(int columns) { return columns >= 128 ? 64 : columns >= 32 ? columns / 2 : columns; }
template <int N>
using Fp8Sums = float[2][fp8_part(N) / 2];

// A warp's operands of one stage.
template <int Steps>
using Fp8Operands = std::uint32_t[Steps][4];

template <class Row, int Steps, class Cta>
FOURFOLD_DEVICE void load_fp8_operands(Cta cta, const WeightStage<typename Row::Shape>& weights,
                                       const GroupPlace& place, Fp8Operands<Steps>& a) {
#pragma unroll
  for (int step = 0; step < Steps; ++step) {
    const unsigned char* record = weights.strip[place.strip][step / kStepsOfRecord].payload;
    const device::U32x4 words = cta.load_shared(reinterpret_cast<const device::U32x4*>(
        record + record::fp8_offset(place.tile, step % kStepsOfRecord, cta.lane())));
    a[step][0] = words.v[0];  // row slot g, the first 16 bytes of the step
    a[step][1] = words.v[2];  // row slot g + 8
    a[step][2] = words.v[1];
    a[step][3] = words.v[3];
  }
}

// One stage of `Records` records times N token columns, added to the totals. released: the stage's barrier,
// told once its products are done.
template <class Row, int N, int Records, class Cta>
FOURFOLD_DEVICE void multiply_fp8_stage(Cta cta, const WeightStage<typename Row::Shape>& weights,
                                        std::uint64_t tokens, device::Mbarrier* released,
                                        const GroupPlace& place, Fp8Sums<N>& sums,
                                        float (&totals)[Row::n / 2]) {
  constexpr int kPart = fp8_part(N), kParts = N / kPart, kSteps = kStepsOfRecord * Records;
  Fp8Operands<kSteps> a;
  load_fp8_operands<Row, kSteps>(cta, weights, place, a);
  const auto add = [&](int part) {
#pragma unroll
    for (int i = 0; i < kPart / 2; ++i) {  // kept: no use of a sum may move above the wait
      float& total = totals[part * kPart / 2 + i];
      total = Cta::add(total, Cta::keep(sums[part % 2][i]));
    }
  };
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    cta.wgmma_fence();  // operands and sums were used by ordinary instructions
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      // A step is 32 bytes along the 128-byte row; the descriptor counts sixteens of bytes.
      const std::uint64_t b = tokens + static_cast<std::uint64_t>(part * kPart * 128 / 16 + 2 * step);
      if (step == 0)
        cta.template wgmma_e4m3<kPart, false>(sums[part % 2], a[step], b);
      else
        cta.template wgmma_e4m3<kPart, true>(sums[part % 2], a[step], b);
    }
    cta.wgmma_commit();
    if (part > 0) {
      cta.template wgmma_wait<1>();
      add(part - 1);
    }
  }
  cta.template wgmma_wait<0>();
  release(cta, released);
  add(kParts - 1);
}

// All of K for one item. Between two stages a warpgroup has nothing in the tensor core; the other one has.
template <class Row, int N, class Cta>
FOURFOLD_DEVICE void multiply_fp8_columns(Cta cta, const moe::GemmParams& params,
                                          typename Row::Storage& storage,
                                          device::PipelineCursor<Row::stages>& at, const GroupPlace& place,
                                          float (&totals)[Row::n / 2]) {
  static_assert(Row::panels == 2, "a stage is what the tensor core adds up");
  const std::uint64_t first_tokens = cta.wgmma_descriptor(storage.tokens[0][0].rows);
  Fp8Sums<N> sums;
#pragma unroll
  for (int i = 0; i < fp8_part(N) / 2; ++i) sums[0][i] = sums[1][i] = 0.0f;
  const auto enter = [&] {
    cta.wait(&storage.full[at.stage], at.phase);  // records and token rows have landed
    cta.fence_async_proxy();  // ... the rows by ordinary copies; wgmma reads them through the async proxy
    return first_tokens + static_cast<std::uint32_t>(at.stage) * (sizeof(storage.tokens[0]) / 16);
  };
  int left = params.records;
  if (left % Row::panels != 0) {
    const std::uint64_t tokens = enter();
    multiply_fp8_stage<Row, N, 1>(cta, storage.weights[at.stage], tokens, &storage.empty[at.stage], place,
                                  sums, totals);
    at.advance();
    --left;
  }
#pragma unroll 1
  for (; left > 0; left -= Row::panels) {
    const std::uint64_t tokens = enter();
    multiply_fp8_stage<Row, N, 2>(cta, storage.weights[at.stage], tokens, &storage.empty[at.stage], place,
                                  sums, totals);
    at.advance();
  }
}

}  // namespace fourfold::moe_gemm
