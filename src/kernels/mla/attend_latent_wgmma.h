// Latent attention of prompts with Hopper's warpgroup instruction. A page in shared memory is an operand
// twice: its rows are the columns of the scores' product (K-major), and as it lies it is the second product's
// B, N-major: no transposed copy, no operand registers for keys or values.
//
//   latent 64, 256   two warpgroups have 64 query vectors each, and all value columns
//   latent 512       both have the same 64; each makes all of their scores and keeps half of the columns:
//                    sums of 64 x 512 are twice what a warpgroup's registers hold, and nothing is exchanged
//
// The softmax runs page by page from position 0, so a vector's numbers depend on its own row and the pages
// before it. A page it may not see multiplies by exactly 1 and adds exactly 0. They are not the bits of
// attend_latent.h, which adds a score up from four quarters and rescales every 32 positions.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/attention/attend_prompt_wgmma.h"
#include "kernels/attention/operands.h"
#include "kernels/attention/prompt_tile.h"
#include "kernels/device/named_barrier.h"
#include "kernels/mla/find_unit.h"
#include "kernels/mla/latent_page.h"
#include "kernels/mla/mla_params.h"
#include "kernels/mla/page_ring.h"

namespace fourfold::mla {

using attention::kUnseen;
using attention::PromptSoftmax;

inline constexpr int kGroupVectors = 64;  // wgmma's M
inline constexpr int kMathGroups = 2;

// Named barriers: 0 to 3 of the two warps that have the same vectors (latent 512), then the math warps'. The
// loading warp is at mbarriers only.
inline constexpr int kMathBarrier = 4;

// The pages of a unit's vectors.
template <class Cta>
FOURFOLD_DEVICE int unit_pages(const LatentUnit& unit) {
  return (unit.end + kPageTokens - 1) / kPageTokens;
}

// ---- load ---- one warp
template <class Row, class Cta>
FOURFOLD_DEVICE void load_latent_pages(Cta cta, const AttendParams& params, typename Row::Storage& storage) {
  PageRing<Row> ring;
  for (std::int64_t index = cta.block();; index += cta.blocks()) {
    const LatentUnit unit = find_unit<Row>(cta, params, index);
    if (unit.found.sequence < 0) return;
    ring.fill(cta, storage, params.pages, params.tables.pages + unit.found.page_begin, unit_pages<Cta>(unit));
  }
}

// ---- math ----

// A lane's two vectors, g and g + 8 of its warp's 16. Those beyond the sequence's last see what it sees.
struct LaneVectors {
  int vector[2];  // of the sequence
  int position[2];
  float scale_log2[2];
};

template <class Cta>
FOURFOLD_DEVICE LaneVectors find_vectors(Cta cta, const AttendParams& params, const LatentUnit& unit,
                                         int first) {
  LaneVectors mine;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    mine.vector[half] = first + 8 * half + (cta.lane() >> 2);
    const int known = mine.vector[half] < unit.query_count ? mine.vector[half] : unit.query_count - 1;
    mine.position[half] = unit.found.position + known / params.heads;
    mine.scale_log2[half] =
        params.growth_positions == 0
            ? params.scale_log2
            : cta.load(params.grown_scale + mine.position[half] / params.growth_positions);
  }
  return mine;
}

// Vectors first to first + Count - 1 of the sequence, as rows `row` on of `to`: a warp's own rows, which no
// other warp writes. Vectors lie behind each other in memory, so lanes copy neighbours.
template <class Row, int Count, class Cta>
FOURFOLD_DEVICE void stage_queries(Cta cta, const AttendParams& params, const LatentUnit& unit, int first,
                                   unsigned char* to, int row) {
  constexpr int chunks = Row::Page::width / 8;
  const std::uint16_t* from =
      params.query +
      (static_cast<std::int64_t>(unit.found.first_row) * params.heads + first) * Row::Page::width;
#pragma unroll 4
  for (int i = 0; i < Count * chunks / 32; ++i) {
    const int at = 32 * i + cta.lane(), vector = at / chunks;
    auto* chunk = reinterpret_cast<device::U32x4*>(
        to + attention::query_offset<kGroupVectors>(row + vector, at % chunks));
    if (first + vector < unit.query_count)
      cta.copy_16_async(chunk, from + static_cast<std::int64_t>(at) * 8);
    else
      cta.store_shared(chunk, device::U32x4{});
  }
  cta.copy_commit();
  cta.template copy_wait<0>();
}

// Positions that were never written may hold anything, and 0 * NaN is not 0: they become 0. By all math
// warps, once a sequence and unit at most.
template <class Row, class Cta>
FOURFOLD_DEVICE void clear_unwritten(Cta cta, unsigned char* page, int written) {
#pragma unroll 1
  for (int panel = 0; panel < Row::Page::panels; ++panel)
#pragma unroll 1
    for (int at = 128 * written + 16 * cta.thread(); at < kPagePanelBytes; at += 16 * 32 * Row::math_warps)
      cta.store_shared(reinterpret_cast<device::U32x4*>(page + panel * kPagePanelBytes + at),
                       device::U32x4{});
  cta.fence_async_proxy();  // wgmma reads it next
  cta.barrier_sync(device::group_barrier(kMathBarrier), 32 * Row::math_warps);
}

// Positions behind each vector's own. page: its first position.
template <class Cta>
FOURFOLD_DEVICE void hide_later(Cta cta, int page, const LaneVectors& mine, float (&score)[8][4]) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (page + 8 * n + 2 * (cta.lane() & 3) + i % 2 > mine.position[i / 2]) score[n][i] = kUnseen;
}

template <class Row>
using GroupSums = float[Row::group_columns / 8][4];

template <class Row, class Cta>
FOURFOLD_DEVICE void add_latent_values(Cta cta, const unsigned char* panels,
                                       const std::uint32_t (&weight)[4][4], GroupSums<Row>& sums) {
  const std::uint64_t descriptor = cta.wgmma_columns_descriptor(panels, kPagePanelBytes);
  cta.wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step)
    // Sixteen positions are 2,048 bytes: 128 units of the descriptor's address.
    cta.template wgmma_bf16_columns<Row::group_columns>(&sums[0][0], weight[step],
                                                        descriptor + 128u * static_cast<unsigned>(step));
  cta.wgmma_commit();
  cta.template wgmma_wait<0>();
  // The compiler knows nothing of products in flight: no use of a sum may move above the wait.
#pragma unroll
  for (int n = 0; n < Row::group_columns / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = Cta::keep(sums[n][i]);
}

// Divides and rounds once. Neighbouring lanes exchange halves of two tiles, so that each stores four columns
// and four lanes of a vector a whole sector.
template <class Row, class Cta>
FOURFOLD_DEVICE void store_vectors(Cta cta, const AttendParams& params, const LatentUnit& unit,
                                   const LaneVectors& mine, int first_column, const PromptSoftmax& state,
                                   const GroupSums<Row>& sums) {
  const int t = cta.lane() & 3, odd = t & 1;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = state.total[half];
    total = Cta::add(total, cta.shuffle_xor(total, 1));
    total = Cta::add(total, cta.shuffle_xor(total, 2));
    const float inverse = Cta::reciprocal(total);
    const bool stores = mine.vector[half] < unit.query_count;
    std::uint16_t* to = params.out +
                        (static_cast<std::int64_t>(unit.found.first_row) * params.heads + mine.vector[half]) *
                            Row::Page::latent +
                        first_column + 8 * odd + 2 * (t - odd);
#pragma unroll
    for (int n = 0; n < Row::group_columns / 8; n += 2) {
      std::uint32_t pair[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        pair[i] = Cta::pack_bf16(Cta::mul(sums[n + i][2 * half], inverse),
                                 Cta::mul(sums[n + i][2 * half + 1], inverse));
      const std::uint32_t other = cta.shuffle_xor(odd ? pair[0] : pair[1], 1);
      if (stores)
        cta.store(reinterpret_cast<device::U32x2*>(to + 8 * n),
                  odd ? device::U32x2{{other, pair[1]}} : device::U32x2{{pair[0], other}});
    }
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void attend_group(Cta cta, const AttendParams& params, typename Row::Storage& storage,
                                  PageRing<Row>& ring, const LatentUnit& unit, int group, int warp) {
  unsigned char* query = storage.query[Row::query_set(group)];
  const int first = unit.first_query + kGroupVectors * Row::query_set(group) + 16 * warp;
  if constexpr (Row::query_sets == kMathGroups) {
    stage_queries<Row, 16>(cta, params, unit, first, query, 16 * warp);
    cta.sync_warp();  // its 16 rows are in place
  } else {
    stage_queries<Row, 8>(cta, params, unit, first + 8 * group, query, 16 * warp + 8 * group);
    cta.barrier_sync(device::group_barrier(warp), 64);  // the other group's warp has brought its half
  }
  const LaneVectors mine = find_vectors(cta, params, unit, first);
  const int pages = unit_pages<Cta>(unit), written = unit.found.position + unit.found.row_count;
  PromptSoftmax state{{kUnseen, kUnseen}};
  GroupSums<Row> sums = {};
#pragma unroll 1
  for (int page = 0; page < pages; ++page) {
    const int begin = page * kPageTokens;
    float score[8][4], factor[2];
    std::uint32_t weight[4][4];
    unsigned char* panels = ring.take(cta, storage);
    if (written - begin < kPageTokens) clear_unwritten<Row>(cta, panels, written - begin);
    attention::score_page_wgmma<Row::Page::panels>(cta, query, panels, warp, score);
    // The first vector sees least.
    if (begin + kPageTokens - 1 > mine.position[0]) hide_later(cta, begin, mine, score);
    attention::weigh_page(cta, score, mine.scale_log2, state, factor, weight);
    attention::rescale_sums(cta, factor, sums);
    add_latent_values<Row>(cta, panels + Row::first_panel(group) * kPagePanelBytes, weight, sums);
    ring.give_back(cta, storage);
  }
  store_vectors<Row>(cta, params, unit, mine, kPanelColumns * Row::first_panel(group), state, sums);
  if constexpr (Row::query_sets == kMathGroups)
    cta.sync_warp();  // the query rows may change
  else
    cta.barrier_sync(device::group_barrier(warp), 64);
}

template <class Row, class Cta>
FOURFOLD_DEVICE void attend_latent_wgmma(Cta cta, const AttendParams& params) {
  auto& storage = cta.template shared<typename Row::Storage>();
  const int warp = cta.warp();
  PageRing<Row>::init(cta, storage);
  cta.sync_block();  // the ring's barriers are there
  cta.wait_predecessors();
  cta.release_successors();
  if (warp >= Row::math_warps) {
    cta.template drop_registers<Row::load_registers>();
    if (warp == Row::math_warps) load_latent_pages<Row>(cta, params, storage);
    return;
  }
  cta.template raise_registers<Row::math_registers>();
  PageRing<Row> ring;
  for (std::int64_t index = cta.block();; index += cta.blocks()) {
    const LatentUnit unit = find_unit<Row>(cta, params, index);
    if (unit.found.sequence < 0) return;
    attend_group<Row>(cta, params, storage, ring, unit, warp / 4, warp % 4);
  }
}

}  // namespace fourfold::mla
