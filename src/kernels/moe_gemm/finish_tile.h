// Results of a math warp to memory, straight from registers: the row orders of the records make them
// adjacent, so no epilogue buffer is needed and none is in the plan.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/macros.h"
#include "kernels/moe/epilogue.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_gemm/tile_row.h"
#include "kernels/moe_gemm/tile_walk.h"

namespace fourfold::moe_gemm {

struct Factors {
  float gate;  // or the one matrix
  float up;
  float next_inverse_scale;
};

template <class Row>
inline constexpr bool kAddsBias = Row::Glu::adds_bias;
// Records without block scales have factors of single rows and f32 results; the FP4 rows and those with
// biases do without the code.
template <class Row>
inline constexpr bool kScalesRows = !record::kHasBlockScales<typename Row::Format> && !kAddsBias<Row>;

template <class Row, class Cta>
FOURFOLD_DEVICE Factors factors_of(Cta cta, const moe::GemmParams& params, int expert) {
  constexpr float decode = moe::kDecodeFactor<typename Row::Path, typename Row::Format>;
  Factors factors{moe::dot_factor(cta, params.scale, params.token_scale, expert, decode), 1.0f, 1.0f};
  if constexpr (kScalesRows<Row> || kAddsBias<Row>)
    factors.up = factors.gate;  // of row slots g + 8, whatever they hold
  if (params.op == moe::Op::gate_up) {
    factors.up = moe::dot_factor(cta, params.scale_up, params.token_scale, expert, decode);
    if constexpr (!Row::Path::half_tokens)
      factors.next_inverse_scale = cta.load(params.next_inverse_scale + expert);
  }
  return factors;
}

// Both tiles of a strip for one group of eight tokens.
template <class Row, class Cta>
FOURFOLD_DEVICE void finish_strip(Cta cta, const moe::GemmParams& params, const Factors& factors, int strip,
                                  moe::TokenGroup group, const float (&tile0)[4], const float (&tile1)[4]) {
  if constexpr (kScalesRows<Row>) {
    if (moe::stores_f32(params.op, false)) {
      const bool adds = params.op == moe::Op::add_f32;
      auto* out = static_cast<float*>(params.out);
      moe::put_rows_f32(cta, out, params.out_columns, group, strip, 0, tile0, factors.gate, adds);
      moe::put_rows_f32(cta, out, params.out_columns, group, strip, 1, tile1, factors.gate, adds);
      return;
    }
  }
  if (params.op == moe::Op::gate_up) {
    if constexpr (Row::Path::half_tokens) {
      moe::store_gate_up_bf16<moe::RowLayout::staged>(cta, static_cast<std::uint16_t*>(params.out),
                                                      params.out_columns, group, strip, tile0, tile1,
                                                      factors.gate, factors.up, typename Row::Glu(params));
    } else if constexpr (std::is_same_v<typename Row::Format, record::Nvfp4>) {
      moe::store_gate_up_nvfp4(cta, static_cast<unsigned char*>(params.out),
                               params.out_columns / record::kColumns, group, strip, tile0, tile1,
                               factors.gate, factors.up, factors.next_inverse_scale, params.rounds_neurons);
    }
  } else {
    moe::store_rows_bf16(cta, static_cast<std::uint16_t*>(params.out), params.out_columns, group, strip,
                         tile0, tile1, factors.gate,
                         params.op == moe::Op::down ? params.slot_weight : nullptr);
  }
}

// One tile of a strip.
template <class Row, class Cta>
FOURFOLD_DEVICE void finish_tile(Cta cta, const moe::GemmParams& params, const Factors& factors, int strip,
                                 int tile, moe::TokenGroup group, const float (&sum)[4]) {
  if constexpr (kScalesRows<Row>) {
    if (moe::stores_f32(params.op, false))
      return moe::put_rows_f32(cta, static_cast<float*>(params.out), params.out_columns, group, strip, tile,
                               sum, factors.gate, params.op == moe::Op::add_f32);
  }
  if (params.op == moe::Op::gate_up)
    moe::store_gate_up_bf16(cta, static_cast<std::uint16_t*>(params.out), params.out_columns, group, strip,
                            tile, sum, factors.gate, factors.up, typename Row::Glu(params));
  else
    moe::store_rows_bf16(cta, static_cast<std::uint16_t*>(params.out), params.out_columns, group, strip, tile,
                         sum, factors.gate, params.op == moe::Op::down ? params.slot_weight : nullptr);
}

}  // namespace fourfold::moe_gemm
