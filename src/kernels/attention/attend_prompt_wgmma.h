// Prompt attention with Hopper's warpgroup instruction: two warpgroups take two heads of one KV head, 64 rows
// each, and read the same pages out of shared memory. Query rows are the register operand, read again for
// every page; weights are in the right registers already. K panels and the transposed V are operands as they
// lie. While one warpgroup is in its softmax the other has the tensor cores.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/attention/operands.h"
#include "kernels/attention/piece_ring.h"
#include "kernels/attention/prompt_tile.h"
#include "kernels/device/named_barrier.h"

namespace fourfold::attention {

// Each warpgroup has a named barrier. The loading warp meets the others at mbarriers only: all who wait at a
// named barrier must wait at the same instruction, and its code is not theirs.

// ---- load ---- one warp

// Positions of V that were never written may hold anything, and 0 * NaN is not 0: they become 0 in shared
// memory.
template <class Row, class Cta>
FOURFOLD_DEVICE void clear_tail(Cta cta, unsigned char* values, int written) {
  using Layout = typename Row::Layout;
  const int full = written / 8, rest = written % 8;
#pragma unroll 1
  for (int dim = cta.lane(); dim < Layout::head_dim; dim += 32)
#pragma unroll 1
    for (int chunk = full; chunk < 8; ++chunk) {
      auto* at = reinterpret_cast<device::U32x4*>(
          values + chunk_offset<128>(static_cast<std::uint32_t>(dim), static_cast<std::uint32_t>(chunk)));
      device::U32x4 kept{};
      if (chunk == full && rest > 0) {
        kept = cta.load_shared(at);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          kept.v[i] &= rest >= 2 * i + 2 ? 0xFFFFFFFFu : rest == 2 * i + 1 ? 0x0000FFFFu : 0u;
      }
      cta.store_shared(at, kept);
    }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void load_prompt_pages(Cta cta, const PromptParams& params, typename Row::Storage& storage) {
  PieceRing<Row> ring;
  std::uint32_t tail = 0;  // phase of `cleared` and `seen`
  for (std::int64_t index = cta.block();; index += cta.blocks()) {
    const PromptUnit unit = find_prompt_unit<Row>(cta, params, index);
    if (unit.found.sequence < 0) return;
    const PageList list = list_tile_pages<typename Row::Layout>(params, unit);
    ring.enter();
    device::PipelineCursor<Row::stages> last;
    while (!ring.complete(list)) {
      last = ring.filling;
      ring.fill(cta, storage, list);
    }
    if (unit.written < kPageTokens) {
      cta.sync_warp();  // lane 0 has begun the phase that the others wait for here
      cta.wait(&storage.full[last.stage], last.phase);
      // Two tails may not be cleared before the first has been seen; a fresh barrier lets the first one pass.
      cta.wait(&storage.seen, tail ^ 1u);
      tail ^= 1u;
      clear_tail<Row>(cta, storage.slot[last.stage], unit.written);
      cta.fence_async_proxy();  // wgmma reads it next
      cta.sync_warp();
      if (cta.lane() == 0) cta.arrive(&storage.cleared);
    }
  }
}

// ---- math ----

// Panels: of 64 columns, in the query rows as in the keys.
template <int Panels, class Cta>
FOURFOLD_DEVICE void score_page_wgmma(Cta cta, const unsigned char* query, const unsigned char* keys,
                                      int warp, float (&score)[8][4]) {
  const std::uint64_t descriptor = cta.wgmma_descriptor(keys);
  constexpr std::uint64_t panel_step = kPageTokens * 128 / 16;
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) score[n][i] = 0.0f;
  // Two sets of operands: one is read while the other is multiplied.
  std::uint32_t a[2][4][4];
#pragma unroll
  for (int panel = 0; panel < Panels; ++panel) {
#pragma unroll
    for (int s = 0; s < 4; ++s) load_rows<kTileRows>(cta, query, warp, 4 * panel + s, a[panel % 2][s]);
    cta.wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s)
      // A k16 step is 32 bytes along the 128-byte row: two units of the descriptor's address.
      cta.template wgmma_bf16<kPageTokens>(&score[0][0], a[panel % 2][s],
                                           descriptor + panel * panel_step + 2u * static_cast<unsigned>(s));
    cta.wgmma_commit();
    if (panel + 1 < Panels)
      cta.template wgmma_wait<1>();
    else
      cta.template wgmma_wait<0>();
  }
  // The compiler knows nothing of products in flight: no use of a score may move above the wait.
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) score[n][i] = Cta::keep(score[n][i]);
}

template <class Row, class Cta>
FOURFOLD_DEVICE void add_prompt_values_wgmma(Cta cta, const unsigned char* values,
                                             const std::uint32_t (&weight)[4][4],
                                             float (&sums)[Row::head_dim / 8][4]) {
  const std::uint64_t descriptor = cta.wgmma_descriptor(values);
  cta.wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step)
    cta.template wgmma_bf16<Row::head_dim>(&sums[0][0], weight[step],
                                           descriptor + 2u * static_cast<unsigned>(step));
  cta.wgmma_commit();
  cta.template wgmma_wait<0>();
#pragma unroll
  for (int n = 0; n < Row::head_dim / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = Cta::keep(sums[n][i]);
}

template <class Row, class Cta>
FOURFOLD_DEVICE void attend_tile_wgmma(Cta cta, const PromptParams& params, typename Row::Storage& storage,
                                       PieceRing<Row>& ring, std::uint32_t& tail, const PromptUnit& unit,
                                       int group, int warp) {
  // An odd number of heads: the second warpgroup repeats the first one's and stores nothing.
  const bool stores = unit.first_head + group < (unit.kv_head + 1) * params.heads_per_kv;
  const int head = unit.first_head + (stores ? group : 0);
  stage_vectors<typename Row::Layout, kTileRows, 128>(
      cta, cta.thread() % 128, storage.query[group], [&](int i) -> const std::uint16_t* {
        const int row = unit.row(i);
        if (row < 0) return nullptr;
        return params.query + (static_cast<std::int64_t>(row) * params.heads + head) * Row::head_dim;
      });
  cta.barrier_sync(device::group_barrier(group), 128);  // the query rows are in place
  const int first_row = 16 * warp + (cta.lane() >> 2);
  const float scale_log2[2] = {params.scale_log2, params.scale_log2};
  PromptSoftmax state{{kFirstLargest<Row>, kFirstLargest<Row>}};
  float sums[Row::head_dim / 8][4] = {};
  for (int page = 0; page < unit.pages; ++page) {
    const bool last = page == unit.pages - 1;
    float score[8][4], factor[2];
    std::uint32_t weight[4][4];
    score_page_wgmma<Row::head_dim / 64>(cta, storage.query[group], ring.take(cta, storage), warp, score);
    ring.give_back(cta, storage);
    if (last) hide_later(cta, first_row, score);
    hide_earlier<Row>(cta, params, unit, page, first_row, score);
    weigh_page(cta, score, scale_log2, state, factor, weight);
    rescale_sums(cta, factor, sums);
    const unsigned char* values = ring.take(cta, storage);
    if (last && unit.written < kPageTokens) {
      cta.wait(&storage.cleared, tail);
      tail ^= 1u;
      cta.sync_warp();  // every lane knows
      if (cta.lane() == 0) cta.arrive(&storage.seen);
    }
    add_prompt_values_wgmma<Row>(cta, values, weight, sums);
    ring.give_back(cta, storage);
  }
  if (stores) finish_tile<Row>(cta, params, unit, head, first_row, state, sums);
  cta.barrier_sync(device::group_barrier(group), 128);  // the query rows may change
}

template <class Row, class Cta>
FOURFOLD_DEVICE void attend_tiles_wgmma(Cta cta, const PromptParams& params, typename Row::Storage& storage,
                                        int warp) {
  PieceRing<Row> ring;
  std::uint32_t tail = 0;
  for (std::int64_t index = cta.block();; index += cta.blocks()) {
    const PromptUnit unit = find_prompt_unit<Row>(cta, params, index);
    if (unit.found.sequence < 0) return;
    attend_tile_wgmma<Row>(cta, params, storage, ring, tail, unit, warp / 4, warp % 4);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void attend_prompt_wgmma(Cta cta, const PromptParams& params) {
  auto& storage = cta.template shared<typename Row::Storage>();
  const int warp = cta.warp();
  if (cta.thread() == 0) {
    cta.init(&storage.cleared, 1);
    cta.init(&storage.seen, Row::math_warps);
  }
  PieceRing<Row>::init(cta, storage);
  cta.sync_block();  // the ring's barriers are there
  cta.wait_predecessors();
  cta.release_successors();
  if (warp >= Row::math_warps) {
    cta.template drop_registers<Row::load_registers>();
    if (warp == Row::math_warps) load_prompt_pages<Row>(cta, params, storage);
  } else {
    cta.template raise_registers<Row::math_registers>();
    attend_tiles_wgmma<Row>(cta, params, storage, warp);
  }
}

}  // namespace fourfold::attention
