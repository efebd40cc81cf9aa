// The sums of segments between dense_many and dense_sum, and what becomes of them. They lie as the tensor
// core leaves them, so both kernels move 512 bytes a warp, and the lane that wrote a sum is the lane that
// reads it.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/dense_epilogue.h"
#include "kernels/dense/many_params.h"
#include "kernels/device/types.h"

namespace fourfold::dense {

constexpr int fragment_place(int g, int t) { return 8 * t + g; }

// This lane's place; segments are segment_step() apart.
FOURFOLD_DEVICE std::int64_t segment_step(const ManyParams& params) {
  return static_cast<std::int64_t>(groups_of(params.dense.token_count)) * params.dense.strips *
         kStripFragments * 32;
}
template <class Cta>
FOURFOLD_DEVICE device::F32x4* partial_place(Cta cta, const ManyParams& params, int segment, int group,
                                             int strip, int tile) {
  const std::int64_t fragment =
      (static_cast<std::int64_t>(group) * params.dense.strips + strip) * kStripFragments + tile;
  return params.partial + segment * segment_step(params) + fragment * 32 +
         fragment_place(cta.lane() >> 2, cta.lane() & 3);
}

// The same arguments for the eight tokens of a group alone.
FOURFOLD_DEVICE DenseParams params_of_group(const DenseParams& params, int group) {
  DenseParams part = params;
  const std::int64_t first = static_cast<std::int64_t>(kTokens) * group;
  const int element = params.op == PlainOp::store_bf16 ? 2 : 4;
  if (part.out) part.out = static_cast<unsigned char*>(part.out) + first * params.out_stride * element;
  if (part.gate_up_out) part.gate_up_out += first * params.gate_up_stride;
  if (part.token_gate) part.token_gate += first * params.token_gate_stride;
  part.token_count -= kTokens * group;
  return part;
}

// The segments of one tile and eight tokens, added in order, and their rows finished. All lanes of the warp.
template <class Format, bool Biased, class Cta>
FOURFOLD_DEVICE void finish_fragment(Cta cta, const ManyParams& params, int segments, int group, int strip,
                                     int tile) {
  constexpr int kAtOnce = 8;  // loads on their way
  const DenseParams part = params_of_group(params.dense, group);
  const device::F32x4* at = partial_place(cta, params, 0, group, strip, tile);
  const std::int64_t step = segment_step(params);
  const TileInputs inputs = load_tile_inputs(cta, part, strip, tile);
  float sum[4];
#pragma unroll 1
  for (int first = 0; first < segments; first += kAtOnce) {
    device::F32x4 read[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i < segments) read[i] = cta.load(at + i * step);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i < segments)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[j] = first + i == 0 ? read[i].v[j] : Cta::add(sum[j], read[i].v[j]);
    at += kAtOnce * step;
  }
  finish_tile<Format, Biased>(cta, part, strip, tile, sum, inputs);
}

}  // namespace fourfold::dense
