// Prompt attention with mma: a block takes one head of one tile, a warp 16 of its rows and all of the head's
// dimensions. Keys and values pass through the ring of piece_ring.h and are read by every warp; scores,
// weights and sums stay in registers.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/attention/operands.h"
#include "kernels/attention/piece_ring.h"
#include "kernels/attention/prompt_tile.h"

namespace fourfold::attention {

template <class Row, class Cta>
FOURFOLD_DEVICE void score_prompt_page(Cta cta, typename Row::Storage& storage, PieceRing<Row>& ring,
                                       const PageList& list, int warp, float (&score)[8][4]) {
  using Layout = typename Row::Layout;
  constexpr int steps = Layout::key_piece_dims / 16;
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) score[n][i] = 0.0f;
      // Rolled, or the scheduler reads ahead more than there are registers.
#pragma unroll 1
  for (int piece = 0; piece < Layout::pieces; ++piece) {
    const unsigned char* keys = ring.take(cta, storage, list, warp == 0);
#pragma unroll
    for (int step = 0; step < steps; step += 4) {
      std::uint32_t a[4][4];
#pragma unroll
      for (int s = 0; s < 4; ++s)
        load_rows<kTileRows>(cta, storage.query, warp, piece * steps + step + s, a[s]);
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        std::uint32_t b[4][2][2];
        load_keys<Layout>(cta, keys, 16 * pair, step, b);
#pragma unroll
        for (int s = 0; s < 4; ++s)
#pragma unroll
          for (int n = 0; n < 2; ++n) cta.mma_bf16(score[2 * pair + n], a[s], b[s][n][0], b[s][n][1]);
      }
    }
    cta.sync_warp();  // every lane has read
    ring.give_back(cta, storage);
  }
}

// Masked: a tile's last page, which may have positions that were never written.
template <class Row, bool Masked, class Cta>
FOURFOLD_DEVICE void add_prompt_values(Cta cta, typename Row::Storage& storage, PieceRing<Row>& ring,
                                       const PageList& list, int warp, int written,
                                       const std::uint32_t (&weight)[4][4],
                                       float (&sums)[Row::head_dim / 8][4]) {
  using Layout = typename Row::Layout;
  constexpr int tiles = Layout::value_piece_dims / 8;
  std::uint32_t mask[4][2];
  if constexpr (Masked) mask_values(cta, written, mask);
#pragma unroll
  for (int piece = 0; piece < Layout::pieces; ++piece) {
    const unsigned char* values = ring.take(cta, storage, list, warp == 0);
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      // No value is read ahead of this: decoded numbers of many tiles would not fit the registers.
      if constexpr (Layout::Kv::bytes == 1) {
        if (n % 4 == 0) cta.sync_warp();
      }
      std::uint32_t b[4][2];
      load_values<Layout>(cta, values, 8 * n, b);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        if constexpr (Masked) {
          b[step][0] &= mask[step][0];
          b[step][1] &= mask[step][1];
        }
        cta.mma_bf16(sums[piece * tiles + n], weight[step], b[step][0], b[step][1]);
      }
    }
    cta.sync_warp();  // every lane has read
    ring.give_back(cta, storage);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void attend_tile(Cta cta, const PromptParams& params, typename Row::Storage& storage,
                                 PieceRing<Row>& ring, const PromptUnit& unit, int warp) {
  const PageList list = list_tile_pages<typename Row::Layout>(params, unit);
  ring.enter();
  if (warp == 0) ring.start(cta, storage, list);
  cta.sync_block();  // all warps have left the tile before
  stage_vectors<typename Row::Layout, kTileRows, Row::threads>(
      cta, cta.thread(), storage.query, [&](int i) -> const std::uint16_t* {
        const int row = unit.row(i);
        if (row < 0) return nullptr;
        return params.query +
               (static_cast<std::int64_t>(row) * params.heads + unit.first_head) * Row::head_dim;
      });
  cta.sync_block();  // the query rows are in place
  const int first_row = 16 * warp + (cta.lane() >> 2);
  const float scale_log2[2] = {params.scale_log2, params.scale_log2};
  PromptSoftmax state{{kFirstLargest<Row>, kFirstLargest<Row>}};
  float sums[Row::head_dim / 8][4] = {};
  for (int page = 0; page < unit.pages; ++page) {
    const bool last = page == unit.pages - 1;
    float score[8][4], factor[2];
    std::uint32_t weight[4][4];
    score_prompt_page<Row>(cta, storage, ring, list, warp, score);
    if (last) hide_later(cta, first_row, score);
    hide_earlier<Row>(cta, params, unit, page, first_row, score);
    weigh_page(cta, score, scale_log2, state, factor, weight);
    rescale_sums(cta, factor, sums);
    if (last)
      add_prompt_values<Row, true>(cta, storage, ring, list, warp, unit.written, weight, sums);
    else
      add_prompt_values<Row, false>(cta, storage, ring, list, warp, unit.written, weight, sums);
  }
  finish_tile<Row>(cta, params, unit, unit.first_head, first_row, state, sums);
}

template <class Row, class Cta>
FOURFOLD_DEVICE void attend_prompt(Cta cta, const PromptParams& params) {
  auto& storage = cta.template shared<typename Row::Storage>();
  const int warp = cta.warp();
  PieceRing<Row> ring;
  PieceRing<Row>::init(cta, storage);
  cta.wait_predecessors();
  cta.release_successors();
  for (std::int64_t index = cta.block();; index += cta.blocks()) {
    const PromptUnit unit = find_prompt_unit<Row>(cta, params, index);
    if (unit.found.sequence < 0) return;
    attend_tile<Row>(cta, params, storage, ring, unit, warp);
  }
}

}  // namespace fourfold::attention
