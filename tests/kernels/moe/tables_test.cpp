#include "kernels/moe/tables.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/random.h"

namespace fourfold::moe {
namespace {

// Slots and tiles that a routing needs, as the tables define them.
int slots_of(const std::vector<int>& counts) {
  int slots = 0;
  for (const int count : counts) slots += (count + kSlotGroup - 1) / kSlotGroup * kSlotGroup;
  return slots;
}
int tiles_of(const std::vector<int>& counts, int tile_tokens) {
  int tiles = 0;
  for (const int count : counts) tiles += (count + tile_tokens - 1) / tile_tokens;
  return tiles;
}

// Each token picks top_k different experts, with a preference for the first ones.
std::vector<int> random_counts(Random& random, int tokens, int top_k, int experts) {
  std::vector<int> counts(static_cast<std::size_t>(experts)), order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  const auto reach =
      static_cast<std::uint64_t>(top_k) + random.below(static_cast<std::uint64_t>(experts - top_k) + 1);
  for (int token = 0; token < tokens; ++token)
    for (int rank = 0; rank < top_k; ++rank) {
      const auto other =
          static_cast<std::size_t>(rank) + random.below(reach - static_cast<std::uint64_t>(rank));
      std::swap(order[static_cast<std::size_t>(rank)], order[other]);
      ++counts[static_cast<std::size_t>(order[static_cast<std::size_t>(rank)])];
    }
  return counts;
}

TEST(Tables, LimitsHoldForEveryRouting) {
  Random random(1);
  for (int i = 0; i < 20000; ++i) {
    const int experts = 1 + static_cast<int>(random.below(40));
    const int top_k =
        1 + static_cast<int>(random.below(static_cast<std::uint64_t>(std::min(experts, kMaxTopK))));
    const int tokens = static_cast<int>(random.below(50)), tile_tokens = 8 << random.below(5);
    const std::vector<int> counts = random_counts(random, tokens, top_k, experts);
    ASSERT_LE(slots_of(counts), slot_limit(tokens, top_k, experts));
    ASSERT_LE(tiles_of(counts, tile_tokens), tile_limit(tokens, top_k, experts, tile_tokens));
  }
}

TEST(Tables, LimitsAreReached) {
  // One pair an expert: every group is one of eight, every tile its own.
  EXPECT_EQ(slot_limit(4, 2, 8), 8 * 8);
  EXPECT_EQ(slots_of({1, 1, 1, 1, 1, 1, 1, 1}), 8 * 8);
  EXPECT_GE(tile_limit(4, 2, 8, 8), tiles_of({1, 1, 1, 1, 1, 1, 1, 1}, 8));
  // Nine tokens for one expert.
  EXPECT_EQ(slot_limit(9, 1, 1), 16);
  EXPECT_EQ(tile_limit(9, 1, 1, 8), 2);
}

TEST(Tables, NoTokensNeedNothing) {
  EXPECT_EQ(slot_limit(0, 8, 256), 0);
  EXPECT_EQ(tile_limit(0, 8, 256, 64), 0);
}

TEST(Tables, LimitsStayInRangeAtTheLargestBatch) {
  // 2^24 pairs is what a layer accepts.
  const int tokens = (1 << 24) / kMaxTopK;
  EXPECT_GT(slot_limit(tokens, kMaxTopK, kMaxExperts), 1 << 24);
  EXPECT_GT(tile_limit(tokens, kMaxTopK, kMaxExperts, 8), 1 << 21);
}

TEST(Tables, RoundUp) {
  EXPECT_EQ(round_up(0, 8), 0);
  EXPECT_EQ(round_up(1, 8), 8);
  EXPECT_EQ(round_up(8, 8), 8);
  EXPECT_EQ(round_up(9, 8), 16);
}

}  // namespace
}  // namespace fourfold::moe
