// The exact arithmetic of the tensor cores, as plain integer code: what the simulator executes, what the
// scalar references expect bit for bit, and what the emulated FP4 instruction computes on Hopper.
//
// bf16 (mma.m16n8k16 and wgmma k16 on Hopper): the sixteen products and C are aligned to the largest exponent
// among the non-zero addends, each truncated (toward zero) below 2^(E-25), summed exactly, and the sum is
// rounded toward zero to f32 once. Checked on an H200: 0 of 1,536,000 mma outputs and 0 of 1,536,000 wgmma
// outputs differ, subnormal operands included (bench/results/).
//
// FP8 (wgmma k32 of E4M3 on Hopper): the thirty-two products and C aligned the same way, but truncated below
// 2^(E-13), and the sum rounded toward zero to 13 fraction bits, which is why a chain of them must be short.
// A published model of Hopper (MMA-Sim); bench/results/w8a8-h200.txt has what an H200 said to it. mma of E4M3
// (m16n8k32) keeps 25 bits, as bf16's does, and rounds to f32: the same publication's model of RTX Blackwell,
// not measured by us.
//
// FP4 (mma.m16n8k64 on SM120): four exact 16-block sums, each times its two scales; the four and C are
// aligned to E = max(exp C, exp scale_a + exp scale_b), truncated below 2^(E-35), summed, rounded toward zero
// once. A published model of RTX Blackwell (MMA-Sim); not measured by us.
#pragma once

#include <bit>
#include <cstdint>

namespace fourfold::tensor_core {

// A finite number as sign * magnitude * 2^lsb, with the exponent that decides alignment.
struct Operand {
  std::int32_t exponent;   // of the leading 1 of a normal number; -126 for subnormals and zero
  std::int32_t magnitude;  // signed integer significand; 0 for zero
};

constexpr bool is_finite_bf16(std::uint16_t bits) { return (bits & 0x7F80u) != 0x7F80u; }

// value = magnitude * 2^(exponent - 7)
constexpr Operand split_bf16(std::uint16_t bits) {
  const int biased = (bits >> 7) & 0xFF;
  const int fraction = bits & 0x7F;
  const int magnitude = biased ? (fraction | 0x80) : fraction;
  return {biased ? biased - 127 : -126, (bits & 0x8000) ? -magnitude : magnitude};
}

// value = magnitude * 2^(exponent - 23)
constexpr Operand split_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const int biased = static_cast<int>((bits >> 23) & 0xFF);
  const int fraction = static_cast<int>(bits & 0x7FFFFF);
  const int magnitude = biased ? (fraction | 0x800000) : fraction;
  return {biased ? biased - 127 : -126, (bits >> 31) ? -magnitude : magnitude};
}

// Shifts a signed integer by `left` places, dropping low bits toward zero.
constexpr std::int64_t shift_toward_zero(std::int64_t value, int left) {
  if (left >= 0) return value << left;
  if (left < -62) return 0;
  return value < 0 ? -((-value) >> -left) : value >> -left;
}

// Place of the highest set bit; value is not zero. Spelled out: nvcc 13.0 compiles std::countl_zero to the
// constant 64 in device code.
constexpr int highest_bit(std::uint64_t value) {
  int place = 0;
  for (int step = 32; step > 0; step /= 2)
    if (value >> step) {
      value >>= step;
      place += step;
    }
  return place;
}

// sum * 2^lsb rounded toward zero to f32. An exact zero sum is +0.
constexpr float round_toward_zero(std::int64_t sum, int lsb) {
  if (sum == 0) return 0.0f;
  const std::uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  std::uint64_t magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
  const int exponent = highest_bit(magnitude) + lsb;  // weight of the leading bit
  if (exponent > 127) return std::bit_cast<float>(sign | 0x7F800000u);
  // Unit of the result: 23 bits below the leading one, or the smallest subnormal.
  const int unit = (exponent < -126 ? -126 : exponent) - 23;
  magnitude = unit >= lsb ? (unit - lsb > 63 ? 0 : magnitude >> (unit - lsb)) : magnitude << (lsb - unit);
  if (exponent < -126) return std::bit_cast<float>(sign | static_cast<std::uint32_t>(magnitude));
  return std::bit_cast<float>(sign | (static_cast<std::uint32_t>(exponent + 127) << 23) |
                              (static_cast<std::uint32_t>(magnitude) & 0x7FFFFFu));
}

// C + sum of 16 products, finite operands only.
constexpr float fused_sum_16(float c, const Operand* a, const Operand* b) {
  const Operand addend = split_f32(c);
  std::int32_t product_exponent[16]{};
  std::int32_t product[16]{};
  int largest = addend.magnitude ? addend.exponent : INT32_MIN;
  for (int k = 0; k < 16; ++k) {
    product[k] = a[k].magnitude * b[k].magnitude;
    product_exponent[k] = a[k].exponent + b[k].exponent;
    if (product[k] != 0 && product_exponent[k] > largest) largest = product_exponent[k];
  }
  if (largest == INT32_MIN) return 0.0f;
  const int lsb = largest - 25;
  std::int64_t sum = addend.magnitude ? shift_toward_zero(addend.magnitude, addend.exponent - 23 - lsb) : 0;
  for (int k = 0; k < 16; ++k)
    if (product[k] != 0) sum += shift_toward_zero(product[k], product_exponent[k] - 14 - lsb);
  return round_toward_zero(sum, lsb);
}

// E4M3: value = magnitude * 2^(exponent - 3); subnormals have the exponent of the smallest normal number.
constexpr Operand split_e4m3(std::uint8_t bits) {
  const int biased = (bits >> 3) & 15;
  const int fraction = bits & 7;
  const int magnitude = biased ? (fraction | 8) : fraction;
  return {biased ? biased - 7 : -6, (bits & 0x80) ? -magnitude : magnitude};
}

// Bits below the leading one that a sum of FP8 products keeps: of wgmma on Hopper, of mma on SM120.
inline constexpr int kWgmmaFp8Bits = 13, kMmaFp8Bits = 25;

// C + sum of 32 products of E4M3, finite operands only.
constexpr float fused_sum_fp8(float c, const Operand* a, const Operand* b,
                              int fraction_bits = kWgmmaFp8Bits) {
  const Operand addend = split_f32(c);
  int largest = addend.magnitude ? addend.exponent : INT32_MIN;
  for (int k = 0; k < 32; ++k)
    if (a[k].magnitude != 0 && b[k].magnitude != 0 && a[k].exponent + b[k].exponent > largest)
      largest = a[k].exponent + b[k].exponent;
  if (largest == INT32_MIN) return 0.0f;
  const int lsb = largest - fraction_bits;
  std::int64_t sum = addend.magnitude ? shift_toward_zero(addend.magnitude, addend.exponent - 23 - lsb) : 0;
  for (int k = 0; k < 32; ++k)
    sum += shift_toward_zero(a[k].magnitude * b[k].magnitude, a[k].exponent + b[k].exponent - 6 - lsb);
  // What f32 has beyond these bits is cut off.
  const std::uint32_t beyond = fraction_bits < 23 ? (1u << (23 - fraction_bits)) - 1u : 0u;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(round_toward_zero(sum, lsb)) & ~beyond);
}

// One FP4 output. block_sum_x4: the exact block sums times 4 (a sum of 16 products of E2M1 values is a
// multiple of 1/4). scale_exponent: exponent of each block's two scales together; scale_product: product of
// their significands as integers, so that scale = scale_product * 2^(scale_exponent - scale_fraction_bits).
constexpr float fused_sum_fp4(float c, const std::int32_t* block_sum_x4, const std::int32_t* scale_exponent,
                              const std::int32_t* scale_product, int scale_fraction_bits, int blocks) {
  const Operand addend = split_f32(c);
  int largest = addend.exponent;
  for (int b = 0; b < blocks; ++b)
    if (scale_exponent[b] > largest) largest = scale_exponent[b];
  const int lsb = largest - 35;
  std::int64_t sum = shift_toward_zero(addend.magnitude, addend.exponent - 23 - lsb);
  for (int b = 0; b < blocks; ++b) {
    const std::int64_t term = static_cast<std::int64_t>(block_sum_x4[b]) * scale_product[b];
    sum += shift_toward_zero(term, scale_exponent[b] - scale_fraction_bits - 2 - lsb);
  }
  return round_toward_zero(sum, lsb);
}

// An unsigned E4M3 scale: value = significand * 2^(exponent - 3); bit 7 is ignored. Zero has exponent -126.
struct ScaleParts {
  std::int32_t exponent;
  std::int32_t significand;
};
constexpr ScaleParts split_ue4m3(std::uint32_t byte) {
  const int biased = static_cast<int>((byte >> 3) & 15u);
  const int fraction = static_cast<int>(byte & 7u);
  if (biased == 0) return {fraction ? -6 : -126, fraction};
  return {biased - 7, fraction | 8};
}
// UE8M0: a power of two, value = 2^exponent.
constexpr ScaleParts split_ue8m0(std::uint32_t byte) {
  return {static_cast<std::int32_t>(byte & 255u) - 127, 1};
}

}  // namespace fourfold::tensor_core
