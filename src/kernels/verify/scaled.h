// A finished dot product three times over: its bits as a kernel must give them, its value in double
// precision, and how far the bits may lie from the value. What the proofs of the GEMM kernels share.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/device/functions.h"
#include "kernels/device/sim/cta.h"
#include "kernels/record/record.h"
#include "kernels/reference/dot.h"
#include "kernels/verify/result.h"

namespace fourfold::verify {

using Host = device::SimCta;  // its numeric members are the exact host arithmetic

struct Scaled {
  float bits;
  double value;
  double bound;
};

// A global scale as the kernel gets it, and what it stands for: a checkpoint that stores the reciprocal makes
// them differ by its rounding.
struct GlobalScale {
  float given = 1.0f;
  double exact = 1.0;
};

inline float half_decode_factor(bool mxfp4) {
  return mxfp4 ? record::Mxfp4::half_decode_factor : record::Nvfp4::half_decode_factor;
}

// The product of the scales is rounded, and once more when the sum is multiplied: 2^-23. A scale stored as
// its reciprocal was rounded twice before, and there are two scales: 2^-22 more.
inline Scaled scale_dot(const reference::Dot& dot, const GlobalScale& weights, const GlobalScale& tokens,
                        float decode_factor) {
  const float factor = Host::mul(Host::mul(weights.given, tokens.given), decode_factor);
  const double exact = weights.exact * tokens.exact;
  const double value = dot.value * exact;
  const bool as_stored = weights.given == weights.exact && tokens.given == tokens.exact;
  const double rounding = std::abs(value) * (as_stored ? 0x1p-22 : 0x1p-21);
  return {Host::mul(dot.bits, factor), value, dot.bound * exact + rounding + 0x1p-126};
}

// |d/dg silu| <= 1.1; the elementary functions are within a few ulp.
inline Scaled swiglu_of(const Scaled& gate, const Scaled& up) {
  const double sigmoid = 1.0 / (1.0 + std::exp(-gate.value));
  const double value = gate.value * sigmoid * up.value;
  const double silu_bound = 1.1 * gate.bound;
  const double bound = silu_bound * (std::abs(up.value) + up.bound) +
                       std::abs(gate.value * sigmoid) * up.bound + std::abs(value) * 0x1p-20 + 0x1p-126;
  return {device::swiglu<Host>(gate.bits, up.bits), value, bound};
}

// A bias, rounded once more.
inline Scaled biased(const Scaled& sum, float bias) {
  const double value = sum.value + bias;
  return {Host::add(sum.bits, bias), value, sum.bound + (std::abs(value) + sum.bound) * 0x1p-24 + 0x1p-149};
}

// What gpt-oss has for alpha and the limit.
inline constexpr float kGluAlpha = 1.702f, kGluLimit = 7.0f;

// Clamping moves nothing apart, and g * sigmoid(alpha * g) is silu(alpha * g) / alpha: the same slope as
// above. The sigmoid errs by 2^-21 + |alpha g| * 2^-23, its argument's rounding by |alpha g| * 2^-24.
inline Scaled clamped_swiglu_of(const Scaled& gate, const Scaled& up) {
  const double limit = kGluLimit, alpha = kGluAlpha;
  const double g = std::fmin(gate.value, limit), u = std::fmax(std::fmin(up.value, limit), -limit);
  const double open = g / (1.0 + std::exp(-alpha * g));
  const double value = open * (u + 1.0);
  const double bound = 1.1 * gate.bound * (std::abs(u + 1.0) + up.bound) + std::abs(open) * up.bound +
                       std::abs(value) * (0x1p-20 + std::abs(alpha * g) * 0x1p-22) + 0x1p-126;
  return {device::clamped_swiglu<Host>(gate.bits, up.bits, kGluAlpha, kGluLimit), value, bound};
}

// Times a routing weight, rounded once more.
inline Scaled weighted(const Scaled& sum, float weight) {
  const double value = sum.value * weight;
  return {Host::mul(sum.bits, weight), value, sum.bound * weight + std::abs(value) * 0x1p-23};
}

inline std::uint16_t bf16_bits(float value) {
  return static_cast<std::uint16_t>(Host::pack_bf16(value, 0.0f));
}
inline float bf16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
inline double bf16_rounding(double value) { return std::abs(value) * 0x1p-8 + 0x1p-133; }

inline void compare_bf16(Result& result, std::uint16_t actual, const Scaled& expected) {
  result.compare(bf16_value(actual), expected.value, expected.bound + bf16_rounding(expected.value),
                 actual == bf16_bits(expected.bits));
}

}  // namespace fourfold::verify
