#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace fourfold {
namespace {

static_assert(random_bits(1, 0) != random_bits(1, 1) && random_bits(1, 0) != random_bits(2, 0));

// Golden numbers: what a seed means may never change, or recorded failures lose their meaning.
TEST(Random, SeedsMeanTheSameEverywhere) {
  EXPECT_EQ(mix_bits(0x9E3779B97F4A7C15u), 0xE220A8397B1DCDAFu) << "the first number of splitmix64 from 0";
  EXPECT_EQ(random_bits(0, 0), mix_bits(mix_bits(0x9E3779B97F4A7C15u) + 0x9E3779B97F4A7C15u));
  Random first(42), second(42);
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(first.bits(), random_bits(42, i));
    EXPECT_EQ(second.uniform(), static_cast<double>(random_bits(42, i) >> 11) * 0x1p-53);
  }
}

TEST(Random, StreamsOfNeighbouringSeedsShareNothing) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (std::uint64_t i = 0; i < 100; ++i) seen.insert(random_bits(seed, i));
  EXPECT_EQ(seen.size(), 10'000u);
}

TEST(Random, UniformFillsItsRange) {
  Random random(6);
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double value = random.uniform(-2.0, 6.0);
    ASSERT_GE(value, -2.0);
    ASSERT_LT(value, 6.0);
    sum += value;
  }
  // Mean 2, standard error 8 / sqrt(12 * 100000) = 0.0073; five of them.
  EXPECT_NEAR(sum / 100'000, 2.0, 0.037);
}

TEST(Random, BelowIsInRangeAndEven) {
  Random random(7);
  int counts[6]{};
  for (int i = 0; i < 60'000; ++i) ++counts[random.below(6)];
  // Expected 10000 each, standard deviation sqrt(60000 * 5 / 36) = 91; five of them.
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 456);
  EXPECT_EQ(random.below(1), 0u);
  for (int i = 0; i < 100; ++i) EXPECT_LT(random.below((1ull << 63) + 1), (1ull << 63) + 1);
}

TEST(Random, NormalHasMeanZeroAndVarianceOne) {
  Random random(8);
  double sum = 0, squares = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double value = random.normal();
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 100'000, 0.0, 0.016);      // five standard errors of 1 / sqrt(n)
  EXPECT_NEAR(squares / 100'000, 1.0, 0.023);  // five standard errors of sqrt(2 / n)
}

}  // namespace
}  // namespace fourfold
