// The `half` bit order: how the eight codes of a row slot sit in a word so that the 16-bit kernels turn them
// into four bf16 pairs with eight operations instead of fifteen.
//
// A code s.eem is the bf16 number value * 2^-126 when s is at bit 15 and eem at bits 8..6. One mask extracts
// a pair of codes if a copy of the word, shifted or rotated, has both halves in place. Three pairs of a word
// tile that way; a product of three powers of two puts what is left into place, without a carry:
//
//   pair 0   a & M                          bits 15, 8, 7, 6 of each 16-bit half
//   pair 1   rotate_left(a, 10) & M         bits 5 and, in the other half, 14, 13, 12
//   pair 2   rotate_left(a, 13) & M         bits 2 and, in the other half, 11, 10, 9
//   pair 3   ((a & R) * 0x1084) & M         bits 3, 1, 0, 4: moved by 12, 7, 7, 2
//
// No four copies of {15, 8, 7, 6}, each moved as a whole, tile 16 bits (the polynomial 1 + x + x^2 + x^9 does
// not divide), so the last pair cannot be as cheap as the others. docs/decisions/0002 has the measurements.
#pragma once

#include <cstdint>

namespace fourfold::record {

inline constexpr std::uint32_t kCodeMask = 0x81C081C0u;  // sign and eem of two bf16 halves
inline constexpr std::uint32_t kRestMask = 0x001B001Bu;  // where pair 3 lies
inline constexpr std::uint32_t kRestFactor = 0x1084u;    // 2^12 + 2^7 + 2^2
inline constexpr int kRotation1 = 10, kRotation2 = 13;   // of pairs 1 and 2

constexpr int rotation_of(int pair) { return pair == 0 ? 0 : pair == 1 ? kRotation1 : kRotation2; }

constexpr std::uint32_t rotated(std::uint32_t word, int left) {
  return word << (left & 31) | word >> (-left & 31);
}

// The bf16 pair `pair` (columns 2 * pair, 2 * pair + 1) of a word, times 2^-126.
constexpr std::uint32_t half_order_pair(std::uint32_t word, int pair) {
  if (pair == 3) return ((word & kRestMask) * kRestFactor) & kCodeMask;
  return rotated(word, rotation_of(pair)) & kCodeMask;
}

// Two codes where bf16 has them.
constexpr std::uint32_t placed_pair(std::uint32_t low, std::uint32_t high) {
  return ((low & 8u) << 12) | ((low & 7u) << 6) | ((high & 8u) << 28) | ((high & 7u) << 22);
}

// From a word in fp4 order (code of column j in bits 4j..4j+3) to the half order.
constexpr std::uint32_t to_half_order(std::uint32_t word) {
  std::uint32_t out = 0;
  for (int pair = 0; pair < 4; ++pair) {
    const std::uint32_t placed = placed_pair((word >> (8 * pair)) & 15u, (word >> (8 * pair + 4)) & 15u);
    if (pair < 3)
      out |= rotated(placed, -rotation_of(pair));
    else
      out |= (placed & 0x80008000u) >> 12 | (placed & 0x01800180u) >> 7 | (placed & 0x00400040u) >> 2;
  }
  return out;
}

// Back to fp4 order.
constexpr std::uint32_t from_half_order(std::uint32_t word) {
  std::uint32_t codes = 0;
  for (int pair = 0; pair < 4; ++pair) {
    const std::uint32_t placed = half_order_pair(word, pair);
    const std::uint32_t low = ((placed >> 12) & 8u) | ((placed >> 6) & 7u);
    const std::uint32_t high = ((placed >> 28) & 8u) | ((placed >> 22) & 7u);
    codes |= low << (8 * pair) | high << (8 * pair + 4);
  }
  return codes;
}

// ---- scales ----
//
// Half order also re-codes NVFP4's E4M3 scales: five bits of exponent and three of fraction, always
// normalised, which a shift and an addition turn into the bf16 number scale * 2^118 (E4M3's own subnormals
// would take two multiplications). A block whose scale is zero has zero codes instead, and byte 0.

inline constexpr int kScaleBias = 112;  // of a normal E4M3 byte: 14 exponents

constexpr std::uint32_t to_half_scale(std::uint32_t e4m3) {
  if (e4m3 >= 8u) return e4m3 + kScaleBias;
  if (e4m3 == 0u) return 0u;
  const int top = e4m3 >= 4u ? 2 : e4m3 >= 2u ? 1 : 0;  // a subnormal's highest bit
  return static_cast<std::uint32_t>(12 + top) << 3 | (e4m3 << (3 - top) & 7u);
}
constexpr std::uint32_t from_half_scale(std::uint32_t byte) {
  if (byte >= 8u + kScaleBias) return byte - kScaleBias;
  if (byte == 0u) return 0u;
  return (8u | (byte & 7u)) >> (15 - (byte >> 3));
}
constexpr std::uint32_t to_half_scales(std::uint32_t word) {
  std::uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out |= to_half_scale((word >> (8 * i)) & 0x7Fu) << (8 * i);
  return out;
}
// The bf16 number scale * 2^118 of a byte that is not 0, in the low half of a word.
constexpr std::uint32_t half_scale_bits(std::uint32_t byte) { return 0x7000u + (byte << 4); }

}  // namespace fourfold::record
