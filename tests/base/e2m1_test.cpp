#include "base/e2m1.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "base/e4m3.h"
#include "base/ue8m0.h"
#include "tests/support/nearest.h"

namespace fourfold {
namespace {

static_assert(!std::is_convertible_v<E2m1, E4m3> && !std::is_convertible_v<std::uint8_t, E2m1>);
static_assert(!std::is_constructible_v<E4m3, Ue8m0> && !std::is_constructible_v<Ue8m0, E4m3>);
static_assert(to_e2m1(-3.4f) == E2m1{0xD} && to_float(E2m1{0xD}) == -3.0f, "usable at compile time");

const std::vector<double> kValues{0, 0.5, 1, 1.5, 2, 3, 4, 6};

TEST(E2m1, EveryCodeHasItsValueAndRoundTrips) {
  for (std::uint32_t code = 0; code < 16; ++code) {
    const E2m1 element{static_cast<std::uint8_t>(code)};
    const double expected = code < 8 ? kValues[code] : -kValues[code - 8];
    EXPECT_EQ(to_float(element), expected);
    EXPECT_EQ(std::signbit(to_float(element)), code >= 8) << "the sign of zero is kept";
    EXPECT_EQ(e2m1_doubled(element), 2 * expected);
    EXPECT_EQ(to_e2m1(to_float(element)), element);
  }
}

TEST(E2m1, TiesGoToTheEvenCode) {
  const std::vector<std::pair<float, float>> ties{{0.25f, 0.0f}, {0.75f, 1.0f}, {1.25f, 1.0f}, {1.75f, 2.0f},
                                                  {2.5f, 2.0f},  {3.5f, 4.0f},  {5.0f, 4.0f}};
  for (const auto& [tie, value] : ties) {
    EXPECT_EQ(to_float(to_e2m1(tie)), value);
    EXPECT_EQ(to_float(to_e2m1(-tie)), -value);
    EXPECT_TRUE(std::signbit(to_float(to_e2m1(-tie))));
  }
}

TEST(E2m1, MatchesASearchForTheNearest) {
  for (const float value : test_support::probing_floats(kValues)) {
    const std::uint32_t expected =
        test_support::nearest_code(std::fabs(static_cast<double>(value)), kValues) |
        (std::signbit(value) ? 8u : 0u);
    ASSERT_EQ(to_e2m1(value).bits, expected) << value;
  }
}

TEST(E2m1, SaturatesAndTurnsNanIntoPlusSix) {
  EXPECT_EQ(to_e2m1(INFINITY).bits, 7);
  EXPECT_EQ(to_e2m1(-INFINITY).bits, 15);
  EXPECT_EQ(to_e2m1(std::numeric_limits<float>::max()).bits, 7);
  EXPECT_EQ(to_e2m1(-0.0f).bits, 8);
  for (const float nan : test_support::nans()) EXPECT_EQ(to_e2m1(nan).bits, 7);
}

TEST(E2m1, PacksTheEvenColumnIntoTheLowNibble) {
  EXPECT_EQ(pack_e2m1({0x3}, {0xA}), 0xA3);
  for (std::uint32_t pair = 0; pair <= 0xFF; ++pair) {
    const auto byte = static_cast<std::uint8_t>(pair);
    EXPECT_EQ(pack_e2m1(e2m1_even(byte), e2m1_odd(byte)), byte);
  }
}

}  // namespace
}  // namespace fourfold
