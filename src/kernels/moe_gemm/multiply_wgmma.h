// The math role with Hopper's warpgroup instruction: weights are decoded into the register operand, tokens come from
// shared memory. (Keeping a warpgroup's products in flight across its own decode would hide as much as taking turns, but
// ptxas 13.0 then serialises every wgmma of a kernel with more than three widths: C7512.)
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe_gemm/finish_tile.h"
#include "kernels/moe_gemm/multiply_mma.h"
#include "kernels/moe_gemm/tile_row.h"
#include "kernels/moe_gemm/tile_walk.h"
#include "kernels/record/decode.h"

namespace fourfold::moe_gemm {

// Two warpgroups. Tiles of 256 rows: each takes four strips, both m16 tiles of them (two m64 operands). Tiles of 128
// rows: both take the same four strips, one m16 tile each.
template <class Row>
struct GroupPlace {
  static constexpr int operands = Row::m / 128;
  int strip;
  int tile;
  FOURFOLD_DEVICE explicit GroupPlace(int warp) {
    strip = operands == 2 ? warp : warp % 4;
    tile = operands == 2 ? 0 : warp / 4;
  }
};

// The two warpgroups issue their products in turn. Without it both decode at the same time and then both wait for the
// tensor cores; in turn, one decodes while the products of the other run.
struct Turns {
  static constexpr int threads = 256;
  int own;    // named barrier of this warpgroup's turn
  int other;
  FOURFOLD_DEVICE explicit Turns(int warp) : own(1 + warp / 4), other(2 - warp / 4) {}
  template <class Cta>
  FOURFOLD_DEVICE void begin(Cta cta) const {
    if (own == 2) cta.barrier_arrive(other, threads);  // the first turn is warpgroup 0's
  }
  template <class Cta>
  FOURFOLD_DEVICE void wait(Cta cta) const {
    cta.barrier_sync(own, threads);
  }
  template <class Cta>
  FOURFOLD_DEVICE void pass(Cta cta) const {
    cta.barrier_arrive(other, threads);
  }
  template <class Cta>
  FOURFOLD_DEVICE void end(Cta cta) const {
    if (own == 1) cta.barrier_sync(own, threads);  // takes the last pass, so that the barrier is left empty
  }
};

// 32-column halves of a panel that are decoded before their products start: both, unless the sums leave no registers.
template <class Row, int N>
inline constexpr int kHalvesAtOnce = GroupPlace<Row>::operands * N > 256 ? 1 : 2;

// A operands: [half][m64 operand][k16 step][register].
template <class Row, int Halves>
using DecodedSteps = std::uint32_t[Halves][GroupPlace<Row>::operands][2][4];

template <class Row, int Halves, class Cta>
FOURFOLD_DEVICE void decode_halves(Cta cta, const record::WeightRecord<typename Row::Format>& record, int first_half,
                                   const GroupPlace<Row>& place, DecodedSteps<Row, Halves>& steps) {
  using Format = typename Row::Format;
  const int lane = cta.lane();
  record::LaneScales<Format> scales;
  scales.words = cta.load_shared(reinterpret_cast<const typename record::LaneScales<Format>::Word*>(
      record.scales + record::lane_scale_offset<Format>(lane)));
#pragma unroll
  for (int m = 0; m < GroupPlace<Row>::operands; ++m) {
    const device::U32x4 tile = cta.load_shared(
        reinterpret_cast<const device::U32x4*>(record.payload + record::payload_offset(place.tile + m, lane)));
    const int which = GroupPlace<Row>::operands == 2 ? m : place.tile;
    const std::uint32_t pair_g = record::scale_pair<Cta>(scales, which, 0, lane);
    const std::uint32_t pair_g8 = record::scale_pair<Cta>(scales, which, 1, lane);
#pragma unroll
    for (int half = 0; half < Halves; ++half)
      record::decode_tile_half<Format, Cta>(tile, pair_g, pair_g8, first_half + half, steps[half][m]);
  }
}

// All of K for one item with N token columns, then the result.
template <class Row, int N, class Cta>
FOURFOLD_DEVICE void multiply_item(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage,
                                   MathCursors<Row>& at, const Turns& turns, const Item& item,
                                   const GroupPlace<Row>& place) {
  constexpr int operands = GroupPlace<Row>::operands, halves = kHalvesAtOnce<Row, N>;
  float sums[operands][N / 2];
#pragma unroll
  for (int m = 0; m < operands; ++m)
#pragma unroll
    for (int i = 0; i < N / 2; ++i) sums[m][i] = 0.0f;
  const int stages = stages_of_k<Row>(params);
  for (int s = 0; s < stages; ++s) {
    cta.wait(&storage.weights_full[at.stage.stage], at.stage.phase);  // the records have landed
    const auto& weights = storage.weights[at.stage.stage];
    const int panels = panels_of_stage<Row>(params, s);
    for (int panel = 0; panel < panels; ++panel) {
      cta.wait(&storage.tokens_full[at.panel.stage], at.panel.phase);  // the rows of every producer thread have landed
      cta.fence_async_proxy();  // ... by ordinary copies; wgmma reads them through the async proxy
      const std::uint64_t tokens = cta.wgmma_descriptor(storage.tokens[at.panel.stage].rows);
#pragma unroll
      for (int first_half = 0; first_half < 2; first_half += halves) {
        DecodedSteps<Row, halves> steps;
        decode_halves<Row, halves>(cta, weights.strip[place.strip][panel], first_half, place, steps);
        turns.wait(cta);
        cta.wgmma_fence();  // operands and sums were written by ordinary instructions; wgmma reads them next
#pragma unroll
        for (int half = 0; half < halves; ++half)
#pragma unroll
          for (int step = 0; step < 2; ++step)
#pragma unroll
            for (int m = 0; m < operands; ++m)
              // A k16 step is 32 bytes along the 128-byte row: two units of the descriptor's address.
              cta.template wgmma_bf16<N>(sums[m], steps[half][m][step], tokens + 2 * (2 * (first_half + half) + step));
        cta.wgmma_commit();
        turns.pass(cta);
        cta.template wgmma_wait<0>();
      }
      release(cta, &storage.tokens_empty[at.panel.stage]);
      at.panel.advance();
    }
    release(cta, &storage.weights_empty[at.stage.stage]);
    at.stage.advance();
  }

  const int strip = item.first_strip + place.strip;
  if (strip >= params.strips) return;
  const Factors factors = factors_of<Row>(cta, params, item.tile.expert);
#pragma unroll
  for (int n = 0; n < N / 8; ++n) {
    const moe::TokenGroup group{item.tile.first_slot + 8 * n, item.tile.count - 8 * n};
    if (group.count <= 0) break;
    const float first[4] = {sums[0][4 * n], sums[0][4 * n + 1], sums[0][4 * n + 2], sums[0][4 * n + 3]};
    if constexpr (operands == 2) {
      const float second[4] = {sums[1][4 * n], sums[1][4 * n + 1], sums[1][4 * n + 2], sums[1][4 * n + 3]};
      finish_strip<Row>(cta, params, factors, strip, group, first, second);
    } else {
      finish_tile<Row>(cta, params, factors, strip, place.tile, group, first);
    }
  }
}

// The instruction's width is part of its encoding: one loop per width of padded_columns().
template <class Row, int N, class Cta>
FOURFOLD_DEVICE void multiply_width(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage,
                                    MathCursors<Row>& at, const Turns& turns, const Item& item,
                                    const GroupPlace<Row>& place) {
  if constexpr (N <= Row::n && padded_columns<Row>(N) == N) {
    if (item.columns == N) multiply_item<Row, N>(cta, params, storage, at, turns, item, place);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_tiles_wgmma(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage) {
  const GroupPlace<Row> place(cta.warp());
  const Turns turns(cta.warp());
  MathCursors<Row> at;
  turns.begin(cta);
  for (TileWalk<Row, Cta> walk(cta, params); !walk.done(); walk.advance()) {
    const Item item = walk.item();
    multiply_width<Row, 8>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 16>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 24>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 32>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 48>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 64>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 80>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 96>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 112>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 128>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 144>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 160>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 192>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 224>(cta, params, storage, at, turns, item, place);
    multiply_width<Row, 256>(cta, params, storage, at, turns, item, place);
  }
  turns.end(cta);
}

}  // namespace fourfold::moe_gemm
