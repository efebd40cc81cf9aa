// The load role: fills the rings. Weight records come as plain 1-D bulk copies, one per strip. bf16
// tokens are gathered row by row in 16-byte chunks into the swizzle. Token records are bulk copies, one per
// group of eight slots; or, where they hold the rows of a norm and not an expert's slots, gathered token by
// token.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_gemm/tile_row.h"
#include "kernels/moe_gemm/tile_walk.h"

namespace fourfold::moe_gemm {

// Weights of one stage, by `Warps` producer warps of which this is number `warp`; a lane per strip.
// other_bytes: what else will land on the barrier.
template <class Row, int Warps, class Cta>
FOURFOLD_DEVICE void load_weights(Cta cta, const moe::GemmParams& params,
                                  WeightStage<typename Row::Shape>& to, device::Mbarrier* full,
                                  const Item& item, int stage_of_k, int other_bytes, int warp) {
  const int panels = panels_of_stage<Row>(params, stage_of_k);
  const int bytes = panels * static_cast<int>(sizeof(record::WeightRecord<typename Row::Format>));
  const int place = warp + Warps * cta.lane();
  // Copies may complete before their bytes are expected: the phase cannot end before this arrival.
  if (place == 0) cta.arrive_expect(full, bytes * Row::strips + other_bytes);
  if (place < Row::strips) {
    // A tile that reaches past the matrix repeats its last strip; the rows are not stored.
    const int wanted = item.first_strip + place;
    const std::int64_t strip = wanted < params.strips ? wanted : params.strips - 1;
    const std::int64_t record =
        (static_cast<std::int64_t>(item.tile.expert) * params.strips + strip) * params.records +
        stage_of_k * Row::panels;
    cta.bulk_load(&to.strip[place][0],
                  params.weights + record * sizeof(record::WeightRecord<typename Row::Format>), bytes, full);
  }
}

// ---- tokens as rows ----

// Producer threads gather rows together: eight 16-byte chunks make a 128-byte row of a panel. A thread keeps
// where its rows are, counted in 16-byte chunks: half the registers of pointers, and one instruction makes an
// address of it.
template <class Row>
struct TokenRows {
  static constexpr int rows_per_pass = 4 * Row::producer_warps;
  static constexpr int passes = (Row::n + rows_per_pass - 1) / rows_per_pass;
  static_assert(rows_per_pass % 8 == 0 || passes == 1,
                "the swizzle of a thread must be the same in every pass");
  std::uint32_t chunk[passes];
};

template <class Row, class Cta>
FOURFOLD_DEVICE void find_rows(Cta cta, const moe::GemmParams& params, const Item& item, int thread,
                               TokenRows<Row>& rows) {
#pragma unroll
  for (int pass = 0; pass < TokenRows<Row>::passes; ++pass) {
    const int place = pass * TokenRows<Row>::rows_per_pass + thread / 8;
    const int slot = item.tile.first_slot + (place < item.tile.count ? place : item.tile.count - 1);
    const int row = params.slot_token ? cta.load(params.slot_token + slot) : slot;
    constexpr std::uint32_t record_chunks = Row::record_token_bytes / 16;
    rows.chunk[pass] =
        static_cast<std::uint32_t>(row) * static_cast<std::uint32_t>(params.records) * record_chunks;
  }
}

// Panels neighbouring panels: eight neighbouring lanes bring 128 bytes of a row at a time. `from` is the
// thread's chunk of the first panel in token row 0.
template <class Row, int Panels, class Cta>
FOURFOLD_DEVICE void copy_rows(Cta cta, TokenPanel<Row::n>* to, const unsigned char* from, const Item& item,
                               int thread, const TokenRows<Row>& rows) {
  unsigned char* first = Cta::keep(to->rows + device::swizzled_offset(thread / 8, thread % 8));
  const int left = padded_columns<Row>(item.tile.count) - thread / 8;
#pragma unroll
  for (int pass = 0; pass < TokenRows<Row>::passes; ++pass) {
    const int before = pass * TokenRows<Row>::rows_per_pass;
    if (before >= left) continue;
    const unsigned char* row = from + static_cast<std::uint64_t>(rows.chunk[pass]) * 16u;
#pragma unroll
    for (int panel = 0; panel < Panels; ++panel)
      cta.copy_16_async(first + panel * sizeof(TokenPanel<Row::n>) + before * 128, row + panel * 128);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void load_half_tiles(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage) {
  device::PipelineCursor<Row::stages> weights;
  device::PipelineCursor<Row::token_panels> fill;
  const int thread = cta.thread() - 32 * Row::math_warps;
  const int warp = cta.warp() - Row::math_warps;
  for (TileWalk<Row, Cta> walk(cta, params); !walk.done(); walk.advance()) {
    const Item item = walk.item();
    TokenRows<Row> rows;
    find_rows<Row>(cta, params, item, thread, rows);
    for (int panel = 0; panel < params.records; ++panel) {
      // Each slot was released by the math warps one lap ago; a fresh barrier reports its previous phase as
      // complete, so the first lap never blocks.
      if (panel % Row::panels == 0) {
        cta.wait(&storage.weights_empty[weights.stage], weights.phase ^ 1u);
        load_weights<Row, Row::producer_warps>(cta, params, storage.weights[weights.stage],
                                               &storage.weights_full[weights.stage], item,
                                               panel / Row::panels, 0, warp);
        weights.advance();
      }
      cta.wait(&storage.tokens_empty[fill.stage], fill.phase ^ 1u);
      copy_rows<Row, 1>(cta, &storage.tokens[fill.stage],
                        Cta::keep(params.tokens + panel * 128 + 16 * (thread % 8)), item, thread, rows);
      // The copies announce themselves: a producer that waited for its own (and fenced them for wgmma) would
      // have one panel in flight at a time.
      cta.copy_arrive(&storage.tokens_full[fill.stage]);
      fill.advance();
    }
  }
}

// One ring: both operands of a stage behind one barrier. Everything that does not change from stage to stage
// is worked out once an item: four producer warps that share the SM with sixteen busy ones are slow, and the
// math warps wait for them.
template <class Row, class Cta>
FOURFOLD_DEVICE void load_group_tiles(Cta cta, const moe::GemmParams& params,
                                      typename Row::Storage& storage) {
  constexpr int record_bytes = static_cast<int>(sizeof(record::WeightRecord<typename Row::Format>));
  device::PipelineCursor<Row::stages> fill;
  const int thread = cta.thread() - 32 * Row::math_warps;
  const int place = cta.warp() - Row::math_warps + Row::producer_warps * cta.lane();  // strip of this thread
  const int first_panels = panels_of_first_stage<Row>(params);
  for (TileWalk<Row, Cta> walk(cta, params); !walk.done(); walk.advance()) {
    const Item item = walk.item();
    TokenRows<Row> rows;
    find_rows<Row>(cta, params, item, thread, rows);
    // A tile that reaches past the matrix repeats its last strip; the rows are not stored.
    const int wanted = item.first_strip + place;
    const int strip =
        item.tile.expert * params.strips + (wanted < params.strips ? wanted : params.strips - 1);
    std::uint32_t record = static_cast<std::uint32_t>(strip) * static_cast<std::uint32_t>(params.records);
    const unsigned char* tokens = params.tokens + 16 * (thread % 8);
    int left = params.records;
    for (int panels = first_panels; left > 0; panels = Row::panels) {
      cta.wait(&storage.empty[fill.stage], fill.phase ^ 1u);  // released by the math warps one lap ago
      device::Mbarrier* full = &storage.full[fill.stage];
      // Copies may complete before their bytes are expected: the phase cannot end before this arrival.
      if (place == 0) cta.arrive_expect(full, panels * record_bytes * Row::strips);
      if (place < Row::strips)
        cta.bulk_load(&storage.weights[fill.stage].strip[place][0],
                      params.weights + static_cast<std::uint64_t>(record) * record_bytes,
                      panels * record_bytes, full);
      TokenPanel<Row::n>* to = storage.tokens[fill.stage];
      if (panels == Row::panels) {
        copy_rows<Row, Row::token_panels_of_stage>(cta, to, tokens, item, thread, rows);
      } else if constexpr (Row::Path::token_bytes == 1) {
        // One record: half of the panel's rows.
        if (thread % 8 < Row::record_token_bytes / 16) copy_rows<Row, 1>(cta, to, tokens, item, thread, rows);
      } else {
#pragma unroll 1
        for (int panel = 0; panel < panels; ++panel)
          copy_rows<Row, 1>(cta, to + panel, Cta::keep(tokens + panel * 128), item, thread, rows);
      }
      cta.copy_arrive(full);
      fill.advance();
      record += panels;
      tokens += panels * Row::record_token_bytes;
      left -= panels;
    }
  }
}

// ---- token records ----

// Whether token records hold rows, which slots name; else they hold the slots.
FOURFOLD_DEVICE bool gathers_records(const moe::GemmParams& params) { return params.slot_token != nullptr; }

// A token of a record is 32 bytes of codes, which two neighbouring threads bring, and a word of scales, which
// the first of them brings. A thread keeps which rows its tokens are; of 256 tokens it has no room for them
// and asks again.
template <class Row>
struct RecordRows {
  static constexpr int tokens_per_pass = 16 * Row::producer_warps;
  static constexpr int passes = (Row::n + tokens_per_pass - 1) / tokens_per_pass;
  static constexpr bool are_kept = passes <= 2;
  std::uint32_t row[are_kept ? passes : 1];
};

// Places beyond the last token, up to a whole group, repeat it; their sums are not stored.
template <class Row, class Cta>
FOURFOLD_DEVICE std::uint32_t record_row(Cta cta, const moe::GemmParams& params, const Item& item,
                                         int place) {
  const int slot = item.tile.first_slot + (place < item.tile.count ? place : item.tile.count - 1);
  return static_cast<std::uint32_t>(cta.load(params.slot_token + slot));
}

template <class Row, class Cta>
FOURFOLD_DEVICE void gather_fp4_tiles(Cta cta, const moe::GemmParams& params,
                                      typename Row::Storage& storage) {
  [[maybe_unused]] constexpr int kUnrolled = RecordRows<Row>::are_kept ? RecordRows<Row>::passes : 1;
  device::PipelineCursor<Row::stages> fill;
  const int thread = cta.thread() - 32 * Row::math_warps;
  const int stages = stages_of_k<Row>(params);
  for (TileWalk<Row, Cta> walk(cta, params); !walk.done(); walk.advance()) {
    const Item item = walk.item();
    const int places = moe::round_up(item.tile.count, record::kTokens);
    RecordRows<Row> rows;
    if constexpr (RecordRows<Row>::are_kept)
#pragma unroll
      for (int pass = 0; pass < RecordRows<Row>::passes; ++pass)
        rows.row[pass] =
            record_row<Row>(cta, params, item, pass * RecordRows<Row>::tokens_per_pass + thread / 2);
    for (int s = 0; s < stages; ++s) {
      cta.wait(&storage.empty[fill.stage], fill.phase ^ 1u);  // released by the math warps one lap ago
      device::Mbarrier* full = &storage.full[fill.stage];
      auto& stage = storage.stage[fill.stage];
      if (thread < 32) load_weights<Row, 1>(cta, params, stage.weights, full, item, s, 0, 0);
      const int panels = panels_of_stage<Row>(params, s);
#pragma unroll kUnrolled
      for (int pass = 0; pass < RecordRows<Row>::passes; ++pass) {
        // Kept: worked out anew for every stage, or a pass would hold more than the loader's registers.
        const int place = pass * RecordRows<Row>::tokens_per_pass + Cta::keep(thread) / 2;
        if (place >= places) continue;
        std::uint32_t row;
        if constexpr (RecordRows<Row>::are_kept)
          row = Cta::keep(rows.row[pass]);
        else
          row = record_row<Row>(cta, params, item, place);
        const std::uint32_t group = row / record::kTokens, in_group = row % record::kTokens;
        const unsigned char* from =
            params.tokens + (static_cast<std::uint64_t>(group) * static_cast<std::uint32_t>(params.records) +
                             static_cast<std::uint32_t>(s * Row::panels)) *
                                record::kTokenRecordBytes;
        record::TokenRecord* to = &stage.tokens[place / record::kTokens][0];
#pragma unroll
        for (int panel = 0; panel < Row::panels; ++panel) {
          if (panel >= panels) break;
          const unsigned char* record = from + panel * record::kTokenRecordBytes;
          cta.copy_16_async(to[panel].payload + 32 * (place % record::kTokens) + 16 * (thread % 2),
                            record + 32 * in_group + 16 * (thread % 2));
          if (thread % 2 == 0)
            cta.copy_4_async(to[panel].scales + 4 * (place % record::kTokens),
                             record + record::kTokenPayloadBytes + 4 * in_group);
        }
      }
      cta.copy_arrive(full);
      fill.advance();
    }
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void load_fp4_tiles(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage) {
  if (gathers_records(params)) return gather_fp4_tiles<Row>(cta, params, storage);
  if (cta.warp() != Row::math_warps) return;  // one warp is enough
  device::PipelineCursor<Row::stages> fill;
  const int lane = cta.lane();
  const int stages = stages_of_k<Row>(params);
  for (TileWalk<Row, Cta> walk(cta, params); !walk.done(); walk.advance()) {
    const Item item = walk.item();
    const int groups = (item.tile.count + record::kTokens - 1) / record::kTokens;
    for (int s = 0; s < stages; ++s) {
      cta.wait(&storage.empty[fill.stage], fill.phase ^ 1u);  // released by the math warps one lap ago
      // The ring does not wait for lanes without a copy: it could go round before one of them has seen the
      // phase, whose parity would then mean another.
      cta.sync_warp();  // every lane has looked
      const int bytes = panels_of_stage<Row>(params, s) * record::kTokenRecordBytes;
      device::Mbarrier* full = &storage.full[fill.stage];
      auto& stage = storage.stage[fill.stage];
      load_weights<Row, 1>(cta, params, stage.weights, full, item, s, bytes * groups, 0);
      for (int group = lane; group < groups; group += 32) {
        const std::int64_t first =
            (item.tile.first_slot / record::kTokens + group) * static_cast<std::int64_t>(params.records) +
            s * Row::panels;
        cta.bulk_load(&stage.tokens[group][0], params.tokens + first * record::kTokenRecordBytes, bytes,
                      full);
      }
      fill.advance();
    }
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void load_tiles(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage) {
  if constexpr (Row::two_rings)
    load_half_tiles<Row>(cta, params, storage);
  else if constexpr (Row::Path::half_tokens)
    load_group_tiles<Row>(cta, params, storage);
  else
    load_fp4_tiles<Row>(cta, params, storage);
}

}  // namespace fourfold::moe_gemm
