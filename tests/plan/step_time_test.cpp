#include "plan/step_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

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

// Milliseconds of a step by users and context, from the sections of the measurement: as it is, made small,
// and so on in turn.
using Steps = std::map<std::pair<int, int>, std::vector<double>>;
std::vector<Steps> small_sm_sections() {
  std::ifstream in(FOURFOLD_SOURCE_DIR "/bench/results/small-sm-h200.txt");
  EXPECT_TRUE(in);
  std::vector<Steps> sections;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("== ")) sections.emplace_back();
    std::istringstream words(line);
    std::string what;
    int users = 0, context = 0;
    double speed = 0, ms = 0;
    if (words >> what && what == "decode" && words >> users >> context >> speed >> ms)
      sections.back()[{users, context}].push_back(ms);
  }
  return sections;
}
double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(StepTime, SmallSmsCostWhatWasMeasured) {
  const std::vector<Steps> sections = small_sm_sections();
  ASSERT_EQ(sections.size(), 6u);
  std::map<std::pair<int, int>, double> most;  // the most of all pairs of sections, never less than nothing
  for (std::size_t i = 0; i + 1 < sections.size(); i += 2)
    for (const auto& [at, values] : sections[i]) {
      const double share = mean(sections[i + 1].at(at)) / mean(values) - 1;
      most[at] = std::max({most[at], share, 0.0});
    }
  ASSERT_EQ(most.size(), kSmallSmLoss.size());
  for (const SmallSmLoss& point : kSmallSmLoss) {
    EXPECT_NEAR(point.share, most.at({point.rows, point.context}), 0.001)
        << point.rows << " " << point.context;
    EXPECT_GE(small_sm_share(point.rows, point.context), point.share);
  }
  EXPECT_EQ(small_sm_share(64, 0), 0.100);
  EXPECT_EQ(small_sm_share(9, 1), 0.168) << "between what was measured the more of both";
  EXPECT_EQ(small_sm_share(2, 0), 0.019);
  EXPECT_EQ(small_sm_share(64, 1e6), 0.389);
}

TEST(StepTime, KernelsThatFillAnSmDoNotOverlap) {
  // As large as rows for SM120 are: two fit an SM of the H200 and not one of SM120; small ones fit
  // everywhere.
  const std::vector<int> step{100'608, 99'200, 0, 16'384, 100'608};
  EXPECT_EQ(boundaries_apart(kSm90, step), 0);
  EXPECT_EQ(boundaries_apart(kSm120, step), 2);
  EXPECT_EQ(boundaries_apart(kSm120, std::vector<int>{50'176, 50'176}), 0);
  EXPECT_EQ(boundaries_apart(kSm120, std::vector<int>{50'176, 50'177}), 1) << "rounded up, it does not fit";
  EXPECT_EQ(boundaries_apart(kSm120, std::vector<int>{200'000, 100'000}), 0) << "they never overlapped";
  EXPECT_EQ(boundaries_apart(kSm120, {}), 0);

  const Product& card = *find_product("rtx pro 6000");
  StepWork work{.bytes = 1.792e9, .kernels = 5, .rows = 64, .context = 4096, .apart = 3};
  const auto parts = step_time(work, card, 1, Link::pcie5, SumWay::one_shot);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[2].us.low, 0);
  EXPECT_NEAR(parts[2].us.high, 0.168 * (parts[0].us.high + parts[1].us.high), 1e-6);
  EXPECT_EQ(evidence_name(parts[2].evidence), "emulated");
  EXPECT_NE(parts[2].because.find("measured on an H200 with SMs made small: up to 16.8 % of a step"),
            std::string::npos)
      << parts[2].because;
  work.context = 100'000;
  EXPECT_NE(
      step_time(work, card, 1, Link::pcie5, SumWay::one_shot)[2].because.find("32,768 tokens of context"),
      std::string::npos);
  work.apart = 0;
  EXPECT_EQ(step_time(work, card, 1, Link::pcie5, SumWay::one_shot).size(), 2u);
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
