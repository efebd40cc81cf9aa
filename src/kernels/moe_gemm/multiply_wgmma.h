// The math role with Hopper's warpgroup instruction: weights are decoded into the register operand, tokens
// come from shared memory. A warp owns one m16 tile, a warpgroup two strips (one m64 operand); its products
// stay in flight while it decodes the next 32 columns.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe_gemm/finish_group.h"
#include "kernels/moe_gemm/multiply_fp8.h"
#include "kernels/moe_gemm/multiply_mma.h"
#include "kernels/moe_gemm/tile_row.h"
#include "kernels/moe_gemm/tile_walk.h"
#include "kernels/record/lane_tile.h"

namespace fourfold::moe_gemm {

// A warp's products of one item with N token columns, and where they stand in the ring.
template <class Row, int N, class Cta>
class PanelMath {
 public:
  FOURFOLD_DEVICE PanelMath(Cta cta, typename Row::Storage& storage, device::PipelineCursor<Row::stages>& at,
                            const GroupPlace& place, float (&sums)[Row::n / 2])
      : cta_(cta),
        storage_(storage),
        at_(at),
        place_(place),
        sums_(sums),
        first_tokens_(cta.wgmma_descriptor(storage.tokens[0][0].rows)) {}

  FOURFOLD_DEVICE void enter_stage() {
    cta_.wait(&storage_.full[at_.stage], at_.phase);  // records and token rows have landed
    cta_.fence_async_proxy();  // ... the rows by ordinary copies; wgmma reads them through the async proxy
    tokens_ = first_tokens_ + static_cast<std::uint32_t>(at_.stage) * (sizeof(storage_.tokens[0]) / 16);
  }
  FOURFOLD_DEVICE device::Mbarrier* empty() const { return &storage_.empty[at_.stage]; }
  FOURFOLD_DEVICE void leave_stage() {
    release(cta_, empty());
    at_.advance();
  }
  // A panel when no products are in flight; afterwards two groups are. Whole: so is its stage.
  template <bool Whole>
  FOURFOLD_DEVICE void start_panel(int panel) {
    enter_panel<Whole>(panel);
    start(0, first_steps_);
    start(1, second_steps_);
  }
  // The panel after one whose two groups are in flight. before_is_read(): nothing reads the earlier panel any
  // more.
  template <class Then>
  FOURFOLD_DEVICE void next_panel(int panel, const Then& before_is_read) {
    enter_panel<true>(panel);
    cta_.template wgmma_wait<1>();  // the first half of the panel before: its operands are free
    start(0, first_steps_);
    cta_.template wgmma_wait<1>();  // and its second half
    before_is_read();
    start(1, second_steps_);
  }
  // The other panels of a stage whose first one is in flight.
  FOURFOLD_DEVICE void rest_of_stage() {
#pragma unroll
    for (int panel = 1; panel < Row::panels; ++panel) next_panel(panel, [] {});
  }

 private:
  using Tile = record::LaneTile<typename Row::Format>;
  // bf16 words are operands as they lie: loaded ahead, they would be in the way of those in flight, and ptxas
  // would serialise (C7512).
  static constexpr bool loads_operands = std::is_same_v<typename Row::Format, record::Bf16Format>;

  // Sums of more tokens leave no registers for the next panel's weights.
  static constexpr bool reads_ahead = Row::n <= 64;

  FOURFOLD_DEVICE auto reader() const {
    return [cta = cta_](const auto* from) { return cta.load_shared(from); };
  }
  FOURFOLD_DEVICE const unsigned char* weights_of(int panel) const {
    return storage_.weights[at_.stage].strip[place_.strip][panel].payload;
  }
  // The weights of a whole stage's next panel may be read while this one is decoded.
  template <bool Whole>
  FOURFOLD_DEVICE void enter_panel(int panel) {
    // The four steps of the panel before moved it on by 8; the descriptor counts sixteens of bytes.
    if (panel > 0) tokens_ += sizeof(TokenPanel<Row::n>) / 16 - 8;
    if constexpr (loads_operands) {
      weights_ = weights_of(panel);
    } else {
      if (reads_ahead && Whole && panel > 0)
        tile_ = ahead_;
      else
        tile_.load(cta_.lane(), reader(), weights_of(panel), place_.tile);
      if (reads_ahead && Whole && panel + 1 < Row::panels)
        ahead_.load(cta_.lane(), reader(), weights_of(panel + 1), place_.tile);
    }
    multipliers_ = tile_.template multipliers<Cta>(cta_.lane());
  }
  // Starts the products of 32 columns; what was made of `steps` before must be done.
  FOURFOLD_DEVICE void start(int half, std::uint32_t (&steps)[2][4]) {
    if constexpr (loads_operands) tile_.load_half(cta_.lane(), reader(), weights_, place_.tile, half);
    tile_.template decode<Cta>(multipliers_, half, steps);
    cta_.wgmma_fence();  // operands (and, at first, sums) were written by ordinary instructions
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      cta_.template wgmma_bf16<N>(sums_, steps[step], tokens_);
      tokens_ += 2;  // a k16 step is 32 bytes along the 128-byte row
    }
    cta_.wgmma_commit();
  }

  Cta cta_;
  typename Row::Storage& storage_;
  device::PipelineCursor<Row::stages>& at_;
  const GroupPlace& place_;
  float (&sums_)[Row::n / 2];
  const std::uint64_t first_tokens_;  // descriptor of stage 0
  std::uint64_t tokens_;
  Tile tile_, ahead_;
  typename Tile::Multipliers multipliers_;
  const unsigned char* weights_;
  std::uint32_t first_steps_[2][4], second_steps_[2][4];
};

// All of K for one item. Two groups of products are in flight at every turn of the loop: a state that differs
// between the first turn and the others makes ptxas serialise them (C7513), and so does a loop of any length
// before it (C7512). So a first stage of fewer panels is finished by itself, and whole stages are unrolled.
template <class Row, int N, class Cta>
FOURFOLD_DEVICE void multiply_columns(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage,
                                      device::PipelineCursor<Row::stages>& at, const GroupPlace& place,
                                      float (&sums)[Row::n / 2]) {
  PanelMath<Row, N, Cta> math(cta, storage, at, place, sums);
  const int first_panels = Row::panels > 1 ? params.records % Row::panels : 0;
  if (first_panels > 0) {
    math.enter_stage();
#pragma unroll 1
    for (int panel = 0; panel < first_panels; ++panel) {
      math.template start_panel<false>(panel);
      cta.template wgmma_wait<0>();
    }
    math.leave_stage();
  }
  if (int left = params.records - first_panels; left > 0) {
    math.enter_stage();
    math.template start_panel<true>(0);
    math.rest_of_stage();
#pragma unroll 1
    for (left -= Row::panels; left > 0; left -= Row::panels) {
      device::Mbarrier* before = math.empty();
      at.advance();
      math.enter_stage();
      math.next_panel(0, [&] { release(cta, before); });
      math.rest_of_stage();
    }
    cta.template wgmma_wait<0>();
    math.leave_stage();
  }
  // The compiler knows nothing of products in flight: no use of a sum may move above the wait.
#pragma unroll
  for (int i = 0; i < N / 2; ++i) sums[i] = Cta::keep(sums[i]);
}

// The instruction's width is part of its encoding: one loop per width of padded_columns(). Widths that a row
// does not have cost nothing.
template <class Row, int N, class Cta>
FOURFOLD_DEVICE void multiply_width(Cta cta, const moe::GemmParams& params, typename Row::Storage& storage,
                                    device::PipelineCursor<Row::stages>& at, int columns,
                                    const GroupPlace& place, float (&sums)[Row::n / 2]) {
  if constexpr (N <= Row::n && padded_columns<Row>(N) == N) {
    if (columns == N) {
      if constexpr (Row::Path::token_bytes == 1)
        multiply_fp8_columns<Row, N>(cta, params, storage, at, place, sums);
      else
        multiply_columns<Row, N>(cta, params, storage, at, place, sums);
    }
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
    // What the end of this item and the start of the next one need is on its way during the main loop.
    // keep(): the compiler would look at it as soon as it is asked for, and wait.
    const Item item{
        {Cta::keep(next.tile.expert), Cta::keep(next.tile.first_slot), Cta::keep(next.tile.count), 0},
        next.first_strip};
    // Before the loads below: hardware counts loads together, and a wait for one would be a wait for all.
    const int columns = Cta::keep(padded_columns<Row>(item.tile.count));
    const Scales scales(cta, params, item.tile.expert);
    const AskedWeights<Row> weights(cta, params.op == moe::Op::down ? params.slot_weight : nullptr,
                                    item.tile);
    walk.advance();
    if (!walk.done()) next = walk.item();
    float sums[Row::n / 2];
#pragma unroll
    for (int i = 0; i < Row::n / 2; ++i) sums[i] = 0.0f;
    multiply_width<Row, 8>(cta, params, storage, at, columns, place, sums);
    multiply_width<Row, 16>(cta, params, storage, at, columns, place, sums);
    multiply_width<Row, 24>(cta, params, storage, at, columns, place, sums);
    multiply_width<Row, 32>(cta, params, storage, at, columns, place, sums);
    multiply_width<Row, 40>(cta, params, storage, at, columns, place, sums);
    multiply_width<Row, 48>(cta, params, storage, at, columns, place, sums);
    multiply_width<Row, 56>(cta, params, storage, at, columns, place, sums);
    multiply_width<Row, 64>(cta, params, storage, at, columns, place, sums);
    multiply_width<Row, 80>(cta, params, storage, at, columns, place, sums);
    multiply_width<Row, 96>(cta, params, storage, at, columns, place, sums);
    multiply_width<Row, 112>(cta, params, storage, at, columns, place, sums);
    multiply_width<Row, 128>(cta, params, storage, at, columns, place, sums);
    multiply_width<Row, 256>(cta, params, storage, at, columns, place, sums);
    finish_group<Row>(cta, params, item, factors_of<Row>(cta, params, scales), weights, place, sums,
                      storage.staging[place.group]);
  }
}

}  // namespace fourfold::moe_gemm
