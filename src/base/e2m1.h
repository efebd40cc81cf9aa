// E2M1, the four-bit element of NVFP4 and MXFP4: bit 3 sign, then magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 for
// codes 0 to 7. There is no infinity and no NaN. Conversion rounds to nearest, ties to the even code (as
// values: 0.25 to 0, 0.75 to 1, 1.25 to 1, 1.75 to 2, 2.5 to 2, 3.5 to 4, 5 to 4), saturates at 6 and keeps
// the sign of zero. NaN of either sign gives +6 (code 7). All as cvt.rn.satfinite.e2m1x2.f32 is documented
// to.
#pragma once

#include <bit>
#include <cstdint>

#include "base/float_bits.h"

namespace fourfold {

struct E2m1 {
  std::uint8_t bits;  // 0..15
  friend constexpr bool operator==(E2m1, E2m1) = default;
};

inline constexpr float kE2m1Largest = 6.0f;

// The value times two, an integer from -12 to 12: what exact integer dot products sum. Both zeros give 0.
constexpr int e2m1_doubled(E2m1 code) {
  const int exponent = (code.bits >> 1) & 3;
  const int fraction = code.bits & 1;
  const int doubled = exponent ? (2 | fraction) << (exponent - 1) : fraction;
  return (code.bits & 8) ? -doubled : doubled;
}

constexpr float to_float(E2m1 code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code.bits & 8u) << 28;
  const float magnitude_of_code =
      0.5f * static_cast<float>(e2m1_doubled({static_cast<std::uint8_t>(code.bits & 7)}));
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude_of_code));
}

// No branch survives compilation: two compares below 1, where codes count halves; from 1 on a code is the top
// of the float's own bits with the exponent rebased, so one integer rounding serves, carries into the
// exponent included.
constexpr E2m1 to_e2m1(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const float size = absolute(value);
  const std::uint32_t below_one =
      static_cast<std::uint32_t>(size > 0.25f) + static_cast<std::uint32_t>(size >= 0.75f);
  const std::uint32_t rounded = shift_right_nearest_even(bits & 0x7FFFFFFFu, 22) - 252u;
  const std::uint32_t from_one = rounded < 7u ? rounded : 7u;  // infinities and NaN end here too
  // Only a negative NaN lies above the bits of negative infinity; it drops its sign.
  const std::uint32_t sign = bits > (0x80000000u | kF32InfinityBits) ? 0u : (bits >> 28) & 8u;
  return {static_cast<std::uint8_t>(sign | (size < 1.0f ? below_one : from_one))};
}

// Two codes to a byte: the even column in the low nibble, as every checkpoint and the FP4 MMA have it.
constexpr std::uint8_t pack_e2m1(E2m1 even, E2m1 odd) {
  return static_cast<std::uint8_t>((even.bits & 15u) | ((odd.bits & 15u) << 4));
}
constexpr E2m1 e2m1_even(std::uint8_t pair) { return {static_cast<std::uint8_t>(pair & 15u)}; }
constexpr E2m1 e2m1_odd(std::uint8_t pair) { return {static_cast<std::uint8_t>(pair >> 4)}; }

}  // namespace fourfold
