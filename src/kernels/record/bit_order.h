// The `half` bit order: how 16 codes (8 of row slot g, 8 of slot g + 8) sit in two words so that the 16-bit
// kernels turn them into eight bf16 pairs with 18 operations instead of 30.
//
// A code s.eem is the bf16 number value * 2^-126 when s is at bit 15 and eem at bits 8..6. One mask extracts
// a pair of codes if a shifted copy of the word has both halves in place. Three pairs per word tile that way
// (shifts 0, 4 and rotation 10); the fourth pairs of the two words share the bits left over:
//
//   pair 0   a & M                          bits 15, 8, 7, 6 of each 16-bit half
//   pair 1   (a << 4) & M                   bits 11, 4, 3, 2
//   pair 2   rotate_left(a, 10) & M         bit 5 and, in the other half, bits 14, 13, 12
//   pair 3   row g:     (a << 5) & SM | (b >> 2) & EE       a's bits 10, 1 and b's bits 10, 9
//            row g + 8: (a << 6) & SM | (b << 7) & EE       a's bits 9, 0 and b's bits 1, 0
//
// No four shifted copies of {15, 8, 7, 6} tile 16 bits (the polynomial 1 + x + x^2 + x^9 does not divide), so
// one word alone cannot do better than eleven operations. docs/decisions/0002 has the measurements.
#pragma once

#include <cstdint>

namespace fourfold::record {

inline constexpr std::uint32_t kCodeMask = 0x81C081C0u;      // sign and eem of two bf16 halves
inline constexpr std::uint32_t kSignLowMask = 0x80408040u;   // sign and m
inline constexpr std::uint32_t kExponentMask = 0x01800180u;  // ee

struct HalfWords {
  std::uint32_t a;  // register of row slot g
  std::uint32_t b;  // register of row slot g + 8
};

// Moves the bf16-placed bits of a pair back to where the word keeps them.
constexpr std::uint32_t spread_code_pair(std::uint32_t low, std::uint32_t high) {
  const std::uint32_t placed =
      ((low & 8u) << 12) | ((low & 7u) << 6) | ((high & 8u) << 28) | ((high & 7u) << 22);
  return placed;
}

constexpr std::uint32_t rotate_right_10(std::uint32_t word) { return (word >> 10) | (word << 22); }

// From two words in fp4 order (code of column j in bits 4j..4j+3) to the half order.
constexpr HalfWords to_half_order(std::uint32_t row_g, std::uint32_t row_g8) {
  HalfWords out{0, 0};
  std::uint32_t last[2]{};
  for (int pair = 0; pair < 4; ++pair) {
    const std::uint32_t of_g = spread_code_pair((row_g >> (8 * pair)) & 15u, (row_g >> (8 * pair + 4)) & 15u);
    const std::uint32_t of_g8 =
        spread_code_pair((row_g8 >> (8 * pair)) & 15u, (row_g8 >> (8 * pair + 4)) & 15u);
    if (pair == 0) {
      out.a |= of_g;
      out.b |= of_g8;
    } else if (pair == 1) {
      out.a |= of_g >> 4;
      out.b |= of_g8 >> 4;
    } else if (pair == 2) {
      out.a |= rotate_right_10(of_g);
      out.b |= rotate_right_10(of_g8);
    } else {
      last[0] = of_g;
      last[1] = of_g8;
    }
  }
  out.a |= (last[0] & kSignLowMask) >> 5 | (last[1] & kSignLowMask) >> 6;
  out.b |= (last[0] & kExponentMask) << 2 | (last[1] & kExponentMask) >> 7;
  return out;
}

// The bf16 pair `pair` (columns 2*pair, 2*pair + 1) of row slot g (upper == 0) or g + 8, times 2^-126.
constexpr std::uint32_t half_order_pair(HalfWords words, int pair, int upper) {
  const std::uint32_t own = upper ? words.b : words.a;
  switch (pair) {
    case 0: return own & kCodeMask;
    case 1: return (own << 4) & kCodeMask;
    case 2: return ((own << 10) | (own >> 22)) & kCodeMask;
    default:
      return upper ? ((words.a << 6) & kSignLowMask) | ((words.b << 7) & kExponentMask)
                   : ((words.a << 5) & kSignLowMask) | ((words.b >> 2) & kExponentMask);
  }
}

// Back to fp4 order.
constexpr std::uint32_t from_half_order(HalfWords words, int upper) {
  std::uint32_t codes = 0;
  for (int pair = 0; pair < 4; ++pair) {
    const std::uint32_t placed = half_order_pair(words, pair, upper);
    const std::uint32_t low = ((placed >> 12) & 8u) | ((placed >> 6) & 7u);
    const std::uint32_t high = ((placed >> 28) & 8u) | ((placed >> 22) & 7u);
    codes |= low << (8 * pair) | high << (8 * pair + 4);
  }
  return codes;
}

}  // namespace fourfold::record
