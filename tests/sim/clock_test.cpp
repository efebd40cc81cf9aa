#include "sim/clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "support.h"

namespace fourfold::sim {
namespace {

TEST(Clock, JoinsComponentByComponent) {
  ClockPool pool(7, 7);
  ClockRef a = pool.zero(), b = pool.zero();
  a->happened[0] = 3;
  a->fenced[6] = 1;
  b->happened[0] = 2;
  b->happened[5] = 9;
  b->visible = 4;
  EXPECT_TRUE(pool.join(*a, *b));
  EXPECT_EQ(a->happened[0], 3u);
  EXPECT_EQ(a->happened[5], 9u);
  EXPECT_EQ(a->fenced[6], 1u);
  EXPECT_EQ(a->visible, 4u);
  EXPECT_FALSE(pool.join(*a, *b));
}

// Any number of parties, so any number of SIMD registers; the last ones are partly used.
TEST(Clock, JoinsAreMaximaAndSayWhetherAnythingGrew) {
  with_every_width([](int lanes) {
    std::mt19937 random(3);
    for (std::uint32_t parties = 1; parties <= 70; ++parties) {
      ClockPool pool(parties, 70);
      ClockRef a = pool.zero(), b = pool.zero();
      for (int round = 0; round < 20; ++round) {
        // A round in two changes one component, to more, less or the same.
        const std::uint32_t changed = round % 2 == 0 ? parties : 1;
        for (std::uint32_t i = 0; i < changed; ++i)
          b->happened[changed == 1 ? random() % parties : i] = random() % (kClockMax + 1);
        std::vector<std::uint32_t> wanted(a->happened, a->happened + parties);
        bool grows = false;
        for (std::uint32_t i = 0; i < parties; ++i) {
          grows = grows || b->happened[i] > wanted[i];
          wanted[i] = std::max(wanted[i], b->happened[i]);
        }
        ASSERT_EQ(pool.join(*a, *b), grows) << parties << " parties, round " << round << ", lanes " << lanes;
        ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), a->happened))
            << parties << " parties, round " << round << ", lanes " << lanes;
      }
    }
  });
}

TEST(Clock, ReusesWhatNobodyHolds) {
  ClockPool pool(3, 3);
  ClockVector* first;
  {
    ClockRef a = pool.zero();
    first = a.get();
    ClockRef b = a;
    a = pool.zero();
    EXPECT_NE(a.get(), b.get());
  }
  bool seen = false;
  ClockRef held[2] = {pool.zero(), pool.zero()};
  for (const ClockRef& ref : held) seen = seen || ref.get() == first;
  EXPECT_TRUE(seen);
}

TEST(Clock, AFenceCoversEverythingThatHappened) {
  ClockPool pool(3, 3);
  ClockRef a = pool.zero();
  a->happened[1] = 5;
  const View before{a->happened, a->fenced, a->settled, 0, 0, 0, 2};
  EXPECT_TRUE(before.ordered(make_epoch(1, 5)));
  EXPECT_FALSE(before.ordered(make_epoch(1, 6)));
  EXPECT_FALSE(before.reaches_async_proxy(make_epoch(1, 5)));
  EXPECT_TRUE(before.reaches_async_proxy(make_epoch(2, 1)));  // party 2 is an agent
  pool.fence(*a);
  EXPECT_TRUE(before.reaches_async_proxy(make_epoch(1, 5)));
}

TEST(Clock, AReadIsCompleteWhenItWasSettled) {
  ClockPool pool(3, 3);
  ClockRef a = pool.zero();
  a->happened[1] = 5;
  const View view{a->happened, a->fenced, a->settled, 0, 0, 2, 2};
  EXPECT_FALSE(view.read_is_complete(make_epoch(1, 5)));
  EXPECT_TRUE(view.read_is_complete(make_epoch(2, 1)));  // party 2 is an agent: its reads end with a wait
  EXPECT_TRUE(view.read_is_complete(make_epoch(0, 2)));
  EXPECT_FALSE(view.read_is_complete(make_epoch(0, 3)));
  pool.fence(*a);
  EXPECT_FALSE(view.read_is_complete(make_epoch(1, 5)));  // a fence is the fencing thread's own
  pool.settle(*a, *a);
  EXPECT_TRUE(view.read_is_complete(make_epoch(1, 5)));
  EXPECT_FALSE(view.read_is_complete(make_epoch(1, 6)));
}

TEST(Clock, NewPartiesStartAtZeroEverywhere) {
  ClockPool pool(4, 40);
  pool.use(30);
  ClockRef a = pool.zero();
  a->happened[20] = 7;
  pool.use(4);
  const ClockRef b = pool.copy(*a);
  pool.use(25);
  EXPECT_EQ(a->happened[20], 0u);
  EXPECT_EQ(b->happened[20], 0u);
  a->happened[24] = 3;
  EXPECT_TRUE(pool.join(*b, *a));
  EXPECT_EQ(b->happened[24], 3u);
}

}  // namespace
}  // namespace fourfold::sim
