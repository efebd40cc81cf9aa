// UE8M0, the block scale of MXFP4: the power of two 2^(bits - 127), no sign, no zero; 0xFF is NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "base/float_bits.h"

namespace fourfold {

struct Ue8m0 {
  std::uint8_t bits;
  friend constexpr bool operator==(Ue8m0, Ue8m0) = default;
};

constexpr bool is_nan(Ue8m0 value) { return value.bits == 0xFF; }

// Exact: 2^-127 is a subnormal f32.
constexpr float to_float(Ue8m0 value) {
  if (value.bits == 0xFF) return std::bit_cast<float>(0x7FC00000u);
  if (value.bits == 0) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 23);
}

// The magnitude rounded up to a power of two, at least 2^-127 and at most 2^127 (infinity too); NaN gives
// 0xFF. This is cvt.rp.satfinite.ue8m0x2.f32. The shared-exponent rule of MXFP4 rounds down instead:
// mxfp4_block_scale.
constexpr Ue8m0 to_ue8m0(float value) {
  const std::uint32_t magnitude = magnitude_bits(value);
  if (magnitude > kF32InfinityBits) return {0xFF};
  if (magnitude <= 0x00400000u) return {0};  // 2^-127 and below
  const std::uint32_t rounded_up = (magnitude + 0x7FFFFFu) >> 23;
  return {static_cast<std::uint8_t>(rounded_up < 254u ? rounded_up : 254u)};
}

}  // namespace fourfold
