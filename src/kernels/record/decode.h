// From a weight record to the A operands of bf16 tensor-core steps: decode in registers, scales folded in.
// Exact: an E2M1 code times an E4M3 or UE8M0 scale has at most six significant bits. Half order is made for
// it; NVFP4 records in fp4 order, which the FP4 instruction reads as they are, take about twice the
// operations and give the same operands.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/record/bit_order.h"
#include "kernels/record/record.h"

namespace fourfold::record {

// What one lane reads of a record's scales for the 16-bit paths: one broadcast load at g serves both tiles
// and both row slots.
template <class Format>
struct LaneScales;
template <>
struct LaneScales<Nvfp4> {
  using Word = device::U32x4;  // {tile 0 slot g, tile 0 slot g+8, tile 1 slot g, tile 1 slot g+8}, four
                               // scales each (bit_order.h)
  Word words;
};
template <>
struct LaneScales<Mxfp4> {
  using Word = device::U32x2;  // {tile 0, tile 1}, each {slot g, slot g+8} of two UE8M0
  Word words;
};

template <class Format>
constexpr int lane_scale_offset(int lane) {
  return (lane >> 2) * static_cast<int>(sizeof(typename LaneScales<Format>::Word));
}

// The same for a warp that owns one tile.
template <class Format>
struct TileScales;
template <>
struct TileScales<Nvfp4> {
  using Word = device::U32x2;  // {slot g, slot g+8}, four scales each (bit_order.h)
  Word words;
};
template <>
struct TileScales<Mxfp4> {
  using Word = std::uint32_t;  // {slot g, slot g+8} of two UE8M0
  Word words;
};
template <class Format>
constexpr int tile_scale_offset(int lane, int tile) {
  return lane_scale_offset<Format>(lane) + tile * static_cast<int>(sizeof(typename TileScales<Format>::Word));
}

// The two multipliers of a row slot as a bf16 pair: low half for columns 0..31 of the record, high half
// for 32..63, of the 16-block (or 32-block) this lane's columns belong to. NVFP4 gives scale * 2^118, MXFP4
// scale * 2^64.
template <BitOrder order, class Cta>
FOURFOLD_DEVICE std::uint32_t nvfp4_pair(std::uint32_t word, int lane) {
  // Lane t holds columns 8t..8t+7 of each half: 16-block t/2 of that half, byte t/2 or 2 + t/2.
  const std::uint32_t selector = (lane & 2) ? 0x4341u : 0x4240u;
  const std::uint32_t bytes = Cta::byte_permute(word, 0u, selector) << 4;
  if constexpr (order == BitOrder::fp4) {
    // An E4M3 byte four places up is the bf16 number scale * 2^-120, subnormals included; 2^238 is more than
    // one factor can be.
    constexpr std::uint32_t two_to_119 = 0x7B007B00u;
    return Cta::mul_bf16x2(Cta::mul_bf16x2(bytes, two_to_119), two_to_119);
  }
  constexpr std::uint32_t bias = half_scale_bits(0u) << 16 | half_scale_bits(0u);
  return bytes + bias;
}
template <class Cta>
FOURFOLD_DEVICE std::uint32_t mxfp4_pair(std::uint32_t word, int upper) {
  const std::uint32_t exponents = Cta::byte_permute(word, 0u, upper ? 0x4342u : 0x4140u);
  constexpr std::uint32_t shift = static_cast<std::uint32_t>(Mxfp4::half_exponent_shift) << 7;
  return (exponents << 7) + (shift | shift << 16);
}

// A choice of words, not an index: an index known only at run time would put them into local memory.
template <class Cta, BitOrder order = BitOrder::half>
FOURFOLD_DEVICE std::uint32_t scale_pair(const LaneScales<Nvfp4>& scales, int tile, int upper, int lane) {
  return nvfp4_pair<order, Cta>(tile ? scales.words.v[2 + upper] : scales.words.v[upper], lane);
}
template <class Cta, BitOrder order = BitOrder::half>
FOURFOLD_DEVICE std::uint32_t scale_pair(const LaneScales<Mxfp4>& scales, int tile, int upper, int) {
  static_assert(order == BitOrder::half, "16-bit tokens read MXFP4 in half order alone");
  return mxfp4_pair<Cta>(tile ? scales.words.v[1] : scales.words.v[0], upper);
}
template <class Cta, BitOrder order = BitOrder::half>
FOURFOLD_DEVICE std::uint32_t scale_pair(const TileScales<Nvfp4>& scales, int upper, int lane) {
  return nvfp4_pair<order, Cta>(scales.words.v[upper], lane);
}
template <class Cta, BitOrder order = BitOrder::half>
FOURFOLD_DEVICE std::uint32_t scale_pair(const TileScales<Mxfp4>& scales, int upper, int) {
  static_assert(order == BitOrder::half, "16-bit tokens read MXFP4 in half order alone");
  return mxfp4_pair<Cta>(scales.words, upper);
}

// Codes 2 * pair and 2 * pair + 1 of a word in fp4 order as a bf16 pair, times 2^-126; `low` is the word four
// places up. A permutation brings both codes to the top of their halves, signs in place.
template <class Cta>
FOURFOLD_DEVICE std::uint32_t fp4_order_pair(std::uint32_t word, std::uint32_t low, int pair) {
  const std::uint32_t selector = 0x4000u + 0x1010u * static_cast<std::uint32_t>(pair);
  const std::uint32_t codes = Cta::byte_permute(low, word, selector);
  return (codes & 0x80008000u) | ((codes >> 6) & 0x01C001C0u);
}

// The four bf16 pairs of a word of codes, times the multiplier of their block.
template <BitOrder order, class Cta>
FOURFOLD_DEVICE device::U32x4 decode_word(std::uint32_t word, std::uint32_t multiplier) {
  if constexpr (order == BitOrder::fp4) {
    const std::uint32_t low = word << 4;
    return {{Cta::mul_bf16x2(fp4_order_pair<Cta>(word, low, 0), multiplier),
             Cta::mul_bf16x2(fp4_order_pair<Cta>(word, low, 1), multiplier),
             Cta::mul_bf16x2(fp4_order_pair<Cta>(word, low, 2), multiplier),
             Cta::mul_bf16x2(fp4_order_pair<Cta>(word, low, 3), multiplier)}};
  }
  return {{Cta::mul_bf16x2(word & kCodeMask, multiplier),
           Cta::mul_bf16x2(Cta::rotate_left(word, kRotation1) & kCodeMask, multiplier),
           Cta::mul_bf16x2(Cta::rotate_left(word, kRotation2) & kCodeMask, multiplier),
           Cta::mul_bf16x2(((word & kRestMask) * kRestFactor) & kCodeMask, multiplier)}};
}

// A operands of the two k16 steps of one 32-column half of a tile; a and b are the words of row slots g and
// g + 8, the multipliers that half's, twice. Step s covers columns 8t + 4s .. 8t + 4s + 3 of each lane t.
template <BitOrder order, class Cta>
FOURFOLD_DEVICE void decode_half(std::uint32_t a, std::uint32_t b, std::uint32_t multiplier_g,
                                 std::uint32_t multiplier_g8, std::uint32_t (&steps)[2][4]) {
  const device::U32x4 of_g = decode_word<order, Cta>(a, multiplier_g),
                      of_g8 = decode_word<order, Cta>(b, multiplier_g8);
#pragma unroll
  for (int step = 0; step < 2; ++step)
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      steps[step][2 * pair] = of_g.v[2 * step + pair];
      steps[step][2 * pair + 1] = of_g8.v[2 * step + pair];
    }
}

// A lane's registers of one tile to its operands for columns 32*half .. +31.
template <class Format, class Cta, BitOrder order = BitOrder::half>
FOURFOLD_DEVICE void decode_tile_half(const device::U32x4& registers, std::uint32_t pair_g,
                                      std::uint32_t pair_g8, int half, std::uint32_t (&steps)[2][4]) {
  const std::uint32_t of_g = half ? Cta::twice_high(pair_g) : Cta::twice_low(pair_g);
  const std::uint32_t of_g8 = half ? Cta::twice_high(pair_g8) : Cta::twice_low(pair_g8);
  decode_half<order, Cta>(registers.v[2 * half], registers.v[2 * half + 1], of_g, of_g8, steps);
}

// Four E4M3 codes of a row to two bf16 pairs, exact: a code with its sign at bit 15 and the rest at
// bits 10..4 is the bf16 number value * 2^-120, subnormals included. fp8_byte() puts columns 0 and 1 into the
// high bytes of the halves, so the pairs need no permutation.
template <class Cta>
FOURFOLD_DEVICE device::U32x2 decode_fp8_word(std::uint32_t word) {
  constexpr std::uint32_t sign = 0x80008000u, rest = 0x07F007F0u, two_to_120 = 0x7B807B80u;
  const std::uint32_t low = word << 8;
  return {{Cta::mul_bf16x2((word & sign) | ((word >> 4) & rest), two_to_120),
           Cta::mul_bf16x2((low & sign) | ((low >> 4) & rest), two_to_120)}};
}

}  // namespace fourfold::record
