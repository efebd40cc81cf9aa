#include "kernels/record/bit_order.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/e2m1.h"
#include "base/e4m3.h"
#include "base/random.h"

namespace fourfold::record {
namespace {

TEST(BitOrder, MovesEveryBitToAPlaceOfItsOwn) {
  // The order is a choice of places: bits go one by one, and no two to the same place.
  std::uint32_t places = 0;
  for (int bit = 0; bit < 32; ++bit) {
    const std::uint32_t moved = to_half_order(1u << bit);
    EXPECT_EQ(std::popcount(moved), 1) << "bit " << bit;
    EXPECT_EQ(places & moved, 0u) << "bit " << bit;
    places |= moved;
  }
  EXPECT_EQ(places, ~0u);
}

TEST(BitOrder, ComesBack) {
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto word = static_cast<std::uint32_t>(random.bits());
    ASSERT_EQ(from_half_order(to_half_order(word)), word);
  }
}

TEST(BitOrder, EveryCodeAtEveryPlaceIsABf16PairWhateverTheOthersAre) {
  Random random(2);
  for (std::uint32_t code = 0; code < 16; ++code)
    for (int column = 0; column < 8; ++column)
      for (int others = 0; others < 64; ++others) {
        const auto noise = others == 0 ? 0u : static_cast<std::uint32_t>(random.bits());
        const std::uint32_t word = (noise & ~(15u << (4 * column))) | code << (4 * column);
        const std::uint32_t pair = half_order_pair(to_half_order(word), column / 2);
        const std::uint32_t half = column % 2 ? pair >> 16 : pair & 0xFFFFu;
        const float value = std::bit_cast<float>(half << 16);
        const float exact = std::ldexp(to_float(E2m1{static_cast<std::uint8_t>(code)}), -126);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(exact))
            << code << " at " << column;
      }
}

TEST(BitOrder, EveryScaleIsABf16NumberAndComesBack) {
  EXPECT_EQ(to_half_scale(0), 0u);
  EXPECT_EQ(from_half_scale(0), 0u);
  for (std::uint32_t byte = 1; byte <= 0x7E; ++byte) {
    const std::uint32_t packed = to_half_scale(byte);
    ASSERT_LE(packed, 0xFFu);
    ASSERT_NE(packed, 0u);
    EXPECT_EQ(from_half_scale(packed), byte);
    EXPECT_EQ(std::bit_cast<float>(half_scale_bits(packed) << 16),
              std::ldexp(to_float(E4m3{static_cast<std::uint8_t>(byte)}), 118))
        << byte;
  }
  EXPECT_EQ(to_half_scales(0x7E080100u),
            to_half_scale(0x7E) << 24 | to_half_scale(8) << 16 | to_half_scale(1) << 8);
}

}  // namespace
}  // namespace fourfold::record
