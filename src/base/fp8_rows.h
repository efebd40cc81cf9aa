// A row of activations as E4M3 codes and one factor. The factor is a power of two, so dividing by it and
// multiplying with it are exact, here and on every GPU; and nothing is lost by that, because E4M3 has an
// exponent of its own: the row's largest number becomes a code above 224 and up to 448.
#pragma once

#include <bit>
#include <cstdint>

#include "base/e4m3.h"
#include "base/float_bits.h"

namespace fourfold {

struct Fp8RowFactor {
  float factor;   // value = code * factor
  float inverse;  // exact where the factor is a power of two
};

// Of a matrix's own input scale.
constexpr Fp8RowFactor fp8_input_factor(float scale) { return {scale, 1.0f / scale}; }

// Of a row whose largest magnitude is `largest`, a number that bf16 has. Rows too small for an exact inverse
// (below 2^-92) share the smallest factor, and a row of zeros has 1.
constexpr Fp8RowFactor fp8_row_factor(float largest) {
  const std::uint32_t bits = magnitude_bits(largest);
  if (bits == 0) return {1.0f, 1.0f};
  constexpr std::uint32_t fraction_of_448 = 0x600000u;  // 448 = 1.75 * 2^8
  const int above = (bits & 0x7FFFFFu) > fraction_of_448 ? 1 : 0;
  int exponent = static_cast<int>(bits >> 23) - 127 - 8 + above;
  if (exponent < -100) exponent = -100;
  const auto power = [](int e) { return std::bit_cast<float>(static_cast<std::uint32_t>(127 + e) << 23); };
  return {power(exponent), power(-exponent)};
}

}  // namespace fourfold
