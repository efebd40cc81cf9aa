// What becomes of a finished tile: 16 rows times eight tokens. Lane (g, t) holds slots g and g + 8 for tokens
// 2t and 2t + 1, as in moe/epilogue.h, whose arithmetic this is.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/dense_params.h"
#include "kernels/device/functions.h"
#include "kernels/device/types.h"
#include "kernels/moe/epilogue.h"
#include "kernels/record/record.h"

namespace fourfold::dense {

// What the epilogue reads, asked for before the sums are complete.
struct TileInputs {
  device::F32x2 row_scale;  // of slots g and g + 8
  device::F32x2 before[2];  // add_f32: what `out` holds for tokens 2t and 2t + 1
  float gate[2];            // and their gates
};

template <class Cta>
FOURFOLD_DEVICE device::F32x2* plain_place(Cta cta, const DenseParams& params, int strip, int tile,
                                           int token) {
  const int row = record::kRows * strip + record::kRows / 2 * tile + 2 * (cta.lane() >> 2);
  return reinterpret_cast<device::F32x2*>(static_cast<float*>(params.out) +
                                          static_cast<std::int64_t>(token) * params.out_stride + row);
}

template <class Cta>
FOURFOLD_DEVICE device::F32x2 load_row_scale(Cta cta, const DenseParams& params, int strip, int tile) {
  const int g = cta.lane() >> 2;
  if (strip < params.plain_strips)
    return cta.load(reinterpret_cast<const device::F32x2*>(params.row_scale + record::kRows * strip +
                                                           record::kRows / 2 * tile + 2 * g));
  const int neuron = record::row_of_slot(record::RowOrder::gate_up, record::BitOrder::half,
                                         strip - params.plain_strips, tile, g);
  const float* gate = params.row_scale + record::kRows * params.plain_strips;
  const float* up = gate + record::kRows / 2 * (params.strips - params.plain_strips);
  return {{cta.load(gate + neuron), cta.load(up + neuron)}};
}

template <class Cta>
FOURFOLD_DEVICE TileInputs load_tile_inputs(Cta cta, const DenseParams& params, int strip, int tile) {
  TileInputs inputs{{{1.0f, 1.0f}}, {}, {}};
  if (params.row_scale) inputs.row_scale = load_row_scale(cta, params, strip, tile);
  if (params.op == PlainOp::add_f32 && strip < params.plain_strips)
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int token = 2 * (cta.lane() & 3) + b;
      if (token >= params.token_count) continue;
      inputs.before[b] = cta.load(plain_place(cta, params, strip, tile, token));
      if (params.token_gate) inputs.gate[b] = cta.load(params.token_gate + token * params.token_gate_stride);
    }
  return inputs;
}

// Biased: with the code for a bias; matrices without one do not fetch it.
template <bool Biased, class Cta>
FOURFOLD_DEVICE void store_plain_tile(Cta cta, const DenseParams& params, int strip, int tile,
                                      const float (&c)[4], const TileInputs& inputs) {
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    const int token = 2 * (cta.lane() & 3) + b;
    if (token >= params.token_count) continue;
    if (params.op == PlainOp::store_bf16) {
      auto* row = static_cast<std::uint16_t*>(params.out) +
                  static_cast<std::int64_t>(token) * params.out_stride + record::kRows * strip +
                  record::kRows / 2 * tile;
      cta.store(reinterpret_cast<std::uint32_t*>(row) + (cta.lane() >> 2), Cta::pack_bf16(c[b], c[2 + b]));
      continue;
    }
    device::F32x2 rows{{c[b], c[2 + b]}};
    if (params.op == PlainOp::add_f32 && params.token_gate) {
      const float open = device::sigmoid<Cta>(inputs.gate[b]);
      rows = {{Cta::mul(open, rows.v[0]), Cta::mul(open, rows.v[1])}};
    }
    device::F32x2 before = inputs.before[b];
    const bool has_bias = Biased && params.bias;
    if (has_bias) {  // read here and not with the inputs, which would cost the loop its registers
      const device::F32x2 bias = cta.load(reinterpret_cast<const device::F32x2*>(
          params.bias + record::kRows * strip + record::kRows / 2 * tile + 2 * (cta.lane() >> 2)));
      before = params.op == PlainOp::add_f32
                   ? device::F32x2{{Cta::add(before.v[0], bias.v[0]), Cta::add(before.v[1], bias.v[1])}}
                   : bias;
    }
    if (params.op == PlainOp::add_f32 || has_bias)
      rows = {{Cta::add(before.v[0], rows.v[0]), Cta::add(before.v[1], rows.v[1])}};
    cta.store(plain_place(cta, params, strip, tile, token), rows);
  }
}

// One tile of gate and up rows; strip counts from the first of them.
template <class Cta>
FOURFOLD_DEVICE void store_gate_up_tile(Cta cta, const DenseParams& params, int strip, int tile,
                                        const float (&c)[4]) {
  const std::uint32_t pair = moe::neuron_pair(cta, c, 1.0f, 1.0f);
  const int token = moe::pair_token(cta.lane());
  if (token >= params.token_count) return;
  auto* row = reinterpret_cast<std::uint32_t*>(params.gate_up_out +
                                               static_cast<std::int64_t>(token) * params.gate_up_stride) +
              record::kRows / 2 * (strip / 2);
  cta.store(row + 4 * (cta.lane() >> 3) + moe::pair_chunk(strip, tile), pair);
}

// All lanes of the warp.
template <class Format, bool Biased, class Cta>
FOURFOLD_DEVICE void finish_tile(Cta cta, const DenseParams& params, int strip, int tile, float (&c)[4],
                                 const TileInputs& inputs) {
  constexpr float decode = Format::half_decode_factor;
  const bool plain = strip < params.plain_strips;
  const float factor_g = Cta::mul(plain ? params.scale : params.scale_gate, decode);
  const float factor_g8 = Cta::mul(plain ? params.scale : params.scale_up, decode);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    c[i] = Cta::mul(Cta::mul(c[i], i < 2 ? factor_g : factor_g8), inputs.row_scale.v[i / 2]);
  if (plain)
    store_plain_tile<Biased>(cta, params, strip, tile, c, inputs);
  else
    store_gate_up_tile(cta, params, strip - params.plain_strips, tile, c);
}

}  // namespace fourfold::dense
