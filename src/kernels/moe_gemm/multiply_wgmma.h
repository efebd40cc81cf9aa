// The math role with Hopper's warpgroup instruction: weights are decoded into the register operand, tokens
// come from shared memory. A warp owns one m16 tile, a warpgroup two strips (one m64 operand); its products
// stay in flight while it decodes the next 32 columns.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe_gemm/finish_group.h"
#include "kernels/moe_gemm/multiply_mma.h"
#include "kernels/moe_gemm/tile_row.h"
#include "kernels/moe_gemm/tile_walk.h"
#include "kernels/record/lane_tile.h"

namespace fourfold::moe_gemm {

// Starts the products of 32 columns, whose operands are in `steps`; they must not be in use.
template <class Row, int N, class Cta>
FOURFOLD_DEVICE void start_half(Cta cta, int half, std::uint64_t tokens, std::uint32_t (&steps)[2][4],
                                float (&sums)[Row::n / 2]) {
  cta.wgmma_fence();  // operands (and, at first, sums) were written by ordinary instructions; wgmma reads
                      // them next
#pragma unroll
  for (int step = 0; step < 2; ++step)
    // A k16 step is 32 bytes along the 128-byte row: two units of the descriptor's address.
    cta.template wgmma_bf16<N>(sums, steps[step], tokens + 2 * (2 * half + step));
  cta.wgmma_commit();
}

// All of K for one item with N token columns. Two groups of products are in flight at every turn of the loop:
// a state that differs between the first turn and the others makes ptxas serialise them (C7513).
template <class Row, int N, class Cta>
FOURFOLD_DEVICE void multiply_columns(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage,
                                      device::PipelineCursor<Row::stages>& at, const GroupPlace& place,
                                      float (&sums)[Row::n / 2]) {
  const int lane = cta.lane();
  const auto read = [&](const auto* from) { return cta.load_shared(from); };
  // bf16 words are operands as they lie: loaded ahead, they would be in the way of those in flight, and ptxas
  // would serialise (C7512).
  constexpr bool loads_operands = std::is_same_v<typename Row::Format, record::Bf16Format>;
  record::LaneTile<typename Row::Format> tile;
  typename record::LaneTile<typename Row::Format>::Multipliers multipliers;
  const unsigned char* weights;
  std::uint32_t first_steps[2][4], second_steps[2][4];
  std::uint64_t tokens;
  int panel_of_stage = 0;
  const auto enter_panel = [&] {
    cta.wait(&storage.full[at.stage],
             at.phase);       // records and token rows have landed; free on a stage's later panels
    cta.fence_async_proxy();  // ... the rows by ordinary copies; wgmma reads them through the async proxy
    weights = storage.weights[at.stage].strip[place.strip][panel_of_stage].payload;
    if constexpr (!loads_operands) tile.load(lane, read, weights, place.tile);
    tokens = cta.wgmma_descriptor(storage.tokens[at.stage][panel_of_stage].rows);
    multipliers = tile.template multipliers<Cta>(lane);
  };
  const auto start = [&](int half, std::uint32_t(&steps)[2][4]) {
    if constexpr (loads_operands) tile.load_half(lane, read, weights, place.tile, half);
    tile.template decode<Cta>(multipliers, half, steps);
    start_half<Row, N>(cta, half, tokens, steps, sums);
  };
  enter_panel();
  start(0, first_steps);
  start(1, second_steps);
  for (int panel = 1; panel < params.records; ++panel) {
    device::Mbarrier* before = &storage.empty[at.stage];
    const bool ended_stage = ++panel_of_stage == Row::panels;
    if (ended_stage) {
      at.advance();
      panel_of_stage = 0;
    }
    enter_panel();
    cta.template wgmma_wait<1>();  // the first half of the panel before: its operands are free
    start(0, first_steps);
    cta.template wgmma_wait<1>();  // and its second half: so is its stage, if it was the last panel there
    release(cta, before, ended_stage);
    start(1, second_steps);
  }
  cta.template wgmma_wait<0>();
  // The compiler knows nothing of products in flight: no use of a sum may move above the wait.
#pragma unroll
  for (int i = 0; i < N / 2; ++i) sums[i] = Cta::keep(sums[i]);
  release(cta, &storage.empty[at.stage]);
  at.advance();
}

// The instruction's width is part of its encoding: one loop per width of padded_columns(). Widths that a row
// does not have cost nothing.
template <class Row, int N, class Cta>
FOURFOLD_DEVICE void multiply_width(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage,
                                    device::PipelineCursor<Row::stages>& at, const Item& item,
                                    const GroupPlace& place, float (&sums)[Row::n / 2]) {
  if constexpr (N <= Row::n && padded_columns<Row>(N) == N) {
    if (item.columns == N) multiply_columns<Row, N>(cta, params, storage, at, place, sums);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_tiles_wgmma(Cta cta, const moe::GemmParams& params,
                                          typename Row::Storage& storage) {
  const GroupPlace place(cta.warp());
  device::PipelineCursor<Row::stages> at;
  TileWalk<Row, Cta> walk(cta, params);
  if (walk.done()) return;
  Item next = walk.item();
  while (!walk.done()) {
    const Item item = next;
    // What the end of this item and the start of the next one need is on its way during the main loop.
    const Factors factors = factors_of<Row>(cta, params, item.tile.expert);
    const TokenWeights<Row::n> weights(cta, params.op == moe::Op::down ? params.slot_weight : nullptr,
                                       item.tile);
    walk.advance();
    if (!walk.done()) next = walk.item();
    float sums[Row::n / 2];
#pragma unroll
    for (int i = 0; i < Row::n / 2; ++i) sums[i] = 0.0f;
    multiply_width<Row, 8>(cta, params, storage, at, item, place, sums);
    multiply_width<Row, 16>(cta, params, storage, at, item, place, sums);
    multiply_width<Row, 24>(cta, params, storage, at, item, place, sums);
    multiply_width<Row, 32>(cta, params, storage, at, item, place, sums);
    multiply_width<Row, 48>(cta, params, storage, at, item, place, sums);
    multiply_width<Row, 64>(cta, params, storage, at, item, place, sums);
    multiply_width<Row, 80>(cta, params, storage, at, item, place, sums);
    multiply_width<Row, 96>(cta, params, storage, at, item, place, sums);
    multiply_width<Row, 112>(cta, params, storage, at, item, place, sums);
    multiply_width<Row, 128>(cta, params, storage, at, item, place, sums);
    multiply_width<Row, 256>(cta, params, storage, at, item, place, sums);
    finish_group<Row>(cta, params, item, factors, weights, place, sums, storage.staging[place.group]);
  }
}

}  // namespace fourfold::moe_gemm
