// Elementary functions written in correctly rounded operations only, so that GPU, simulator and scalar
// references give the same bits. Accuracy is part of the contract: exp_f32 is within 1.5 ulp of the true
// value, log_f32 within 1.5 (tests/kernels).
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"

namespace fourfold::device {

// x = n ln 2 + r with |r| at most half of ln 2, and e^r.
struct ExpParts {
  float shifted;  // n + kExpMagic: n is in its low bits
  float n;
  float e_r;
};
inline constexpr float kExpMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
template <class Cta>
FOURFOLD_DEVICE ExpParts exp_parts(float x) {
  constexpr float log2_e = 1.44269504088896341f;
  constexpr float ln2_high = 0.693145751953125f;  // 16 bits: n * ln2_high is exact
  constexpr float ln2_low = 1.42860682030941723e-6f;
  const float shifted = Cta::fma(x, log2_e, kExpMagic);
  const float n = Cta::add(shifted, -kExpMagic);
  float r = Cta::fma(n, -ln2_high, x);
  r = Cta::fma(n, -ln2_low, r);
  float p = 1.98756915e-4f;
  p = Cta::fma(p, r, 1.39819995e-3f);
  p = Cta::fma(p, r, 8.33345205e-3f);
  p = Cta::fma(p, r, 4.16657962e-2f);
  p = Cta::fma(p, r, 1.66666657e-1f);
  p = Cta::fma(p, r, 5.0e-1f);
  p = Cta::fma(Cta::mul(r, r), p, r);
  return {shifted, n, Cta::add(p, 1.0f)};
}
// e^r 2^n by adding to the exponent field; n is in [-126, 128], and 2^128 is reached in two steps.
template <class Cta>
FOURFOLD_DEVICE float exp_scaled(float e_r, int n) {
  const int first = n > 127 ? 127 : n;
  const float scaled =
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(e_r) + (static_cast<std::uint32_t>(first) << 23));
  return n > 127 ? Cta::mul(scaled, 2.0f) : scaled;
}

// e^x. Below -87 the result is 0 (no subnormals), above 88.7 infinity; NaN stays NaN.
template <class Cta>
FOURFOLD_DEVICE float exp_f32(float x) {
  if (!(x < 88.7f)) return x != x ? x : std::bit_cast<float>(0x7F800000u);
  if (x < -87.0f) return 0.0f;
  const ExpParts parts = exp_parts<Cta>(x);
  return exp_scaled<Cta>(parts.e_r, static_cast<int>(parts.n));
}
// The same, bit for bit, without branches: for places where a thread computes many at once, which then run
// side by side.
template <class Cta>
FOURFOLD_DEVICE float flat_exp(float x) {
  const ExpParts parts = exp_parts<Cta>(x);
  // Outside of the bounds below n is any number, and not used.
  const auto n = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(parts.shifted) -
                                           std::bit_cast<std::uint32_t>(kExpMagic));
  const float inside = x < -87.0f ? 0.0f : exp_scaled<Cta>(parts.e_r, n);
  const float beyond = x != x ? x : std::bit_cast<float>(0x7F800000u);
  return x < 88.7f ? inside : beyond;
}

// 1 / (1 + e^-x) without a branch or a special-function unit: 17 instructions, because every neuron of the
// layer passes here. Relative error at most 2^-21 + |x| * 2^-23 where |x| <= 86; beyond, the true value and
// this one differ by less than 2^-124. NaN is not kept (the caller multiplies by x, which does).
template <class Cta>
FOURFOLD_DEVICE float sigmoid(float x) {
  constexpr float minus_log2_e = -1.44269504088896341f;
  constexpr float round_magic =
      12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, left in the low bits
  const float power = Cta::max(Cta::min(Cta::mul(x, minus_log2_e), 125.0f), -125.0f);
  const float shifted = Cta::add(power, round_magic);
  const float rest = Cta::add(power, -Cta::add(shifted, -round_magic));  // in [-1/2, 1/2], exact
  // 2^rest: Chebyshev interpolation of degree 5, relative error below 2^-23.2 before rounding.
  float p = 0.00133908634f;
  p = Cta::fma(p, rest, 0.00967603192f);
  p = Cta::fma(p, rest, 0.0555035711f);
  p = Cta::fma(p, rest, 0.240221075f);
  p = Cta::fma(p, rest, 0.693147188f);
  p = Cta::fma(p, rest, 1.00000008f);
  const float exponential =
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23));
  const float denominator = Cta::add(exponential, 1.0f);
  // Reciprocal: within 12 % by subtracting the bits, then twice r <- r * (1 + e + e^2) with e = 1 - d * r,
  // which cubes the error.
  float r = std::bit_cast<float>(0x7EF311C7u - std::bit_cast<std::uint32_t>(denominator));
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const float error = Cta::fma(-denominator, r, 1.0f);
    r = Cta::fma(r, Cta::fma(error, error, error), r);
  }
  return r;
}

// ln x for normal x > 0: x = 2^n (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)], and with s = f / (2 + f)
// ln(1 + f) = 2 artanh(s) = f - f^2/2 + s (f^2/2 + R), R = s^2 (2/3 + 2/5 s^2 + ...): the leading terms are
// exact or nearly so, and the series errs by less than 2^-28. 0, subnormals and negative numbers are not for
// it.
template <class Cta>
FOURFOLD_DEVICE float log_f32(float x) {
  constexpr float ln2_high = 0.693145751953125f;
  constexpr float ln2_low = 1.42860682030941723e-6f;
  constexpr std::uint32_t sqrt_half = 0x3F3504F3u;
  const std::uint32_t above = std::bit_cast<std::uint32_t>(x) - sqrt_half;
  const float n = static_cast<float>(static_cast<std::int32_t>(above) >> 23);
  const float f = Cta::add(std::bit_cast<float>((above & 0x007FFFFFu) + sqrt_half), -1.0f);
  const float s = Cta::mul(f, Cta::reciprocal(Cta::add(f, 2.0f)));
  const float z = Cta::mul(s, s);
  float series = 2.0f / 9.0f;
  series = Cta::fma(series, z, 2.0f / 7.0f);
  series = Cta::fma(series, z, 2.0f / 5.0f);
  series = Cta::fma(series, z, 2.0f / 3.0f);
  const float half_square = Cta::mul(Cta::mul(f, 0.5f), f);
  const float rest = Cta::fma(s, Cta::fma(z, series, half_square), Cta::mul(n, ln2_low));
  return Cta::fma(n, ln2_high, Cta::add(f, -Cta::add(half_square, -rest)));
}

// ln(1 + e^x), by parts that cannot overflow: max(x, 0) + ln(1 + t) with t = e^-|x|. What rounding 1 + t
// loses is brought back to first order. Relative error at most 2^-21 where x >= -86; below, the true value
// and this one are less than 2^-123.
template <class Cta>
FOURFOLD_DEVICE float softplus(float x) {
  const float t = exp_f32<Cta>(-Cta::abs(x));
  const float sum = Cta::add(t, 1.0f);
  const float lost = Cta::add(t, -Cta::add(sum, -1.0f));  // exact
  const float log_sum = Cta::fma(lost, Cta::reciprocal(sum), log_f32<Cta>(sum));
  return Cta::add(Cta::max(x, 0.0f), log_sum);
}

// silu(gate) * up, with silu(g) = g * sigmoid(g).
template <class Cta>
FOURFOLD_DEVICE float swiglu(float gate, float up) {
  return Cta::mul(Cta::mul(gate, sigmoid<Cta>(gate)), up);
}

// g * sigmoid(alpha * g) * (u + 1) with g = gate up to the limit and u = up within both limits: gpt-oss's.
// Comparisons keep NaN, which min and max would drop.
template <class Cta>
FOURFOLD_DEVICE float clamped_swiglu(float gate, float up, float alpha, float limit) {
  const float g = gate > limit ? limit : gate;
  const float u = up > limit ? limit : up < -limit ? -limit : up;
  return Cta::mul(Cta::mul(g, sigmoid<Cta>(Cta::mul(alpha, g))), Cta::add(u, 1.0f));
}

}  // namespace fourfold::device
