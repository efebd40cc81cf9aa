#include "plan/expected_tiles.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fourfold::plan {
namespace {

TEST(ExpectedTiles, OneTokenMeetsItsExperts) {
  for (const Routing routing : {Routing::uniform, Routing::same}) {
    const ExpectedTiles one = expected_tiles(1, 8, 256, 8, routing);
    EXPECT_NEAR(one.experts, 8, 1e-9);
    EXPECT_NEAR(one.tiles, 8, 1e-9);
  }
  EXPECT_NEAR(expected_tiles(1, 8, 256, 8, Routing::zipf).experts, 8, 1e-6);
  EXPECT_EQ(expected_tiles(0, 8, 256, 8).tiles, 0);
}

TEST(ExpectedTiles, UniformRoutingIsBinomial) {
  const ExpectedTiles many = expected_tiles(64, 8, 256, 8);
  EXPECT_NEAR(many.experts, 256 * (1 - std::pow(1 - 8.0 / 256, 64)), 1e-9);
  EXPECT_GT(many.tiles, many.experts);
  EXPECT_LT(many.tiles, 1.01 * many.experts);
  // Two tokens that choose one of two experts: each has both with a quarter, and tiles of one token are
  // tokens.
  EXPECT_NEAR(expected_tiles(2, 1, 2, 2).tiles, 1.5, 1e-12);
  EXPECT_NEAR(expected_tiles(2, 1, 2, 1).tiles, 2, 1e-12);
  // Chances of no token at all too small for a double.
  EXPECT_NEAR(expected_tiles(8192, 256, 256, 128).tiles, 256 * 64, 1e-6);
  EXPECT_NEAR(expected_tiles(100'000, 8, 256, 128).experts, 256, 1e-9);
}

// Distinct experts that `bench moe` counted in bench/results/moe-h200-35b-zipf.csv: 66.3 and 152.8.
TEST(ExpectedTiles, ZipfIsNearWhatTheBenchDrew) {
  EXPECT_NEAR(expected_tiles(16, 8, 256, 8, Routing::zipf).experts, 66.3, 3);
  EXPECT_NEAR(expected_tiles(64, 8, 256, 8, Routing::zipf).experts, 152.8, 3);
}

TEST(ExpectedTiles, TheSameExpertsForAll) {
  const ExpectedTiles same = expected_tiles(65, 8, 256, 8, Routing::same);
  EXPECT_EQ(same.experts, 8);
  EXPECT_EQ(same.tiles, 8 * 9);
}

TEST(ExpectedTiles, TheBusiestGpuHasMoreExpertsThanItsShare) {
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
