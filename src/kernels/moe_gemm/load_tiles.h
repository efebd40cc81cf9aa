// The load role: fills the ring of stages. Weight records come as plain 1-D bulk copies, one per strip. bf16 tokens are
// gathered row by row in 16-byte chunks into the swizzle; token records are bulk copies, one per group of eight.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_gemm/tile_row.h"
#include "kernels/moe_gemm/tile_walk.h"

namespace fourfold::moe_gemm {

// Weights of one stage. Called by one producer warp; a lane per strip. other_bytes: what else will land on the barrier.
template <class Row, class Cta>
FOURFOLD_DEVICE void load_weights(Cta cta, const moe::GemmParams& params, WeightStage<typename Row::Shape>& to,
                                  device::Mbarrier* full, const Item& item, int stage_of_k, int other_bytes) {
  const int panels = panels_of_stage<Row>(params, stage_of_k);
  const int bytes = panels * static_cast<int>(sizeof(record::WeightRecord<typename Row::Format>));
  const int lane = cta.lane();
  // Copies may complete before their bytes are expected: the phase cannot end before this arrival.
  if (lane == 0) cta.arrive_expect(full, bytes * Row::strips + other_bytes);
  if (lane < Row::strips) {
    // A tile that reaches past the matrix repeats its last strip; the rows are not stored.
    const int wanted = item.first_strip + lane;
    const std::int64_t strip = wanted < params.strips ? wanted : params.strips - 1;
    const std::int64_t record =
        (static_cast<std::int64_t>(item.tile.expert) * params.strips + strip) * params.records + stage_of_k * Row::panels;
    cta.bulk_load(&to.strip[lane][0], params.weights + record * sizeof(record::WeightRecord<typename Row::Format>),
                  bytes, full);
  }
}

// ---- bf16 tokens ----

template <class Row>
struct TokenRows {
  static constexpr int threads = 32 * Row::producer_warps;
  static constexpr int rows_per_pass = threads / 8;  // eight 16-byte chunks make a 128-byte row of a panel
  static constexpr int passes = (Row::n + rows_per_pass - 1) / rows_per_pass;
  std::uint32_t row[passes];  // index into params.tokens
};

template <class Row, class Cta>
FOURFOLD_DEVICE void find_rows(Cta cta, const moe::GemmParams& params, const Item& item, int thread,
                               TokenRows<Row>& rows) {
#pragma unroll
  for (int pass = 0; pass < TokenRows<Row>::passes; ++pass) {
    const int place = pass * TokenRows<Row>::rows_per_pass + thread / 8;
    const int slot = item.tile.first_slot + (place < item.tile.count ? place : item.tile.count - 1);
    rows.row[pass] = static_cast<std::uint32_t>(params.slot_token ? cta.load(params.slot_token + slot) : slot);
  }
}

// One panel: eight neighbouring lanes bring a row's 128 bytes.
template <class Row, class Cta>
FOURFOLD_DEVICE void copy_rows(Cta cta, const moe::GemmParams& params, TokenPanel<Row::n>& to, const Item& item,
                               int panel_of_k, int thread, const TokenRows<Row>& rows) {
  const std::int64_t row_bytes = static_cast<std::int64_t>(params.records) * 128;
  const unsigned char* from = params.tokens + panel_of_k * 128 + 16 * (thread % 8);
#pragma unroll
  for (int pass = 0; pass < TokenRows<Row>::passes; ++pass) {
    const int place = pass * TokenRows<Row>::rows_per_pass + thread / 8;
    if (place < item.columns)
      cta.copy_16_async(to.rows + device::swizzled_offset(place, thread % 8), from + rows.row[pass] * row_bytes);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void load_half_tiles(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage) {
  device::PipelineCursor<Row::stages> weights;
  device::PipelineCursor<Row::token_panels> fill;
  const int thread = cta.thread() - 32 * Row::math_warps;
  const bool loads_weights = cta.warp() == Row::math_warps;
  for (TileWalk<Row, Cta> walk(cta, params); !walk.done(); walk.advance()) {
    const Item item = walk.item();
    TokenRows<Row> rows;
    find_rows<Row>(cta, params, item, thread, rows);
    for (int panel = 0; panel < params.records; ++panel) {
      // Each slot was released by the math warps one lap ago; a fresh barrier reports its previous phase as complete, so
      // the first lap never blocks.
      if (loads_weights && panel % Row::panels == 0) {
        cta.wait(&storage.weights_empty[weights.stage], weights.phase ^ 1u);
        load_weights<Row>(cta, params, storage.weights[weights.stage], &storage.weights_full[weights.stage], item,
                          panel / Row::panels, 0);
        weights.advance();
      }
      cta.wait(&storage.tokens_empty[fill.stage], fill.phase ^ 1u);
      copy_rows<Row>(cta, params, storage.tokens[fill.stage], item, panel, thread, rows);
      // The copies announce themselves: a producer that waited for its own (and fenced them for wgmma) would have one
      // panel in flight at a time.
      cta.copy_arrive(&storage.tokens_full[fill.stage]);
      fill.advance();
    }
  }
}

// ---- token records ----

template <class Row, class Cta>
FOURFOLD_DEVICE void load_fp4_tiles(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage) {
  if (cta.warp() != Row::math_warps) return;  // one warp is enough
  device::PipelineCursor<Row::stages> fill;
  const int lane = cta.lane();
  const int stages = stages_of_k<Row>(params);
  for (TileWalk<Row, Cta> walk(cta, params); !walk.done(); walk.advance()) {
    const Item item = walk.item();
    const int groups = (item.tile.count + record::kTokens - 1) / record::kTokens;
    for (int s = 0; s < stages; ++s) {
      cta.wait(&storage.empty[fill.stage], fill.phase ^ 1u);  // released by the math warps one lap ago
      const int bytes = panels_of_stage<Row>(params, s) * record::kTokenRecordBytes;
      device::Mbarrier* full = &storage.full[fill.stage];
      auto& stage = storage.stage[fill.stage];
      load_weights<Row>(cta, params, stage.weights, full, item, s, bytes * groups);
      for (int group = lane; group < groups; group += 32) {
        const std::int64_t first =
            (item.tile.first_slot / record::kTokens + group) * static_cast<std::int64_t>(params.records) + s * Row::panels;
        cta.bulk_load(&stage.tokens[group][0], params.tokens + first * record::kTokenRecordBytes, bytes, full);
      }
      fill.advance();
    }
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void load_tiles(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage) {
  if constexpr (Row::Path::half_tokens)
    load_half_tiles<Row>(cta, params, storage);
  else
    load_fp4_tiles<Row>(cta, params, storage);
}

}  // namespace fourfold::moe_gemm
