// MXFP4 (OCP Microscaling): E2M1 codes, one UE8M0 scale per 32 columns, nothing above; value = code *
// 2^(scale - 127). Scales, views and matrices here convert to none of nvfp4.h's, nor back, so that mixing the
// formats up does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/e2m1.h"
#include "base/float_bits.h"
#include "base/ue8m0.h"

namespace fourfold {

inline constexpr int kMxfp4BlockColumns = 32;

// Exact unless it overflows, which takes a scale of 2^126 or more.
constexpr float mxfp4_value(E2m1 code, Ue8m0 scale) { return to_float(code) * to_float(scale); }

// The OCP rule: exponent floor(log2(amax)) - 2 (2 is the exponent of E2M1's largest power of two), at least
// -127. Magnitudes between 6 and 8 times the scale saturate; that is the rule's, not ours. An all-zero block
// gets 1.
constexpr Ue8m0 mxfp4_block_scale(float amax) {
  if (amax == 0.0f) return {127};
  const std::uint32_t biased_exponent = magnitude_bits(amax) >> 23;
  return {static_cast<std::uint8_t>(biased_exponent < 2u ? 0u : biased_exponent - 2u)};
}

// The quotient is exact, or so small that it rounds to zero either way.
constexpr E2m1 mxfp4_code(float value, Ue8m0 scale) { return to_e2m1(value / to_float(scale)); }

// A matrix in memory the caller owns.
struct Mxfp4View {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::span<const std::uint8_t> codes;  // [rows, columns / 2], even column in the low nibble
  std::span<const Ue8m0> scales;        // [rows, columns / 32], linear

  E2m1 code(std::int64_t row, std::int64_t column) const {
    const std::uint8_t pair = codes[static_cast<std::size_t>(row * (columns / 2) + column / 2)];
    return column % 2 ? e2m1_odd(pair) : e2m1_even(pair);
  }
  Ue8m0 scale(std::int64_t row, std::int64_t block) const {
    return scales[static_cast<std::size_t>(row * (columns / kMxfp4BlockColumns) + block)];
  }
};

struct Mxfp4Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::uint8_t> codes;  // [rows, columns / 2], even column in the low nibble
  std::vector<Ue8m0> scales;        // [rows, columns / 32], linear

  Mxfp4View view() const { return {rows, columns, codes, scales}; }
};

// Raw checkpoint bytes as scales.
std::span<const Ue8m0> as_ue8m0(std::span<const std::byte> bytes);

// Throws bad_checkpoint when sizes disagree or a scale is 0xFF (NaN); names the row, the block and the byte.
void validate(const Mxfp4View& matrix);

// [rows, columns] in f32.
std::vector<float> dequantize(const Mxfp4View& matrix);
void dequantize_row(const Mxfp4View& matrix, std::int64_t row, std::span<float> out);

// values: [rows, columns]. NaN and infinite weights are refused with their position.
Mxfp4Matrix quantize_mxfp4_weights(std::span<const float> values, std::int64_t rows, std::int64_t columns);

}  // namespace fourfold
