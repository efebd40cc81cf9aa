#include "kernels/record/bit_order.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/e2m1.h"
#include "base/random.h"

namespace fourfold::record {
namespace {

TEST(BitOrder, MovesEveryBitToAPlaceOfItsOwn) {
  // The order is a choice of places: bits go one by one, and no two to the same place.
  std::uint64_t places = 0;
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t one = std::uint64_t{1} << bit;
    const HalfWords words =
        to_half_order(static_cast<std::uint32_t>(one), static_cast<std::uint32_t>(one >> 32));
    const std::uint64_t moved = words.a | static_cast<std::uint64_t>(words.b) << 32;
    EXPECT_EQ(std::popcount(moved), 1) << "bit " << bit;
    EXPECT_EQ(places & moved, 0u) << "bit " << bit;
    places |= moved;
  }
  EXPECT_EQ(places, ~std::uint64_t{0});
}

TEST(BitOrder, ComesBack) {
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto low = static_cast<std::uint32_t>(random.bits()),
               high = static_cast<std::uint32_t>(random.bits());
    const HalfWords words = to_half_order(low, high);
    ASSERT_EQ(from_half_order(words, 0), low);
    ASSERT_EQ(from_half_order(words, 1), high);
  }
}

TEST(BitOrder, EveryCodeAtEveryPlaceIsABf16Pair) {
  for (std::uint32_t code = 0; code < 16; ++code)
    for (int column = 0; column < 8; ++column)
      for (int upper = 0; upper < 2; ++upper) {
        const std::uint32_t word = code << (4 * column);
        const HalfWords words = upper ? to_half_order(0, word) : to_half_order(word, 0);
        const std::uint32_t pair = half_order_pair(words, column / 2, upper);
        const std::uint32_t half = column % 2 ? pair >> 16 : pair & 0xFFFFu;
        const float value = std::bit_cast<float>(half << 16);
        const float exact = std::ldexp(to_float(E2m1{static_cast<std::uint8_t>(code)}), -126);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(exact))
            << code << " at " << column;
        EXPECT_EQ(column % 2 ? pair & 0xFFFFu : pair >> 16, 0u);
      }
}

}  // namespace
}  // namespace fourfold::record
