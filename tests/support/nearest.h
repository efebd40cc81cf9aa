// The meaning of "round to nearest, ties to even" in double precision, by search and by the floating-point
// unit: two models that share no code with the codecs they judge. Also the floats worth trying.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/random.h"

namespace fourfold::test_support {

// The code (index into values) whose value is nearest to `magnitude`; a tie goes to the even code, and what
// exceeds the largest value to the largest. values must ascend.
inline std::uint32_t nearest_code(double magnitude, const std::vector<double>& values) {
  // First, because far away the distances to all values round to the same double.
  if (magnitude >= values.back()) return static_cast<std::uint32_t>(values.size() - 1);
  std::uint32_t best = 0;
  for (std::uint32_t code = 1; code < values.size(); ++code) {
    const double before = std::fabs(magnitude - values[best]);
    const double now = std::fabs(magnitude - values[code]);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return best;
}

// Rounds to a binary format with `fraction_bits` and least normal exponent `least_exponent`; overflow is the
// caller's.
inline double round_to_format(double value, int fraction_bits, int least_exponent) {
  if (value == 0.0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), least_exponent);
  const double unit = std::ldexp(1.0, exponent - fraction_bits);
  return std::nearbyint(value / unit) * unit;
}

// `value`, its neighbours up to three units in the last place away, and the negatives of all.
inline void add_with_neighbours(std::vector<float>& floats, float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  for (std::uint32_t offset = 0; offset <= 6; ++offset) {
    const std::uint32_t near = bits + offset - 3u;
    if (bits + offset < 3u || near > 0x7F800000u) continue;
    floats.push_back(std::bit_cast<float>(near));
    floats.push_back(-std::bit_cast<float>(near));
  }
}

// Every value and every midpoint of two neighbouring values with their neighbours, zeros, subnormals,
// infinities, and a million random bit patterns (all exponents; NaN left out).
inline std::vector<float> probing_floats(const std::vector<double>& values) {
  std::vector<float> floats;
  for (std::size_t code = 0; code < values.size(); ++code) {
    add_with_neighbours(floats, static_cast<float>(values[code]));
    if (code > 0) add_with_neighbours(floats, static_cast<float>((values[code - 1] + values[code]) / 2));
  }
  const double past_last = values.back() + (values.back() - values[values.size() - 2]) / 2;
  add_with_neighbours(floats, static_cast<float>(past_last));
  for (const float extreme :
       {0.0f, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min(),
        std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()})
    add_with_neighbours(floats, extreme);
  Random random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()));
    if (!std::isnan(value)) floats.push_back(value);
  }
  // Uniform bit patterns seldom hit a narrow format's range: as many again lie inside it.
  for (int i = 0; i < 1'000'000; ++i)
    floats.push_back(static_cast<float>(random.uniform(-1.2 * values.back(), 1.2 * values.back())));
  return floats;
}

// NaNs of both signs, quiet and signalling, with small and large payloads.
inline std::vector<float> nans() {
  std::vector<float> floats;
  for (const std::uint32_t bits : {0x7F800001u, 0x7FBFFFFFu, 0x7FC00000u, 0x7FFFFFFFu})
    for (const std::uint32_t sign : {0u, 0x80000000u}) floats.push_back(std::bit_cast<float>(bits | sign));
  return floats;
}

}  // namespace fourfold::test_support
