#include "sim/dice.h"

#include <gtest/gtest.h>

namespace fourfold::sim {
namespace {

TEST(Dice, RepeatForASeedAndDifferBetweenStreams) {
  Dice a(5, 1), b(5, 1), c(5, 2), d(6, 1);
  int same_stream = 0, same_seed = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t throw_a = a.next();
    EXPECT_EQ(throw_a, b.next());
    same_stream += throw_a == c.next();
    same_seed += throw_a == d.next();
  }
  EXPECT_LT(same_stream, 3);
  EXPECT_LT(same_seed, 3);
}

TEST(Dice, StayInRangeAndReachEverySide) {
  Dice dice(1);
  int count[6] = {}, often = 0;
  for (int i = 0; i < 6000; ++i) {
    ++count[dice.below(6)];
    often += dice.chance(64);
  }
  for (const int side : count) EXPECT_NEAR(side, 1000, 200);
  EXPECT_NEAR(often, 1500, 200);
  EXPECT_EQ(dice.below(1), 0u);
  EXPECT_FALSE(dice.chance(0));
}

}  // namespace
}  // namespace fourfold::sim
