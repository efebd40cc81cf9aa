// fused_sum_16 of base/tensor_core.h for a processor: operands as doubles, in which every product is exact,
// also when it is scaled so that the unit of truncation is 1. Conversion to an integer is the truncation
// then, and compilers do several at once. The same bits for every finite operand
// (tests/base/wide_operands_test.cpp).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/tensor_core.h"

namespace fourfold::tensor_core {

// The sixteen of one k16 step.
struct WideOperands {
  double value[16];
  std::int32_t exponent[16];  // as Operand has it; kNoExponent of zero
};
inline constexpr std::int32_t kNoExponent = -10'000;  // loses against everything, and so do two of them

inline void set_operand(WideOperands& operands, int k, std::uint16_t bits) {
  const int biased = (bits >> 7) & 0xFF;
  operands.value[k] = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  operands.exponent[k] = (bits & 0x7FFF) == 0 ? kNoExponent : biased == 0 ? -126 : biased - 127;
}

inline float fused_sum_16(float c, const WideOperands& a, const WideOperands& b) {
  const Operand addend = split_f32(c);
  std::int32_t largest = addend.magnitude != 0 ? addend.exponent : kNoExponent;
  for (int k = 0; k < 16; ++k) largest = std::max(largest, a.exponent[k] + b.exponent[k]);
  if (largest < kNoExponent / 2) return 0.0f;
  const int lsb = largest - 25;
  const auto scale = std::bit_cast<double>(static_cast<std::uint64_t>(1023 - lsb) << 52);
  // A scaled product is below 2^27: four of them fit 32 bits.
  std::int32_t sums[4] = {};
  for (int k = 0; k < 16; k += 4)
    for (int i = 0; i < 4; ++i) sums[i] += static_cast<std::int32_t>(a.value[k + i] * b.value[k + i] * scale);
  std::int64_t sum = static_cast<std::int64_t>(static_cast<double>(c) * scale);
  for (const std::int32_t part : sums) sum += part;
  return round_toward_zero(sum, lsb);
}

}  // namespace fourfold::tensor_core
