// x += bias, eight columns a thread.
#pragma once

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/step/step_params.h"

namespace fourfold::step {

template <class Cta>
FOURFOLD_DEVICE void add_bias(Cta cta, const AddBiasParams& params) {
  cta.wait_predecessors();
  cta.release_successors();
  const int per_row = params.columns / 8;
  const std::int64_t index = static_cast<std::int64_t>(cta.block()) * cta.threads() + cta.thread();
  const std::int64_t row = index / per_row;
  if (row >= params.rows) return;
  const std::int64_t column = (index - row * per_row) * 8;
  auto* x = reinterpret_cast<device::F32x4*>(params.x + row * params.stride + column);
  const auto* bias = reinterpret_cast<const device::F32x4*>(params.bias + column);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    device::F32x4 sum = cta.load(x + half);
    const device::F32x4 more = cta.load(bias + half);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum.v[i] = Cta::add(sum.v[i], more.v[i]);
    cta.store(x + half, sum);
  }
}

}  // namespace fourfold::step
