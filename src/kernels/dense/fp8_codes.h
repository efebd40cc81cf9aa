// bf16 rows to E4M3 codes in the order the tiled kernels read (record::fp8_token_byte): for quantize_rows and
// norm_prompt, which give the same bits.
#pragma once

#include <bit>
#include <cstdint>

#include "base/fp8_rows.h"
#include "base/macros.h"
#include "kernels/device/types.h"

namespace fourfold::dense {

FOURFOLD_DEVICE float low_half(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
FOURFOLD_DEVICE float high_half(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xFFFF0000u); }

// The larger of `largest` and the magnitudes of a bf16 pair.
template <class Cta>
FOURFOLD_DEVICE float larger(float largest, std::uint32_t pair) {
  return Cta::max(largest, Cta::max(Cta::abs(low_half(pair)), Cta::abs(high_half(pair))));
}
template <class Cta>
FOURFOLD_DEVICE float largest_of_warp(Cta cta, float largest) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) largest = Cta::max(largest, cta.shuffle_xor(largest, mask));
  return largest;
}

// Columns 4i .. 4i + 3 as pairs {4i, 4i + 1} and {4i + 2, 4i + 3}: the word of their codes, columns in the
// byte order 2, 0, 3, 1 (record::fp8_byte).
template <class Cta>
FOURFOLD_DEVICE std::uint32_t four_codes(std::uint32_t first, std::uint32_t second, float inverse) {
  return Cta::pack_e4m3(Cta::mul(low_half(second), inverse), Cta::mul(low_half(first), inverse)) |
         Cta::pack_e4m3(Cta::mul(high_half(second), inverse), Cta::mul(high_half(first), inverse)) << 16;
}

}  // namespace fourfold::dense
