#include "base/float_bits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"

namespace fourfold {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(FloatBits, ClassifiesEveryKind) {
  EXPECT_TRUE(is_finite(0.0f) && is_finite(-std::numeric_limits<float>::max()));
  EXPECT_FALSE(is_finite(kInfinity) || is_finite(-kInfinity) || is_finite(kNan) || is_finite(-kNan));
  EXPECT_TRUE(is_nan(kNan) && is_nan(-kNan));
  EXPECT_FALSE(is_nan(kInfinity) || is_nan(1.0f));
  EXPECT_EQ(absolute(-2.5f), 2.5f);
  EXPECT_FALSE(std::signbit(absolute(-0.0f)));
}

TEST(FloatBits, ShiftsToNearestEven) {
  for (std::uint32_t places = 1; places <= 31; ++places) {
    Random random(places);
    for (int i = 0; i < 1000; ++i) {
      const auto value = static_cast<std::uint32_t>(random.below(1u << 31) >> random.below(31));
      const double exact = std::ldexp(static_cast<double>(value), -static_cast<int>(places));
      EXPECT_EQ(shift_right_nearest_even(value, places), std::nearbyint(exact)) << value << " >> " << places;
    }
  }
}

TEST(FloatBits, CountsUnitsToNearestEven) {
  Random random(2);
  for (const int unit_exponent : {-24, -9, -1}) {
    for (int i = 0; i < 100'000; ++i) {
      const double size =
          std::ldexp(random.uniform(), unit_exponent + static_cast<int>(random.below(40)) - 20);
      const auto value = static_cast<float>(size);
      EXPECT_EQ(count_units(magnitude_bits(value), unit_exponent),
                std::nearbyint(std::ldexp(value, -unit_exponent)));
    }
    EXPECT_EQ(count_units(0u, unit_exponent), 0u);
    EXPECT_EQ(count_units(1u, unit_exponent), 0u) << "the smallest subnormal";
  }
}

TEST(FloatBits, AmaxIgnoresNan) {
  EXPECT_EQ(widen_amax(1.0f, -3.0f), 3.0f);
  EXPECT_EQ(widen_amax(4.0f, -3.0f), 4.0f);
  EXPECT_EQ(widen_amax(1.0f, kNan), 1.0f);
  EXPECT_EQ(widen_amax(1.0f, -kNan), 1.0f);
  EXPECT_EQ(widen_amax(1.0f, -kInfinity), kInfinity);
}

}  // namespace
}  // namespace fourfold
