// FP8 x FP8 with warp-level mma, for chips without wgmma: the operands of multiply_fp8.h in the order of
// sums it has. A stage is 128 columns (the first one of K 64 where 128 does not divide it); a group of eight
// tokens starts it from zero, runs through its k32 steps, and is added to the totals in f32. So only one
// group's sums are in registers beside the totals, and a row's bits follow from K alone.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe_gemm/multiply_mma.h"
#include "kernels/moe_gemm/tile_row.h"
#include "kernels/moe_gemm/tile_walk.h"
#include "kernels/record/record.h"

namespace fourfold::moe_gemm {

// One stage of `Records` records. The two k32 steps of a record are half of a token's 128 bytes.
template <class Row, int Records, class Cta>
FOURFOLD_DEVICE void multiply_fp8_panel(Cta cta, const WeightStage<typename Row::Shape>& weights,
                                        const TokenPanel<Row::n>& tokens, const WarpPlace<Row>& place,
                                        int groups, WarpSums<Row>& totals) {
  const int lane = cta.lane();
  std::uint32_t a[2][2 * Records][4];
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int step = 0; step < 2 * Records; ++step) {
      const device::U32x4 words = cta.load_shared(reinterpret_cast<const device::U32x4*>(
          weights.strip[place.strip][step / 2].payload + record::fp8_offset(m, step % 2, lane)));
      a[m][step][0] = words.v[0];  // row slot g, the first 16 bytes of the step
      a[m][step][1] = words.v[2];  // row slot g + 8
      a[m][step][2] = words.v[1];
      a[m][step][3] = words.v[3];
    }
#pragma unroll
  for (int n = 0; n < kGroupsPerWarp<Row>; ++n) {
    const int group = n * Row::warps_along_n + place.token_column;
    if (group >= groups) break;
    float sum[2][4] = {};
#pragma unroll
    for (int record = 0; record < Records; ++record) {
      // Matrix i of the four is chunk i of this half; its rows are the group's tokens.
      const device::U32x4 b = cta.load_matrix_x4(
          tokens.rows + device::swizzled_offset(8 * group + (lane & 7), 4 * record + (lane >> 3)));
#pragma unroll
      for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int m = 0; m < 2; ++m)
          cta.mma_e4m3(sum[m], a[m][2 * record + step], b.v[2 * step], b.v[2 * step + 1]);
    }
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) totals[m][n][i] = Cta::add(totals[m][n][i], sum[m][i]);
  }
}

// Each token's factor into its sums: a power of two, so it does not matter when. Where codes have the
// matrix's own input scale there are none.
template <class Row, class Cta>
FOURFOLD_DEVICE void scale_tokens(Cta cta, const moe::GemmParams& params, const Item& item,
                                  const WarpPlace<Row>& place, WarpSums<Row>& totals) {
  if (params.token_factor == nullptr) return;
#pragma unroll
  for (int n = 0; n < kGroupsPerWarp<Row>; ++n) {
    const int first = 8 * (n * Row::warps_along_n + place.token_column);
    if (first >= item.tile.count) break;
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int token = first + 2 * (cta.lane() & 3) + b;
      const float factor = cta.load(params.token_factor + item.tile.first_slot +
                                    (token < item.tile.count ? token : item.tile.count - 1));
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        totals[m][n][b] = Cta::mul(totals[m][n][b], factor);
        totals[m][n][2 + b] = Cta::mul(totals[m][n][2 + b], factor);
      }
    }
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_tiles_fp8_mma(Cta cta, const moe::GemmParams& params,
                                            typename Row::Storage& storage) {
  static_assert(Row::panels == 2 && Row::tiles_per_warp == 2, "a stage is what the tensor core adds up");
  const WarpPlace<Row> place(cta.warp());
  device::PipelineCursor<Row::stages> at;
  for (TileWalk<Row, Cta> walk(cta, params); !walk.done(); walk.advance()) {
    const Item item = walk.item();
    const int groups = (item.tile.count + 7) / 8;
    WarpSums<Row> totals = {};
    int left = params.records;
    if (left % Row::panels != 0) {
      cta.wait(&storage.full[at.stage], at.phase);  // a record and half of the token rows have landed
      multiply_fp8_panel<Row, 1>(cta, storage.weights[at.stage], storage.tokens[at.stage][0], place, groups,
                                 totals);
      release(cta, &storage.empty[at.stage]);
      at.advance();
      --left;
    }
#pragma unroll 1
    for (; left > 0; left -= Row::panels) {
      cta.wait(&storage.full[at.stage], at.phase);  // records and token rows have landed
      multiply_fp8_panel<Row, 2>(cta, storage.weights[at.stage], storage.tokens[at.stage][0], place, groups,
                                 totals);
      release(cta, &storage.empty[at.stage]);
      at.advance();
    }
    scale_tokens<Row>(cta, params, item, place, totals);
    finish_sums<Row>(cta, params, item, place, totals);
  }
}

}  // namespace fourfold::moe_gemm
