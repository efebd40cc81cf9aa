// What both forms of prompt attention share: tiles of 64 query rows that begin at absolute multiples of 64,
// the softmax over one page after another, and the end of a tile. Arithmetic is the same in both, bit for
// bit: a score is one chain of k16 steps over the head, a page's weights (rounded to bf16) continue the chain
// of their dimension, and a row's numbers depend on nothing but its own position and the pages before it.
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"
#include "kernels/attention/attention_params.h"
#include "kernels/attention/find_work.h"
#include "kernels/attention/page_layout.h"
#include "kernels/attention/piece_ring.h"
#include "kernels/attention/softmax.h"

namespace fourfold::attention {

inline constexpr int kTileRows = 64;
static_assert(kTileRows == kPageTokens, "only a tile's last page needs the causal mask");

// Some heads of one tile. The longest tiles come first: blocks start in this order.
struct PromptUnit {
  Found found;
  int begin = 0;  // the tile's first position; its rows may start later and end earlier
  int first_head = 0;
  int kv_head = 0;
  int first_page = 0;  // that a row of the tile sees something of
  int pages = 0;       // up to the tile's own
  int written = 0;     // positions of the last page that hold keys and values, or more
  // The batch row of the tile's row i, or -1.
  FOURFOLD_DEVICE int row(int i) const {
    const int place = begin + i - found.position;
    return place >= 0 && place < found.row_count ? found.first_row + place : -1;
  }
};

// A block takes Row::heads of one KV head at once.
template <class Row, class Cta>
FOURFOLD_DEVICE PromptUnit find_prompt_unit(Cta cta, const PromptParams& params, std::int64_t index) {
  constexpr int heads = Row::heads;
  const int groups = (params.heads_per_kv + heads - 1) / heads, shares = groups * params.kv_heads;
  PromptUnit unit;
  unit.found = find_item(
      cta, params.tables, index,
      [&](const step::SequencePlace& place) {
        return prompt_tiles(place.position, place.row_count) * shares;
      },
      [](const step::SequencePlace&) { return 0; });
  const Found& found = unit.found;
  if (found.sequence < 0) return unit;
  const int end = found.position + found.row_count;
  const int tile = (end - 1) / kTileRows - found.item / shares;
  unit.begin = tile * kTileRows;
  // By the tile's place, whatever rows of it are here.
  unit.first_page = first_seen(unit.begin, window_of<Row>(params)) / kPageTokens;
  unit.pages = tile + 1 - unit.first_page;
  unit.kv_head = found.item % shares / groups;
  unit.first_head = unit.kv_head * params.heads_per_kv + found.item % groups * heads;
  unit.written = end - unit.begin;
  return unit;
}

template <class Layout>
FOURFOLD_DEVICE PageList list_tile_pages(const PromptParams& params, const PromptUnit& unit) {
  return list_pages<Layout>(params.keys, params.values, unit.kv_head, params.kv_heads,
                            params.tables.pages + unit.found.page_begin + unit.first_page, unit.pages);
}

// A lane's two rows (g and g + 8 of its warp's 16).
struct PromptSoftmax {
  float largest[2];               // of the scores before scaling; at first kFirstLargest
  float total[2] = {0.0f, 0.0f};  // of this lane's weights
};

// One page's scores, as the tensor cores left them (register i of n8 tile n), become weights: the A
// operands of four k16 steps. scale_log2: of the lane's rows. factor: what sums so far are multiplied with.
template <class Cta>
FOURFOLD_DEVICE void weigh_page(Cta cta, const float (&score)[8][4], const float (&scale_log2)[2],
                                PromptSoftmax& state, float (&factor)[2], std::uint32_t (&weight)[4][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float scale = scale_log2[half];
    float largest = state.largest[half];
#pragma unroll
    for (int n = 0; n < 8; ++n)
      largest = Cta::max(largest, Cta::max(score[n][2 * half], score[n][2 * half + 1]));
    largest = Cta::max(largest, cta.shuffle_xor(largest, 1));
    largest = Cta::max(largest, cta.shuffle_xor(largest, 2));
    factor[half] = flat_weight<Cta>(Cta::mul(Cta::add(state.largest[half], -largest), scale));
    state.largest[half] = largest;
    const float offset = -Cta::mul(largest, scale);
    float total = Cta::mul(state.total[half], factor[half]);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float low = flat_weight<Cta>(Cta::fma(score[n][2 * half], scale, offset));
      const float high = flat_weight<Cta>(Cta::fma(score[n][2 * half + 1], scale, offset));
      total = Cta::add(total, Cta::add(low, high));
      weight[n / 2][2 * (n % 2) + half] = Cta::pack_bf16(low, high);
    }
    state.total[half] = total;
  }
}

// In a tile's last page: positions behind a row's own. `row` is the lane's first of the tile.
template <class Cta>
FOURFOLD_DEVICE void hide_later(Cta cta, int row, float (&score)[8][4]) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (8 * n + 2 * (cta.lane() & 3) + i % 2 > row + 8 * (i / 2)) score[n][i] = kUnseen;
}

// Positions before the window of each row; `page`: counted from the unit's first.
template <class Row, class Cta>
FOURFOLD_DEVICE void hide_earlier(Cta cta, const PromptParams& params, const PromptUnit& unit, int page,
                                  int row, float (&score)[8][4]) {
  if constexpr (Row::is_windowed) {
    // Of the tile's row 0, counted from the page's first position; every further row sees one less.
    const int earliest = (unit.pages - 1 - page) * kPageTokens + 1 - params.window;
    if (params.window == 0 || earliest + kTileRows - 1 <= 0) return;
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (8 * n + 2 * (cta.lane() & 3) + i % 2 < earliest + row + 8 * (i / 2)) score[n][i] = kUnseen;
  }
}

// Multiplying by exactly 1 changes nothing: where no row of the warp found a larger score, it is left out.
template <int Tiles, class Cta>
FOURFOLD_DEVICE void rescale_sums(Cta cta, const float (&factor)[2], float (&sums)[Tiles][4]) {
  if (cta.ballot(factor[0] != 1.0f || factor[1] != 1.0f) == 0) return;
#pragma unroll
  for (int n = 0; n < Tiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = Cta::mul(sums[n][i], factor[i / 2]);
}

// Divides, multiplies by the sigmoid of the gate, rounds once. first_row: of the lane, in the tile. Gates
// come in batches, one ahead of the results that are stored.
template <class Row, class Cta>
FOURFOLD_DEVICE void finish_tile(Cta cta, const PromptParams& params, const PromptUnit& unit, int head,
                                 int first_row, const PromptSoftmax& state,
                                 const float (&sums)[Row::head_dim / 8][4]) {
  constexpr int head_dim = Row::head_dim, tiles = 8, batches = 2 * head_dim / 8 / tiles;
  const int column = 2 * (cta.lane() & 3);
  const bool gated = params.gate != nullptr;
  const int rows[2] = {unit.row(first_row), unit.row(first_row + 8)};
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = state.total[half];
    total = Cta::add(total, cta.shuffle_xor(total, 1));
    total = Cta::add(total, cta.shuffle_xor(total, 2));
    [[maybe_unused]] float factor = 1.0f;
    if constexpr (Row::is_windowed)
      if (params.sinks != nullptr) {
        // The last to join, so once: sums so far come to the larger one's unit.
        const float sink = Cta::mul(cta.load(params.sinks + head), kLog2E);
        const float largest = Cta::mul(state.largest[half], params.scale_log2);
        const float unit_log2 = Cta::max(largest, sink);
        factor = exp2_weight<Cta>(Cta::add(largest, -unit_log2));
        total = Cta::fma(total, factor, exp2_weight<Cta>(Cta::add(sink, -unit_log2)));
      }
    inverse[half] = Cta::reciprocal(total);
    if constexpr (Row::is_windowed) inverse[half] = Cta::mul(inverse[half], factor);
  }
  std::uint32_t gate[2][tiles];
  const auto load_gates = [&](int batch) {
    const int half = batch / (batches / 2), first = batch % (batches / 2) * tiles;
    if (!gated || rows[half] < 0) return;
    const std::uint16_t* from =
        params.gate + rows[half] * params.gate_stride + head * params.gate_head_stride + column + 8 * first;
#pragma unroll
    for (int n = 0; n < tiles; ++n)
      gate[batch % 2][n] = cta.load(reinterpret_cast<const std::uint32_t*>(from + 8 * n));
  };
  load_gates(0);
#pragma unroll
  for (int batch = 0; batch < batches; ++batch) {
    const int half = batch / (batches / 2), first = batch % (batches / 2) * tiles;
    if (batch + 1 < batches) load_gates(batch + 1);
    if (rows[half] < 0) continue;
    std::uint16_t* to = params.out +
                        (static_cast<std::int64_t>(rows[half]) * params.heads + head) * head_dim + column +
                        8 * first;
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      float value[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) value[i] = Cta::mul(sums[first + n][2 * half + i], inverse[half]);
      if (gated) {
        const std::uint32_t pair = gate[batch % 2][n];
        value[0] = Cta::mul(value[0], gate_factor<Cta>(std::bit_cast<float>(pair << 16)));
        value[1] = Cta::mul(value[1], gate_factor<Cta>(std::bit_cast<float>(pair & 0xFFFF0000u)));
      }
      cta.store(reinterpret_cast<std::uint32_t*>(to + 8 * n), Cta::pack_bf16(value[0], value[1]));
    }
  }
}

}  // namespace fourfold::attention
