// The math role with warp-level tensor-core instructions: bf16 (weights decoded in registers) or FP4.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe_gemm/finish_tile.h"
#include "kernels/moe_gemm/tile_row.h"
#include "kernels/moe_gemm/tile_walk.h"
#include "kernels/moe_stream/multiply_a4.h"
#include "kernels/record/lane_tile.h"

namespace fourfold::moe_gemm {

// Where a math warp works inside the tile.
template <class Row>
struct WarpPlace {
  int strip;         // of the tile
  int tile;          // first m16 tile of the strip
  int token_column;  // this warp's groups of eight tokens are token_column, + warps_along_n, ...
  FOURFOLD_DEVICE explicit WarpPlace(int warp) {
    const int row = warp % Row::warps_along_m;
    strip = row * Row::tiles_per_warp / 2;
    tile = Row::tiles_per_warp == 2 ? 0 : row % 2;
    token_column = warp / Row::warps_along_m;
  }
};

template <class Row>
inline constexpr int kGroupsPerWarp = Row::tokens_per_warp / 8;

template <class Row>
using WarpSums = float[Row::tiles_per_warp][kGroupsPerWarp<Row>][4];

// One panel (64 columns) of bf16 tokens.
template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_half_panel(Cta cta, const record::WeightRecord<typename Row::Format>& record,
                                         const TokenPanel<Row::n>& tokens, const WarpPlace<Row>& place,
                                         int groups, WarpSums<Row>& sums) {
  const int lane = cta.lane();
  const auto read = [&](const auto* from) { return cta.load_shared(from); };
  record::LaneTiles<typename Row::Format, Row::tiles_per_warp> weights;
  if constexpr (!kScalesRows<Row>) weights.load(lane, read, record.payload, place.tile);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t steps[Row::tiles_per_warp][2][4];
#pragma unroll
    for (int m = 0; m < Row::tiles_per_warp; ++m) {
      // Wider weights half by half, or their registers would be those of another accumulator.
      if constexpr (kScalesRows<Row>)
        weights.tile[m].load_half(lane, read, record.payload, place.tile + m, half);
      weights.template decode<Cta>(lane, m, place.tile, half, steps[m]);
    }
#pragma unroll
    for (int n = 0; n < kGroupsPerWarp<Row>; ++n) {
      const int group = n * Row::warps_along_n + place.token_column;
      if (group < groups) {
        // Matrix i of the four is chunk i of this half; its rows are the group's tokens.
        const device::U32x4 b = cta.load_matrix_x4(
            tokens.rows + device::swizzled_offset(8 * group + (lane & 7), 4 * half + (lane >> 3)));
#pragma unroll
        for (int m = 0; m < Row::tiles_per_warp; ++m) {
          cta.mma_bf16(sums[m][n], steps[m][0], b.v[0], b.v[1]);
          cta.mma_bf16(sums[m][n], steps[m][1], b.v[2], b.v[3]);
        }
      }
    }
  }
}

// One panel of token records.
template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_fp4_panel(Cta cta, const typename Row::Storage::Stage& stage, int panel,
                                        const WarpPlace<Row>& place, int groups, WarpSums<Row>& sums) {
  const int lane = cta.lane(), g = lane >> 2, t = lane & 3;
  const auto& record = stage.weights.strip[place.strip][panel];
  device::U32x4 tile[2];
#pragma unroll
  for (int m = 0; m < 2; ++m)
    tile[m] = cta.load_shared(
        reinterpret_cast<const device::U32x4*>(record.payload + record::payload_offset(m, lane)));
  std::uint32_t scale_a;
  if constexpr (Row::Format::scale_word_bytes == 4) {
    scale_a = cta.load_shared(reinterpret_cast<const std::uint32_t*>(record.scales) + lane);
  } else {
    const std::uint32_t pair =
        cta.load_shared(reinterpret_cast<const std::uint32_t*>(record.scales) + (lane >> 1));
    scale_a = (lane & 1) ? pair >> 16 : pair & 0xFFFFu;
  }
  const auto& tokens = stage.tokens;
#pragma unroll
  for (int c = 0; c < kGroupsPerWarp<Row>; c += 4) {
    // One word a lane carries the token scales of four groups: lane t that of group c + t.
    const int mine = (c + t) * Row::warps_along_n + place.token_column;
    const std::uint32_t scale_b = cta.load_shared(
        reinterpret_cast<const std::uint32_t*>(tokens[mine < groups ? mine : groups - 1][panel].scales) + g);
#pragma unroll
    for (int n = c; n < c + 4 && n < kGroupsPerWarp<Row>; ++n) {
      const int group = n * Row::warps_along_n + place.token_column;
      if (group < groups) {
        const device::U32x2 b =
            cta.load_shared(reinterpret_cast<const device::U32x2*>(tokens[group][panel].payload) + lane);
#pragma unroll
        for (int m = 0; m < 2; ++m)
          moe_stream::mma_selected<Row>(cta, m, n, sums[m][n], tile[m].v, b.v[0], b.v[1], scale_a, scale_b);
      }
    }
  }
}

// Factors of the matrix and of its rows, or biases of these, into the sums.
template <class Row, class Cta>
FOURFOLD_DEVICE void scale_sums(Cta cta, const moe::GemmParams& params, const Item& item,
                                const Factors& factors, const WarpPlace<Row>& place, WarpSums<Row>& sums) {
  const int strip = item.first_strip + place.strip;
#pragma unroll
  for (int m = 0; m < Row::tiles_per_warp; ++m) {
    const device::F32x2 rows = kAddsBias<Row>
                                   ? moe::row_biases(cta, params, item.tile.expert, strip, place.tile + m)
                                   : moe::row_factors(cta, params, item.tile.expert, strip, place.tile + m);
#pragma unroll
    for (int n = 0; n < kGroupsPerWarp<Row>; ++n)
      if constexpr (kAddsBias<Row>)
        moe::bias_rows<Cta>(sums[m][n], factors.gate, factors.up, rows);
      else
        moe::scale_rows<Cta>(sums[m][n], factors.gate, factors.up, rows);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void finish_sums(Cta cta, const moe::GemmParams& params, const Item& item,
                                 const WarpPlace<Row>& place, WarpSums<Row>& sums) {
  const int strip = item.first_strip + place.strip;
  if (strip >= params.strips) return;
  Factors factors = factors_of<Row>(cta, params, item.tile.expert);
  if constexpr (kScalesRows<Row> || kAddsBias<Row>) {
    scale_sums<Row>(cta, params, item, factors, place, sums);
    factors.gate = factors.up = 1.0f;
  }
#pragma unroll
  for (int n = 0; n < kGroupsPerWarp<Row>; ++n) {
    const int group = n * Row::warps_along_n + place.token_column;
    const moe::TokenGroup tokens{item.tile.first_slot + 8 * group, item.tile.count - 8 * group};
    if (tokens.count <= 0) break;
    if constexpr (Row::tiles_per_warp == 2)
      finish_strip<Row>(cta, params, factors, strip, tokens, sums[0][n], sums[1][n]);
    else
      finish_tile<Row>(cta, params, factors, strip, place.tile, tokens, sums[0][n]);
  }
}

// All lanes have read it, so lane 0 may give it back.
template <class Cta>
FOURFOLD_DEVICE void release(Cta cta, device::Mbarrier* empty) {
  cta.sync_warp();
  if (cta.lane() < Cta::kWarpArrivals) cta.arrive(empty);
}

// Where the math role stands in the rings.
template <class Row>
struct MathCursors {
  device::PipelineCursor<Row::stages> stage;
  device::PipelineCursor<(Row::token_panels > 0 ? Row::token_panels : 1)> panel;  // 16-bit paths
};

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_half_item(Cta cta, const moe::GemmParams& params,
                                        typename Row::Storage& storage, MathCursors<Row>& at,
                                        const WarpPlace<Row>& place, int groups, WarpSums<Row>& sums) {
  for (int s = 0; s < stages_of_k<Row>(params); ++s) {
    cta.wait(&storage.weights_full[at.stage.stage], at.stage.phase);  // the records have landed
    const auto& weights = storage.weights[at.stage.stage];
    const int panels = panels_of_stage<Row>(params, s);
    for (int panel = 0; panel < panels; ++panel) {
      cta.wait(&storage.tokens_full[at.panel.stage],
               at.panel.phase);  // the rows of every producer thread have landed
      multiply_half_panel<Row>(cta, weights.strip[place.strip][panel], storage.tokens[at.panel.stage], place,
                               groups, sums);
      release(cta, &storage.tokens_empty[at.panel.stage]);
      at.panel.advance();
    }
    release(cta, &storage.weights_empty[at.stage.stage]);
    at.stage.advance();
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_fp4_item(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage,
                                       MathCursors<Row>& at, const WarpPlace<Row>& place, int groups,
                                       WarpSums<Row>& sums) {
  for (int s = 0; s < stages_of_k<Row>(params); ++s) {
    cta.wait(&storage.full[at.stage.stage], at.stage.phase);  // records and tokens have landed
    const int panels = panels_of_stage<Row>(params, s);
    for (int panel = 0; panel < panels; ++panel)
      multiply_fp4_panel<Row>(cta, storage.stage[at.stage.stage], panel, place, groups, sums);
    release(cta, &storage.empty[at.stage.stage]);
    at.stage.advance();
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_tiles_mma(Cta cta, const moe::GemmParams& params,
                                        typename Row::Storage& storage) {
  const WarpPlace<Row> place(cta.warp());
  MathCursors<Row> at;
  for (TileWalk<Row, Cta> walk(cta, params); !walk.done(); walk.advance()) {
    const Item item = walk.item();
    const int groups = (item.tile.count + 7) / 8;
    WarpSums<Row> sums;
#pragma unroll
    for (int m = 0; m < Row::tiles_per_warp; ++m)
#pragma unroll
      for (int n = 0; n < kGroupsPerWarp<Row>; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
    if constexpr (Row::Path::half_tokens)
      multiply_half_item<Row>(cta, params, storage, at, place, groups, sums);
    else
      multiply_fp4_item<Row>(cta, params, storage, at, place, groups, sums);
    finish_sums<Row>(cta, params, item, place, sums);
  }
}

}  // namespace fourfold::moe_gemm
