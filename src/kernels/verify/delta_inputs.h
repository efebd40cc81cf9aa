// Fresh random weights and rows of a DeltaNet layer, for its proofs and tests.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bf16.h"
#include "base/random.h"
#include "kernels/delta/reference.h"

namespace fourfold::delta {

inline HostWeights make_weights(const Layout& layout, std::uint64_t seed) {
  Random random(seed);
  HostWeights weights;
  for (int i = 0; i < layout.conv_dim * kTaps; ++i)
    weights.taps.push_back(static_cast<float>(0.5 * random.normal()));
  for (int h = 0; h < layout.value_heads; ++h) {
    // From heads that forget in a few rows to heads that hardly forget.
    weights.a_log.push_back(static_cast<float>(random.uniform(-4.0, 2.0)));
    weights.dt_bias.push_back(static_cast<float>(random.uniform(-5.0, 1.0)));
  }
  for (int i = 0; i < layout.head_dim; ++i)
    weights.norm_weight.push_back(static_cast<float>(random.uniform(0.5, 1.5)));
  return weights;
}

// Rows as a prompt's projections are bf16: every value is one.
inline HostRow make_row(const Layout& layout, std::uint64_t seed, int position, bool as_bf16 = false) {
  Random random(mix_bits(seed) + static_cast<std::uint64_t>(position));
  const auto draw = [&](std::vector<float>& to, int count, double size) {
    for (int i = 0; i < count; ++i) {
      const auto value = static_cast<float>(size * random.normal());
      to.push_back(as_bf16 ? to_float(to_bf16(value)) : value);
    }
  };
  HostRow row;
  draw(row.qkv, layout.conv_dim, 1.0);
  draw(row.z, layout.value_dim, 1.5);
  draw(row.beta, layout.value_heads, 1.5);
  draw(row.decay, layout.value_heads, 2.0);
  return row;
}

}  // namespace fourfold::delta
