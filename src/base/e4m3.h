// E4M3 (float8_e4m3fn), the block scale of NVFP4 and the element of FP8 matrices: bias 7, largest 448 (0x7E),
// smallest 2^-9 (0x01), no infinity, NaN is 0x7F and 0xFF. Conversion rounds to nearest even, saturates at
// 448 (infinity too) and gives 0x7F for NaN of either sign, as cvt.rn.satfinite.e4m3x2.f32 is documented to.
#pragma once

#include <bit>
#include <cstdint>

#include "base/float_bits.h"

namespace fourfold {

struct E4m3 {
  std::uint8_t bits;
  friend constexpr bool operator==(E4m3, E4m3) = default;
};

inline constexpr float kE4m3Largest = 448.0f;
inline constexpr float kE4m3Smallest = 0x1p-9f;

constexpr bool is_nan(E4m3 value) { return (value.bits & 0x7F) == 0x7F; }

constexpr float to_float(E4m3 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x80u) << 24;
  const std::uint32_t code = value.bits & 0x7Fu;
  std::uint32_t bits = (code << 20) + (120u << 23);  // exponent bias 7 -> 127
  if (code == 0x7Fu) bits = 0x7FC00000u;
  if (code < 0x08u) bits = std::bit_cast<std::uint32_t>(static_cast<float>(code) * kE4m3Smallest);
  return std::bit_cast<float>(sign | bits);
}

constexpr E4m3 to_e4m3(float value) {
  const std::uint32_t magnitude = magnitude_bits(value);
  if (magnitude > kF32InfinityBits) return {0x7F};
  const std::uint32_t sign = (std::bit_cast<std::uint32_t>(value) >> 24) & 0x80u;
  constexpr std::uint32_t smallest_normal = 121u << 23;  // 2^-6
  std::uint32_t code = magnitude < smallest_normal ? count_units(magnitude, -9)
                                                   : shift_right_nearest_even(magnitude, 20) - (120u << 3);
  if (code > 0x7Eu) code = 0x7Eu;
  return {static_cast<std::uint8_t>(sign | code)};
}

}  // namespace fourfold
