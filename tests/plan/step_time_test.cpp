#include "plan/step_time.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fourfold::plan {
namespace {

// Four RTX PRO 6000 on PCIe 5, one-shot, as their owner published it: KB of a sum, microseconds.
TEST(StepTime, OneShotFollowsThePublishedTable) {
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

TEST(StepTime, ManyRowsWantTwoRoundsAndFewWantOne) {
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
TEST(StepTime, TwoRoundsMoveTwoSharesOfEachOther) {
  const auto us_per_byte = [](SumWay way, int ranks) {
    return all_reduce_us(way, Link::pcie5, ranks, 2e6).low - all_reduce_us(way, Link::pcie5, ranks, 1e6).low;
  };
  for (const int ranks : {2, 4, 8})
    EXPECT_NEAR(us_per_byte(SumWay::two_shot, ranks) / us_per_byte(SumWay::one_shot, ranks), 2.0 / ranks,
                1e-9);
}

TEST(StepTime, PartsAddUpAndSayWhereTheyComeFrom) {
  const Product& card = *find_product("rtx pro 6000");
  const StepWork work{
      .bytes = 1.792e9, .kernels = 100, .rows = 1, .sums = 10, .sum_bytes = 16384, .gather_bytes = 1024};
  const auto parts = step_time(work, card, 4, Link::pcie5, SumWay::one_shot);
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_NEAR(parts[0].us.low, 1000 / kReadShareMost, 1e-6);
  EXPECT_NEAR(parts[0].us.high, 1000 / kReadShareLeast, 1e-6);
  EXPECT_EQ(parts[1].us.high, 100 * kBoundaryUs.high);
  EXPECT_EQ(parts[1].evidence, Evidence::assumed) << "nothing ran on this card";
  EXPECT_EQ(parts[2].evidence, Evidence::published);
  double low = 0, high = 0;
  for (const Estimate& part : parts) {
    low += part.us.low, high += part.us.high;
    EXPECT_FALSE(part.because.empty());
  }
  EXPECT_EQ(total_us(parts).low, low);
  EXPECT_EQ(total_us(parts).high, high);

  const auto alone = step_time(work, *find_product("h200"), 1, Link::pcie5, SumWay::one_shot);
  ASSERT_EQ(alone.size(), 2u);
  for (const Estimate& part : alone) EXPECT_EQ(part.evidence, Evidence::measured) << part.what;
  for (const SumWay way : {SumWay::two_shot, SumWay::host})
    EXPECT_EQ(step_time(work, card, 4, Link::pcie5, way)[2].evidence, Evidence::assumed);
}

TEST(StepTime, TheBusiestGpuHasMoreExpertsThanItsShare) {
  EXPECT_EQ(busiest_rank_experts(512, 10, 1, 1), 10);
  EXPECT_EQ(busiest_rank_experts(8, 8, 4, 3), 2) << "all of them are chosen";
  // One of two that are chosen of four: both on one GPU with 2 of 6 pairs, so 4/3.
  EXPECT_NEAR(busiest_rank_experts(4, 2, 2, 1), 4.0 / 3, 0.05);
  const double one = busiest_rank_experts(512, 10, 4, 1), many = busiest_rank_experts(512, 10, 4, 64);
  EXPECT_GT(one, 1.5 * 10 / 4);
  const double read = 512 * (1 - std::pow(1 - 10.0 / 512, 64));
  EXPECT_GT(many, read / 4);
  EXPECT_LT(many, 1.1 * read / 4);
}

}  // namespace
}  // namespace fourfold::plan
