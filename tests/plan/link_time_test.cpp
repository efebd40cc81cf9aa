#include "plan/link_time.h"

#include <gtest/gtest.h>

namespace fourfold::plan {
namespace {

// Four RTX PRO 6000 on PCIe 5, one-shot, as their owner published it: KB of a sum, microseconds.
TEST(LinkTime, OneShotFollowsThePublishedTable) {
  struct Point {
    double kb, us;
  };
  for (const Point& point :
       {Point{1, 6.1}, Point{4, 6.5}, Point{8, 6.4}, Point{16, 7.7}, Point{32, 9.2}, Point{64, 11.8},
        Point{128, 17.6}, Point{256, 28.7}, Point{512, 51.0}, Point{1024, 95.6}}) {
    const Range us = all_reduce_us(SumWay::one_shot, Link::pcie5, 4, 1024 * point.kb);
    EXPECT_NEAR(us.low, point.us, 0.08 * point.us) << point.kb;
    EXPECT_LT(us.low, us.high);
  }
}

TEST(LinkTime, ManyRowsWantTwoRoundsAndFewWantOne) {
  const auto low = [](SumWay way, Link link, double bytes) { return all_reduce_us(way, link, 4, bytes).low; };
  for (const Link link : {Link::pcie4, Link::pcie5}) {
    EXPECT_LT(low(SumWay::one_shot, link, 16e3), low(SumWay::two_shot, link, 16e3));
    EXPECT_GT(low(SumWay::one_shot, link, 1e6), low(SumWay::two_shot, link, 1e6));
    EXPECT_LT(low(SumWay::one_shot, link, 16e3), low(SumWay::host, link, 16e3));
  }
  EXPECT_LT(low(SumWay::one_shot, Link::pcie5, 1e6), low(SumWay::one_shot, Link::pcie4, 1e6));
  EXPECT_EQ(all_reduce_us(SumWay::one_shot, Link::pcie4, 1, 1e6).high, 0);
}

// What goes over a link for a byte of the sum: one-shot each other rank's whole part, two-shot two shares of
// it.
TEST(LinkTime, TwoRoundsMoveTwoSharesOfEachOther) {
  const auto us_per_byte = [](SumWay way, int ranks) {
    return all_reduce_us(way, Link::pcie5, ranks, 2e6).low - all_reduce_us(way, Link::pcie5, ranks, 1e6).low;
  };
  for (const int ranks : {2, 4, 8})
    EXPECT_NEAR(us_per_byte(SumWay::two_shot, ranks) / us_per_byte(SumWay::one_shot, ranks), 2.0 / ranks,
                1e-9);
}

TEST(LinkTime, OnlyOneRoundOverPcie5IsPublished) {
  EXPECT_EQ(sum_evidence(SumWay::one_shot, Link::pcie5), Evidence::published);
  for (const SumWay way : {SumWay::two_shot, SumWay::host})
    EXPECT_EQ(sum_evidence(way, Link::pcie5), Evidence::assumed);
  EXPECT_EQ(sum_evidence(SumWay::one_shot, Link::pcie4), Evidence::assumed);
}

// A megabyte through the kernel alone takes 21 us: of 33 MB that is half of what the bus takes.
TEST(LinkTime, APromptsSumsAreWider) {
  const Range one = all_reduce_us(SumWay::two_shot, Link::pcie5, 4, 33e6);
  const Range prompt = prompt_sum_us(SumWay::two_shot, Link::pcie5, 4, 33e6);
  EXPECT_EQ(prompt.low, one.low);
  EXPECT_NEAR(prompt.high - one.high, 693, 1e-6);
  EXPECT_EQ(prompt_sum_us(SumWay::two_shot, Link::pcie5, 1, 33e6).high, 0);
}

}  // namespace
}  // namespace fourfold::plan
