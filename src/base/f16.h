// IEEE binary16. Conversion rounds to nearest even once (subnormals included), keeps infinities, overflows to
// infinity and gives the canonical NaN 0x7FFF, as cvt.rn.f16.f32 does.
#pragma once

#include <bit>
#include <cstdint>

#include "base/float_bits.h"

namespace fourfold {

struct F16 {
  std::uint16_t bits;
  friend constexpr bool operator==(F16, F16) = default;
};

// Exact; a NaN keeps its payload.
constexpr float to_float(F16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = value.bits & 0x7FFFu;
  std::uint32_t bits = (magnitude << 13) + (112u << 23);  // exponent bias 15 -> 127
  if (magnitude >= 0x7C00u) bits = (magnitude << 13) | kF32InfinityBits;
  if (magnitude < 0x0400u) bits = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  return std::bit_cast<float>(sign | bits);
}

constexpr F16 to_f16(float value) {
  const std::uint32_t magnitude = magnitude_bits(value);
  if (magnitude > kF32InfinityBits) return {0x7FFF};
  const std::uint32_t sign = (std::bit_cast<std::uint32_t>(value) >> 16) & 0x8000u;
  constexpr std::uint32_t smallest_normal = 113u << 23;  // 2^-14
  std::uint32_t code = magnitude < smallest_normal ? count_units(magnitude, -24)
                                                   : shift_right_nearest_even(magnitude, 13) - (112u << 10);
  if (code > 0x7C00u) code = 0x7C00u;
  return {static_cast<std::uint16_t>(sign | code)};
}

}  // namespace fourfold
