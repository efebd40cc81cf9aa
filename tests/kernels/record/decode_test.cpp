// All codes times all scales through the decoder of the 16-bit kernels, against the codecs of base, exactly.
#include "kernels/record/decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/bf16.h"
#include "base/e2m1.h"
#include "base/e4m3.h"
#include "base/ue8m0.h"
#include "kernels/device/sim/cta.h"

namespace fourfold::record {
namespace {

using Host = device::SimCta;

// Lane scales whose bytes all differ where the lane looks: byte i of word w is `first + 4 * w + i`, within
// [low, high].
template <class Format>
LaneScales<Format> scales_from(int first, int low, int high) {
  LaneScales<Format> scales{};
  unsigned char bytes[sizeof(scales.words)];
  for (std::size_t i = 0; i < sizeof bytes; ++i)
    bytes[i] = static_cast<unsigned char>(low + (first - low + static_cast<int>(i)) % (high - low + 1));
  std::memcpy(&scales.words, bytes, sizeof bytes);
  return scales;
}

// The scale byte of a tile's slot (g or g + 8) for this lane's columns of a half, as the layout keeps it.
int scale_byte(const LaneScales<Nvfp4>& scales, int tile, int upper, int half, int lane) {
  const int block = 2 * half + (lane % 4) / 2;  // of 16 columns
  return static_cast<int>(scales.words.v[2 * tile + upper] >> (8 * block) & 0xFFu);
}
int scale_byte(const LaneScales<Mxfp4>& scales, int tile, int upper, int half, int) {
  return static_cast<int>(scales.words.v[tile] >> (16 * upper + 8 * half) & 0xFFu);
}

double scale_value(Nvfp4, BitOrder order, int byte) {
  if (order == BitOrder::fp4) return static_cast<double>(to_float(E4m3{static_cast<std::uint8_t>(byte)}));
  return std::ldexp(8 + (byte & 7), (byte >> 3) - 24);
}
double scale_value(Mxfp4, BitOrder, int byte) { return std::ldexp(1.0, byte - 127); }

// Decodes one lane's registers and compares all 32 values with code * scale * (what the decoder leaves out).
template <class Format, BitOrder order>
void check_lane(const LaneScales<Format>& scales, int tile, int lane, int shift) {
  // Column j of row slot g holds code j + shift, of slot g + 8 code j + shift + 8: every place sees every
  // code.
  std::uint32_t low = 0, high = 0;
  for (int j = 0; j < 8; ++j) {
    low |= static_cast<std::uint32_t>((j + shift) % 16) << (4 * j);
    high |= static_cast<std::uint32_t>((j + shift + 8) % 16) << (4 * j);
  }
  const bool is_half = order == BitOrder::half;
  const std::uint32_t a = is_half ? to_half_order(low) : low, b = is_half ? to_half_order(high) : high;
  const device::U32x4 registers{{a, b, a, b}};
  const std::uint32_t pair_g = scale_pair<Host, order>(scales, tile, 0, lane),
                      pair_g8 = scale_pair<Host, order>(scales, tile, 1, lane);
  for (int half = 0; half < 2; ++half) {
    std::uint32_t steps[2][4];
    decode_tile_half<Format, Host, order>(registers, pair_g, pair_g8, half, steps);
    for (int column = 0; column < 8; ++column)
      for (int upper = 0; upper < 2; ++upper) {
        const std::uint32_t pair = steps[column / 4][2 * (column % 4 / 2) + upper];
        const auto bits = static_cast<std::uint16_t>(column % 2 ? pair >> 16 : pair);
        const std::uint32_t word = upper ? high : low;
        const E2m1 code{static_cast<std::uint8_t>(word >> (4 * column) & 15u)};
        const int byte = scale_byte(scales, tile, upper, half, lane);
        const double exact = static_cast<double>(to_float(code)) * scale_value(Format{}, order, byte) /
                             static_cast<double>(Format::half_decode_factor);
        ASSERT_EQ(static_cast<double>(to_float(Bf16{bits})), exact)
            << "code " << int{code.bits} << " scale " << byte;
        ASSERT_EQ(bits >> 15, code.bits >> 3) << "the sign of zero";
      }
  }
}

template <class Format, BitOrder order = BitOrder::half>
void check_all(int low, int high) {
  for (int first = low; first <= high; ++first)
    for (int tile = 0; tile < 2; ++tile)
      for (int lane = 0; lane < 4; ++lane)
        for (int shift = 0; shift < 16; ++shift)
          check_lane<Format, order>(scales_from<Format>(first, low, high), tile, lane, shift);
}

// As packed: the scale of 2^-9 is 12 << 3, that of 448 is 29 << 3 | 6; the codes of a zero scale are zero.
TEST(Decode, EveryNvfp4CodeTimesEveryScaleIsExact) {
  check_all<Nvfp4>(static_cast<int>(to_half_scale(1)), static_cast<int>(to_half_scale(0x7E)));
}
// As stored, zero and subnormal scales among them.
TEST(Decode, EveryNvfp4CodeTimesEveryScaleInFp4OrderIsExact) { check_all<Nvfp4, BitOrder::fp4>(0, 0x7E); }
TEST(Decode, EveryMxfp4CodeTimesEveryScaleInRangeIsExact) {
  check_all<Mxfp4>(Mxfp4::smallest_scale_byte, Mxfp4::largest_scale_byte);
}

TEST(Decode, TheMxfp4RangeIsAsWideAsItCanBe) {
  // One exponent further the smallest code is no longer exact, or the multiplier no number.
  const auto smallest = [](int byte) {
    LaneScales<Mxfp4> scales{};
    scales.words.v[0] = scales.words.v[1] = static_cast<std::uint32_t>(byte) * 0x01010101u;
    const std::uint32_t pair = scale_pair<Host>(scales, 0, 0, 0);
    return to_float(Bf16{static_cast<std::uint16_t>(Host::mul_bf16x2(0x0040u, pair & 0xFFFFu))});  // code 1/2
  };
  EXPECT_EQ(static_cast<double>(smallest(57)), std::ldexp(0.5, 57 - 127 - 62));
  EXPECT_NE(static_cast<double>(smallest(56)), std::ldexp(0.5, 56 - 127 - 62));
  EXPECT_EQ(static_cast<double>(smallest(190)), std::ldexp(0.5, 190 - 127 - 62));
  EXPECT_NE(static_cast<double>(smallest(191)), std::ldexp(0.5, 191 - 127 - 62));
}

// A warp of one tile reads less and gets the same multipliers.
template <class Format>
void check_tile_scales(int low, int high) {
  unsigned char scales[32 * Format::scale_word_bytes];
  for (std::size_t i = 0; i < sizeof scales; ++i)
    scales[i] = static_cast<unsigned char>(low + static_cast<int>(i) * 7 % (high - low + 1));
  for (int lane = 0; lane < 32; ++lane) {
    LaneScales<Format> both;
    std::memcpy(&both.words, scales + lane_scale_offset<Format>(lane), sizeof both.words);
    for (int tile = 0; tile < 2; ++tile) {
      TileScales<Format> one;
      std::memcpy(&one.words, scales + tile_scale_offset<Format>(lane, tile), sizeof one.words);
      for (int upper = 0; upper < 2; ++upper)
        EXPECT_EQ(scale_pair<Host>(one, upper, lane), scale_pair<Host>(both, tile, upper, lane));
    }
  }
}

TEST(Decode, OneTileGetsTheSameMultipliers) {
  check_tile_scales<Nvfp4>(0, 0xFF);
  check_tile_scales<Mxfp4>(Mxfp4::smallest_scale_byte, Mxfp4::largest_scale_byte);
}

TEST(Decode, LanesReadTheirScalesWithOneLoad) {
  for (int lane = 0; lane < 32; ++lane)
    for (int tile = 0; tile < 2; ++tile)
      for (int upper = 0; upper < 2; ++upper) {
        const int slot = lane / 4 + 8 * upper;
        EXPECT_EQ(lane_scale_offset<Nvfp4>(lane) + 4 * (2 * tile + upper), scale_offset<Nvfp4>(tile, slot));
        EXPECT_EQ(lane_scale_offset<Mxfp4>(lane) + 4 * tile + 2 * upper, scale_offset<Mxfp4>(tile, slot));
      }
}

}  // namespace
}  // namespace fourfold::record
