// A token's weight e^((score - best) / temperature) as a whole number of 2^-44, and what is drawn by it. Sums
// of weights are then sums of whole numbers: their order does not matter, and no block, batch or grid can
// change a choice. Here, so that the host (sample/) and the GPU's kernels (kernels/sampling) have one
// definition and choose the same token from the same logits, to the last bit.
//
// The weight is worked out in double precision, within 2^-44 of its value in relative terms (the product
// score * log2(e) / temperature below 45 in three roundings: 2^-46; the power: 2^-50) and then rounded to
// the nearest 2^-44. Math is who calculates: a machine's Cta, or HostMath; all round every operation once.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/macros.h"
#include "base/random.h"

namespace fourfold::sampling {

struct HostMath {
  static double fma_f64(double a, double b, double c) { return std::fma(a, b, c); }
  static double mul_f64(double a, double b) { return a * b; }
  static double add_f64(double a, double b) { return a + b; }
  static double divide_f64(double a, double b) { return a / b; }
};

inline constexpr int kWeightBits = 44;
inline constexpr std::uint64_t kWholeWeight = std::uint64_t{1} << kWeightBits;  // of the best token

// How one row's tokens are weighed.
struct Scale {
  double best;   // its best score
  double power;  // log2(e) / temperature; infinite for the smallest temperatures
};

template <class Math>
FOURFOLD_DEVICE Scale scale_of(double best, double temperature) {
  return {best, Math::divide_f64(1.4426950408889634, temperature)};
}

// 2^-x for x in [-1/2, 1/2]: Chebyshev interpolation of degree 10, relative error 2^-51.5 before rounding.
template <class Math>
FOURFOLD_DEVICE double half_power(double x) {
  double p = 0x1.e6063f7217bc6p-28;
  p = Math::fma_f64(p, x, -0x1.b675bca4eeebbp-24);
  p = Math::fma_f64(p, x, 0x1.62bfd47773353p-20);
  p = Math::fma_f64(p, x, -0x1.ffcb54062e698p-17);
  p = Math::fma_f64(p, x, 0x1.430913096fd9fp-13);
  p = Math::fma_f64(p, x, -0x1.5d87fe9d7a584p-10);
  p = Math::fma_f64(p, x, 0x1.3b2ab6fba1ddap-7);
  p = Math::fma_f64(p, x, -0x1.c6b08d703ce49p-5);
  p = Math::fma_f64(p, x, 0x1.ebfbdff82c598p-3);
  p = Math::fma_f64(p, x, -0x1.62e42fefa3a19p-1);
  return Math::fma_f64(p, x, 1.0);
}

// 0 where the weight is less than min_p of the best one's, or than 2^-45.
template <class Math>
FOURFOLD_DEVICE std::uint64_t weight_of(double score, const Scale& scale, double min_p) {
  constexpr double round_magic = 0x1.8p52;  // adding it rounds to a whole number, left in the low bits
  const double down = Math::add_f64(scale.best, -score);
  if (down == 0.0) return kWholeWeight;  // also where the power is infinite
  const double halvings = Math::mul_f64(down, scale.power);
  if (!(halvings < 45.5)) return 0;
  const double shifted = Math::add_f64(halvings, round_magic);
  const double rest = Math::add_f64(halvings, -Math::add_f64(shifted, -round_magic));
  const std::uint64_t whole = std::bit_cast<std::uint64_t>(shifted) & 63u;
  // Both powers of two go into the exponent: 2^-whole for the comparison, 2^44 more for the number.
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(half_power<Math>(rest)) - (whole << 52);
  if (std::bit_cast<double>(bits) < min_p) return 0;
  const double scaled = std::bit_cast<double>(bits + (std::uint64_t{kWeightBits} << 52));
  return std::bit_cast<std::uint64_t>(Math::add_f64(scaled, 0x1p52)) & ((std::uint64_t{1} << 52) - 1);
}

// The upper 64 of the product's 128 bits.
constexpr std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
  const std::uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  return a1 * b1 + (middle >> 32) + ((a0 * b1 + (middle & 0xFFFFFFFFu)) >> 32);
}

// Where in a total a number of 53 random bits lies: the token drawn is the first whose running sum is larger.
constexpr std::uint64_t target_in(std::uint64_t total, std::uint64_t bits53) {
  return multiply_high(bits53 << 11, total);
}
// The number is sample/draw.h's of Purpose::token.
constexpr std::uint64_t target_of(std::uint64_t seed, std::int64_t position, std::uint64_t total) {
  const std::uint64_t stream = random_bits(seed, static_cast<std::uint64_t>(position));
  return target_in(total, random_bits(stream, 0) >> 11);
}

// The smallest sum that is top_p of the total; from 1 to the total.
template <class Math>
FOURFOLD_DEVICE std::uint64_t nucleus_of(std::uint64_t total, double top_p) {
  const double wanted = Math::mul_f64(top_p, static_cast<double>(total));
  const auto below = static_cast<std::uint64_t>(wanted);
  const std::uint64_t reached = below + (static_cast<double>(below) < wanted ? 1u : 0u);
  return reached == 0 ? 1 : reached < total ? reached : total;
}

}  // namespace fourfold::sampling
