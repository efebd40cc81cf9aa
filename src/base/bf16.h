// bfloat16: the upper half of an f32. Conversion rounds to nearest even, keeps infinities, overflows to
// infinity and gives the canonical NaN 0x7FFF, as cvt.rn.bf16.f32 does.
#pragma once

#include <bit>
#include <cstdint>

#include "base/float_bits.h"

namespace fourfold {

struct Bf16 {
  std::uint16_t bits;
  friend constexpr bool operator==(Bf16, Bf16) = default;
};

constexpr float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

constexpr Bf16 to_bf16(float value) {
  const std::uint32_t magnitude = magnitude_bits(value);
  if (magnitude > kF32InfinityBits) return {0x7FFF};
  const std::uint32_t sign = (std::bit_cast<std::uint32_t>(value) >> 16) & 0x8000u;
  return {static_cast<std::uint16_t>(sign | shift_right_nearest_even(magnitude, 16))};
}

}  // namespace fourfold
