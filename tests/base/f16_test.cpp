#include "base/f16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/support/nearest.h"

namespace fourfold {
namespace {

static_assert(to_f16(1.0f) == F16{0x3C00} && to_float(F16{0xC000}) == -2.0f, "usable at compile time");

double model_value(std::uint32_t pattern) {
  const int exponent = static_cast<int>((pattern >> 10) & 31);
  const int fraction = static_cast<int>(pattern & 1023);
  const double size = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
  return pattern & 0x8000 ? -size : size;
}

std::vector<float> probes() {
  std::vector<float> floats;
  for (std::uint32_t pattern = 0; pattern < 0x7C00; ++pattern) {
    test_support::add_with_neighbours(floats, static_cast<float>(model_value(pattern)));
    test_support::add_with_neighbours(
        floats, static_cast<float>((model_value(pattern) + model_value(pattern + 1)) / 2));
  }
  Random random(4);
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()));
    if (!std::isnan(value)) floats.push_back(value);
    floats.push_back(
        static_cast<float>(std::ldexp(random.uniform(-1, 1), static_cast<int>(random.below(48)) - 30)));
  }
  return floats;
}

TEST(F16, EveryPatternHasItsValueAndRoundTrips) {
  for (std::uint32_t pattern = 0; pattern <= 0xFFFF; ++pattern) {
    const float value = to_float(F16{static_cast<std::uint16_t>(pattern)});
    if ((pattern & 0x7FFF) > 0x7C00) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(to_f16(value).bits, 0x7FFF);
      continue;
    }
    const bool infinite = (pattern & 0x7FFF) == 0x7C00;
    EXPECT_EQ(value, infinite ? std::copysign(INFINITY, value) : model_value(pattern));
    EXPECT_EQ(std::signbit(value), pattern >= 0x8000);
    EXPECT_EQ(to_f16(value).bits, pattern);
  }
}

TEST(F16, RoundsToNearestEvenOnce) {
  for (const float value : probes()) {
    const double expected = test_support::round_to_format(value, 10, -14);
    const float got = to_float(to_f16(value));
    ASSERT_EQ(got,
              std::fabs(expected) >= 65536 ? std::copysign(INFINITY, value) : static_cast<float>(expected))
        << value;
    ASSERT_EQ(std::signbit(got), std::signbit(value)) << value;
  }
}

#if defined(__FLT16_MAX__)
#if defined(__ARM_FP16_FORMAT_IEEE)
using CompilerF16 = __fp16;  // g++ 12 knows _Float16 on x86 only, though it defines its limits on Arm too
#else
using CompilerF16 = _Float16;
#endif
TEST(F16, AgreesWithTheCompiler) {
  for (const float value : probes()) {
    const auto compiler = std::bit_cast<std::uint16_t>(static_cast<CompilerF16>(value));
    ASSERT_EQ(to_f16(value).bits, compiler) << value;
  }
}
#endif

TEST(F16, KeepsInfinityAndOverflowsToIt) {
  EXPECT_EQ(to_f16(INFINITY).bits, 0x7C00);
  EXPECT_EQ(to_f16(-INFINITY).bits, 0xFC00);
  EXPECT_EQ(to_f16(65519.996f).bits, 0x7BFF);
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(to_f16(-std::numeric_limits<float>::max()).bits, 0xFC00);
  EXPECT_EQ(to_f16(0x1p-25f).bits, 0) << "half the smallest subnormal ties to zero";
  for (const float nan : test_support::nans()) EXPECT_EQ(to_f16(nan).bits, 0x7FFF);
}

}  // namespace
}  // namespace fourfold
