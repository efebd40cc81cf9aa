#include "base/ue8m0.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/support/nearest.h"

namespace fourfold {
namespace {

static_assert(to_ue8m0(1.0f) == Ue8m0{127} && to_float(Ue8m0{128}) == 2.0f, "usable at compile time");

TEST(Ue8m0, EveryCodeHasItsValueAndRoundTrips) {
  for (int code = 0; code < 0xFF; ++code) {
    const Ue8m0 scale{static_cast<std::uint8_t>(code)};
    EXPECT_EQ(to_float(scale), std::ldexp(1.0, code - 127));
    EXPECT_EQ(to_ue8m0(to_float(scale)), scale);
    EXPECT_FALSE(is_nan(scale));
  }
  EXPECT_TRUE(is_nan(Ue8m0{0xFF}));
  EXPECT_TRUE(std::isnan(to_float(Ue8m0{0xFF})));
}

TEST(Ue8m0, RoundsUpToAPowerOfTwo) {
  std::vector<float> floats;
  for (int exponent = -149; exponent <= 127; ++exponent)
    test_support::add_with_neighbours(floats, std::ldexp(1.0f, exponent));
  Random random(5);
  for (int i = 0; i < 100'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()));
    if (std::isfinite(value)) floats.push_back(value);
  }
  for (const float value : floats) {
    int code = 0;
    while (code < 254 && std::ldexp(1.0, code - 127) < std::fabs(static_cast<double>(value))) ++code;
    ASSERT_EQ(to_ue8m0(value).bits, code) << value;
  }
}

TEST(Ue8m0, HandlesTheEnds) {
  EXPECT_EQ(to_ue8m0(0.0f).bits, 0);
  EXPECT_EQ(to_ue8m0(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(to_ue8m0(std::numeric_limits<float>::max()).bits, 254);
  EXPECT_EQ(to_ue8m0(INFINITY).bits, 254);
  for (const float nan : test_support::nans()) EXPECT_EQ(to_ue8m0(nan).bits, 0xFF);
}

}  // namespace
}  // namespace fourfold
