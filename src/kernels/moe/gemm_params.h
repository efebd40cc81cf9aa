// The arguments of a grouped GEMM over packed experts, shared by the streaming (decode) and the tiled
// (prefill) kernel.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/functions.h"
#include "kernels/moe/tables.h"

namespace fourfold::moe {

// What happens to a dot product once it is complete.
enum class Op : std::int32_t {
  gate_up,    // gate and up rows of a neuron become silu(gate) * up (or the row's Glu), the token of the
              // second GEMM
  down,       // times the routing weight of the slot, kept apart per slot for the combine
  plain,      // stored as it is: the grouped GEMM offered to other engines
  plain_f32,  // stored as it is in f32: a dense matrix of generated rows
  add_f32,    // added to what f32 `out` holds: out = out + dot, one addition, the residual stream
};

// Whether the rows of `out` are f32; the tiled kernel keeps down's rows in bf16.
constexpr bool stores_f32(Op op, bool decode) {
  return op == Op::plain_f32 || op == Op::add_f32 || (op == Op::down && decode);
}

struct GemmParams {
  const unsigned char* weights;  // records [experts][strips][records]
  // W4A16: bf16 rows in staged order; W8A8: E4M3 rows (fp8_token_byte() in record.h); W4A4: token records
  // [slot / 8][records], or of rows, [row / 8][records], where slot_token names these (the tiled kernel).
  const unsigned char* tokens;
  const TokenTile* tiles;  // [*tile_count]
  const std::int32_t* tile_count;
  const std::int32_t* slot_token;   // row of `tokens` that a slot reads; null: the slot itself
  const float* slot_weight;         // down: factor per slot; null: 1
  const float* scale;               // [experts] global scale of gate (or of the one matrix); null: 1
  const float* scale_up;            // [experts] global scale of up
  const float* token_scale;         // [experts] input scale the tokens were quantised with; null: 1
  const float* next_inverse_scale;  // [experts] W4A4 gate_up: reciprocal of the input scale the result is
                                    // quantised with
  void* out;                        // see Op and the kernel's README; rows are slots
  Op op;
  std::int32_t strips;       // weight rows / 32
  std::int32_t records;      // K / 64
  std::int32_t out_columns;  // row length of out, in elements
  // The tables were complete before the predecessor started (GEMM2: the router's, and GEMM1 waited for them).
  // Then tiles and first weights are read while the predecessor still runs.
  bool tables_are_older;
  // W4A4 gate_up: the result is rounded to bf16 before it is quantised, as rows of dense matrices are. A
  // routed expert's own activation is not.
  bool rounds_neurons;
  // Records without block scales: [experts][32 * strips] a factor for every row of the packed matrix
  // (gate_up: the gate rows, then the up rows); null: 1. FP4 rows do not read it.
  const float* row_scale;
  const float* token_factor;  // W8A8: [slots] what the codes of a row are multiplied with; null: 1
  // Rows of ClampedSwiGlu alone: [experts][32 * strips] what is added to a complete dot product, in the order
  // of row_scale; null: nothing. And the activation's numbers.
  const float* bias;
  float glu_alpha;
  float glu_limit;
};

// What a row makes of gate and up. Types, so that the rows of other models have no code for it.
struct SwiGlu {
  static constexpr bool adds_bias = false;
  FOURFOLD_DEVICE explicit SwiGlu(const GemmParams&) {}
  SwiGlu() = default;
  template <class Cta>
  FOURFOLD_DEVICE float neuron(float gate, float up) const {
    return device::swiglu<Cta>(gate, up);
  }
};
// With biases on every dot product: gpt-oss's experts have both.
struct ClampedSwiGlu {
  static constexpr bool adds_bias = true;
  float alpha, limit;
  FOURFOLD_DEVICE explicit ClampedSwiGlu(const GemmParams& params)
      : alpha(params.glu_alpha), limit(params.glu_limit) {}
  template <class Cta>
  FOURFOLD_DEVICE float neuron(float gate, float up) const {
    return device::clamped_swiglu<Cta>(gate, up, alpha, limit);
  }
};

// The factor of a complete dot product, given the expert's scales.
template <class Cta>
FOURFOLD_DEVICE float dot_factor(Cta cta, const float* scale, const float* token_scale, int expert,
                                 float decode_factor) {
  const float weight_side = scale ? cta.load(scale + expert) : 1.0f;
  const float token_side = token_scale ? cta.load(token_scale + expert) : 1.0f;
  return Cta::mul(Cta::mul(weight_side, token_side), decode_factor);
}

}  // namespace fourfold::moe
