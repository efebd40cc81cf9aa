// Elementary functions written in correctly rounded operations only, so that GPU, simulator and scalar references give
// the same bits. Accuracy is part of the contract: exp_f32 is within 1.5 ulp of the true value (tests/kernels).
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"

namespace fourfold::device {

// e^x. Below -87 the result is 0 (no subnormals), above 88.7 infinity; NaN stays NaN.
template <class Cta>
FOURFOLD_DEVICE float exp_f32(float x) {
  constexpr float log2_e = 1.44269504088896341f;
  constexpr float ln2_high = 0.693145751953125f;        // 16 bits: n * ln2_high is exact
  constexpr float ln2_low = 1.42860682030941723e-6f;
  constexpr float round_magic = 12582912.0f;            // 1.5 * 2^23: adding it rounds to an integer
  if (!(x < 88.7f)) return x != x ? x : std::bit_cast<float>(0x7F800000u);
  if (x < -87.0f) return 0.0f;
  const float shifted = Cta::fma(x, log2_e, round_magic);
  const float n = Cta::add(shifted, -round_magic);
  float r = Cta::fma(n, -ln2_high, x);
  r = Cta::fma(n, -ln2_low, r);
  float p = 1.98756915e-4f;
  p = Cta::fma(p, r, 1.39819995e-3f);
  p = Cta::fma(p, r, 8.33345205e-3f);
  p = Cta::fma(p, r, 4.16657962e-2f);
  p = Cta::fma(p, r, 1.66666657e-1f);
  p = Cta::fma(p, r, 5.0e-1f);
  p = Cta::fma(Cta::mul(r, r), p, r);
  const float e_r = Cta::add(p, 1.0f);
  // 2^n by adding to the exponent field; n is in [-126, 128], and 2^128 is reached in two steps.
  const int whole = static_cast<int>(n);
  const int first = whole > 127 ? 127 : whole;
  const float scaled = std::bit_cast<float>(std::bit_cast<std::uint32_t>(e_r) + (static_cast<std::uint32_t>(first) << 23));
  return whole > 127 ? Cta::mul(scaled, 2.0f) : scaled;
}

// silu(gate) * up, with silu(g) = g / (1 + e^-g).
template <class Cta>
FOURFOLD_DEVICE float swiglu(float gate, float up) {
  const float sigmoid = Cta::reciprocal(Cta::add(1.0f, exp_f32<Cta>(-gate)));
  return Cta::mul(Cta::mul(gate, sigmoid), up);
}

}  // namespace fourfold::device
