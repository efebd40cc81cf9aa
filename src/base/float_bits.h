// Integer views of an f32 shared by every codec: magnitude, nearest-even shifts, the running maximum of a
// block. Integers only: nvcc contracts a * b + c into one rounding, so a codec that rounded by adding a large
// float could give other bits in a kernel than on the host. Everything here is constexpr and runs in kernels
// as well.
#pragma once

#include <bit>
#include <cstdint>

namespace fourfold {

inline constexpr std::uint32_t kF32InfinityBits = 0x7F800000u;

constexpr std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFu;
}
constexpr float absolute(float value) { return std::bit_cast<float>(magnitude_bits(value)); }
constexpr bool is_finite(float value) { return magnitude_bits(value) < kF32InfinityBits; }
constexpr bool is_nan(float value) { return magnitude_bits(value) > kF32InfinityBits; }

// value / 2^places to the nearest integer, ties to even; places in 1..31, value below 2^31.
constexpr std::uint32_t shift_right_nearest_even(std::uint32_t value, std::uint32_t places) {
  const std::uint32_t below_half = (1u << (places - 1u)) - 1u;
  return (value + below_half + ((value >> places) & 1u)) >> places;
}

// |value| / 2^unit_exponent to the nearest integer, ties to even, from the magnitude bits of a finite value
// below 2^(unit_exponent + 23). This is the subnormal half of a narrow format, whose codes count one fixed
// unit.
constexpr std::uint32_t count_units(std::uint32_t magnitude_bits_of_value, int unit_exponent) {
  const std::uint32_t biased = magnitude_bits_of_value >> 23;
  const std::uint32_t fraction = magnitude_bits_of_value & 0x7FFFFFu;
  const std::uint32_t significand = biased ? (fraction | 0x800000u) : fraction;
  const std::uint32_t places = static_cast<std::uint32_t>(unit_exponent + 150) - (biased ? biased : 1u);
  // A significand has 24 bits: 25 places or more always give zero.
  return shift_right_nearest_even(significand, places < 31u ? places : 31u);
}

// Maximum of magnitudes that ignores NaN, as fmaxf(amax, fabsf(value)) does on the GPU.
constexpr float widen_amax(float amax, float value) {
  const float candidate = absolute(value);
  return candidate > amax ? candidate : amax;
}

}  // namespace fourfold
