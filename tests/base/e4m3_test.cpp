#include "base/e4m3.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/nearest.h"

namespace fourfold {
namespace {

static_assert(to_e4m3(1.0f) == E4m3{0x38} && to_float(E4m3{0x7E}) == kE4m3Largest, "usable at compile time");
static_assert(to_float(E4m3{0x01}) == kE4m3Smallest);

std::vector<double> values() {
  std::vector<double> all;
  for (int code = 0; code < 0x7F; ++code) {
    const int exponent = code >> 3, fraction = code & 7;
    all.push_back(exponent ? std::ldexp(8 + fraction, exponent - 10) : std::ldexp(fraction, -9));
  }
  return all;
}

TEST(E4m3, EveryCodeHasItsValueAndRoundTrips) {
  const std::vector<double> expected = values();
  for (std::uint32_t code = 0; code <= 0xFF; ++code) {
    const E4m3 element{static_cast<std::uint8_t>(code)};
    const float value = to_float(element);
    EXPECT_EQ(is_nan(element), (code & 0x7F) == 0x7F);
    if (is_nan(element)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(to_e4m3(value).bits, 0x7F);
      continue;
    }
    EXPECT_EQ(value, code < 0x80 ? expected[code] : -expected[code - 0x80]);
    EXPECT_EQ(std::signbit(value), code >= 0x80);
    EXPECT_EQ(to_e4m3(value), element);
  }
}

TEST(E4m3, MatchesASearchForTheNearest) {
  const std::vector<double> all = values();
  for (const float value : test_support::probing_floats(all)) {
    const std::uint32_t expected = test_support::nearest_code(std::fabs(static_cast<double>(value)), all) |
                                   (std::signbit(value) ? 0x80u : 0u);
    ASSERT_EQ(to_e4m3(value).bits, expected) << value;
  }
}

TEST(E4m3, SaturatesAndHasOneNan) {
  EXPECT_EQ(to_e4m3(INFINITY).bits, 0x7E);
  EXPECT_EQ(to_e4m3(-INFINITY).bits, 0xFE);
  EXPECT_EQ(to_e4m3(464.0f).bits, 0x7E);
  EXPECT_EQ(to_e4m3(480.0f).bits, 0x7E) << "480 would be the code of NaN";
  EXPECT_EQ(to_e4m3(-std::numeric_limits<float>::max()).bits, 0xFE);
  EXPECT_EQ(to_e4m3(0x1p-10f).bits, 0) << "half the smallest subnormal ties to zero";
  EXPECT_EQ(to_e4m3(0x1.8p-9f).bits, 2) << "a tie between subnormals goes to the even code";
  for (const float nan : test_support::nans()) EXPECT_EQ(to_e4m3(nan).bits, 0x7F);
}

}  // namespace
}  // namespace fourfold
