// The tiled kernel: grouped GEMM for prompts, persistent and warp-specialised. See README.md for the picture.
#pragma once

#include <type_traits>

#include "base/macros.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_gemm/load_tiles.h"
#include "kernels/moe_gemm/multiply_fp8_mma.h"
#include "kernels/moe_gemm/multiply_mma.h"
#include "kernels/moe_gemm/multiply_wgmma.h"
#include "kernels/moe_gemm/tile_row.h"

namespace fourfold::moe_gemm {

enum class WarpRole { load, math };

template <class Row>
FOURFOLD_DEVICE WarpRole role_of(int warp) {
  return warp < Row::math_warps ? WarpRole::math : WarpRole::load;
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_tiles(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage) {
  if constexpr (moe::kUsesWgmma<typename Row::Path>)
    multiply_tiles_wgmma<Row>(cta, params, storage);
  else if constexpr (moe::kTakesFp8<typename Row::Path>)
    multiply_tiles_fp8_mma<Row>(cta, params, storage);
  else
    multiply_tiles_mma<Row>(cta, params, storage);
}

template <class Row, class Cta>
FOURFOLD_DEVICE void init_barriers(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage) {
  constexpr int gatherers = 32 * Row::producer_warps;  // each thread announces its own copies
  if constexpr (Row::two_rings) {
    for (int stage = 0; stage < Row::stages; ++stage) {
      cta.init(&storage.weights_full[stage], 1);  // the thread that expects the bytes
      cta.init(&storage.weights_empty[stage], Row::math_warps * Cta::kWarpArrivals);
    }
    for (int panel = 0; panel < Row::token_panels; ++panel) {
      cta.init(&storage.tokens_full[panel], gatherers);
      cta.init(&storage.tokens_empty[panel], Row::math_warps * Cta::kWarpArrivals);
    }
  } else {
    const bool gathers = Row::Path::half_tokens || gathers_records(params);
    for (int stage = 0; stage < Row::stages; ++stage) {
      cta.init(&storage.full[stage], gathers ? 1 + gatherers : 1);
      cta.init(&storage.empty[stage], Row::math_warps * Cta::kWarpArrivals);
    }
  }
  cta.fence_barrier_init();
}

template <class Row, class Cta>
FOURFOLD_DEVICE void tile_gemm(Cta cta, const moe::GemmParams& params) {
  auto& storage = cta.template shared<typename Row::Storage>();
  if (cta.thread() == 0) init_barriers<Row>(cta, params, storage);
  cta.sync_block();  // the barriers exist before anyone uses them
  // The tables and tokens come from the kernel before; successors may start as soon as ours are visible.
  cta.wait_predecessors();
  cta.release_successors();
  switch (role_of<Row>(cta.warp())) {
    case WarpRole::load:
      if constexpr (Row::hands_over_registers) cta.template drop_registers<Row::producer_registers>();
      load_tiles<Row>(cta, params, storage);
      break;
    case WarpRole::math:
      if constexpr (Row::hands_over_registers) cta.template raise_registers<Row::math_registers>();
      multiply_tiles<Row>(cta, params, storage);
      break;
  }
}

}  // namespace fourfold::moe_gemm
