#include "base/bf16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/e2m1.h"
#include "base/e4m3.h"
#include "base/f16.h"
#include "tests/support/nearest.h"

namespace fourfold {
namespace {

static_assert(!std::is_convertible_v<Bf16, F16> && !std::is_constructible_v<Bf16, F16>);
static_assert(!std::is_convertible_v<std::uint16_t, Bf16> && !std::is_convertible_v<Bf16, float>);
static_assert(to_bf16(1.0f) == Bf16{0x3F80} && to_float(Bf16{0xC000}) == -2.0f, "usable at compile time");

TEST(Bf16, EveryPatternRoundTrips) {
  for (std::uint32_t pattern = 0; pattern <= 0xFFFF; ++pattern) {
    const Bf16 code{static_cast<std::uint16_t>(pattern)};
    const float value = to_float(code);
    if (std::isnan(value))
      EXPECT_EQ(to_bf16(value).bits, 0x7FFF);
    else
      EXPECT_EQ(to_bf16(value).bits, pattern);
  }
}

// Each midpoint between neighbours, all 65,536 patterns' worth, and 3 ulps to either side.
TEST(Bf16, RoundsToNearestEven) {
  std::vector<float> floats;
  for (std::uint32_t pattern = 0; pattern < 0x7F80; ++pattern) {
    test_support::add_with_neighbours(floats, std::bit_cast<float>(pattern << 16));
    test_support::add_with_neighbours(floats, std::bit_cast<float>((pattern << 16) | 0x8000u));
  }
  Random random(3);
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()));
    if (!std::isnan(value)) floats.push_back(value);
  }
  for (const float value : floats) {
    const double expected = test_support::round_to_format(value, 7, -126);
    const float got = to_float(to_bf16(value));
    ASSERT_EQ(got,
              std::fabs(expected) >= 0x1p128 ? std::copysign(INFINITY, value) : static_cast<float>(expected))
        << value;
    ASSERT_EQ(std::signbit(got), std::signbit(value)) << value;
  }
}

TEST(Bf16, KeepsInfinityAndOverflowsToIt) {
  EXPECT_EQ(to_bf16(INFINITY).bits, 0x7F80);
  EXPECT_EQ(to_bf16(-INFINITY).bits, 0xFF80);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x7F7F7FFFu)).bits, 0x7F7F);
  for (const float nan : test_support::nans()) EXPECT_EQ(to_bf16(nan).bits, 0x7FFF);
}

// The weight path of the 16-bit kernels rests on these two: codes become bf16 by shifts, powers of two fold
// away.
TEST(Bf16, E4m3ShiftedLeftIsTheValueTimesTwoToMinus120) {
  for (std::uint32_t code = 0; code <= 0xFF; ++code) {
    if (is_nan(E4m3{static_cast<std::uint8_t>(code)})) continue;
    const float magnitude = to_float(E4m3{static_cast<std::uint8_t>(code & 0x7F)});
    EXPECT_EQ(to_float(Bf16{static_cast<std::uint16_t>((code & 0x7F) << 4)}), magnitude * 0x1p-120f) << code;
  }
}

TEST(Bf16, E2m1ShiftedLeftIsTheValueTimesTwoToMinus126) {
  for (std::uint32_t code = 0; code < 16; ++code) {
    const Bf16 shifted{static_cast<std::uint16_t>(((code & 7) << 6) | ((code >> 3) << 15))};
    const float value = to_float(E2m1{static_cast<std::uint8_t>(code)});
    EXPECT_EQ(std::bit_cast<std::uint32_t>(to_float(shifted)),
              std::bit_cast<std::uint32_t>(value * 0x1p-126f))
        << code;
  }
}

}  // namespace
}  // namespace fourfold
