// x += sigmoid(gate) * y, eight columns a thread.
#pragma once

#include <bit>

#include "base/macros.h"
#include "kernels/device/functions.h"
#include "kernels/device/types.h"
#include "kernels/step/step_params.h"

namespace fourfold::step {

template <class Cta>
FOURFOLD_DEVICE void load_eight_of(Cta cta, const void* rows, bool is_f32, std::int64_t at,
                                   float (&values)[8]) {
  if (is_f32) {
    const auto* from = reinterpret_cast<const device::F32x4*>(static_cast<const float*>(rows) + at);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const device::F32x4 four = cta.load(from + half);
#pragma unroll
      for (int i = 0; i < 4; ++i) values[4 * half + i] = four.v[i];
    }
    return;
  }
  const auto packed =
      cta.load(reinterpret_cast<const device::U32x4*>(static_cast<const std::uint16_t*>(rows) + at));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = std::bit_cast<float>(packed.v[i] << 16);
    values[2 * i + 1] = std::bit_cast<float>(packed.v[i] & 0xFFFF0000u);
  }
}

template <class Cta>
FOURFOLD_DEVICE void add_gated(Cta cta, const AddGatedParams& params) {
  cta.wait_predecessors();
  cta.release_successors();
  const int per_row = params.columns / 8;
  const std::int64_t index = static_cast<std::int64_t>(cta.block()) * cta.threads() + cta.thread();
  const std::int64_t row = index / per_row;
  if (row >= params.rows) return;
  const std::int64_t at = row * params.columns + (index - row * per_row) * 8;
  float y[8];
  load_eight_of(cta, params.y, params.y_is_f32 != 0, at, y);
  float factor = 1.0f;
  if (params.gate) factor = device::sigmoid<Cta>(cta.load(params.gate + row * params.gate_stride));
  auto* x = reinterpret_cast<device::F32x4*>(params.x + at);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    device::F32x4 sum = cta.load(x + half);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum.v[i] = Cta::add(sum.v[i], Cta::mul(factor, y[4 * half + i]));
    cta.store(x + half, sum);
  }
}

}  // namespace fourfold::step
