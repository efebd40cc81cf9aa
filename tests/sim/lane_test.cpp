// Collectives of a warp: what they exchange, and that all 32 lanes must come.
#include "sim/lane.h"

#include "support.h"

namespace fourfold::sim {
namespace {

TEST(Lane, ExchangesValuesInEverySeed) {
  Device device({.memory_bytes = 1 << 20});
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    launch(device, config_of(64, 0, seed), [](SimCta cta) {
      const int lane = cta.lane();
      EXPECT_EQ(cta.shuffle(lane * 2, 7), 14);
      EXPECT_EQ(cta.shuffle(lane * 2, (lane + 1) % 32), (lane + 1) % 32 * 2);
      EXPECT_EQ(cta.shuffle(lane, 33), 1);
      EXPECT_EQ(cta.shuffle(static_cast<float>(lane) + 0.5f, 3), 3.5f);
      EXPECT_EQ(cta.shuffle(static_cast<std::uint64_t>(lane) << 40, 3), 3ull << 40);
      EXPECT_EQ(cta.shuffle_xor(lane, 5), lane ^ 5);
      EXPECT_EQ(cta.ballot(lane % 3 == 0), 0x49249249u);
      EXPECT_EQ(cta.max_all(static_cast<std::uint32_t>(lane ^ 9)), 31u);
      EXPECT_EQ(cta.max_all(lane == 4 ? 0xFFFFFFFFu : 0u), 0xFFFFFFFFu);
      EXPECT_EQ(cta.match(static_cast<std::uint32_t>(lane / 8)), 0xFFu << lane / 8 * 8);
    });
}

TEST(Lane, DivergentCollectivesNameBothSites) {
  Device device({.memory_bytes = 1 << 20});
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    int one = 0, two = 0;
    const Fault fault = expect_fault(FaultKind::divergent_collective, [&] {
      launch(device, config_of(32, 0, seed), [&](SimCta cta) {
        one = __LINE__ + 1;
        if (cta.lane() < 16) cta.ballot(true);
        two = __LINE__ + 1;
        if (cta.lane() >= 16) cta.ballot(true);
      });
    });
    EXPECT_TRUE(mentions(fault, "lane_test.cpp:" + std::to_string(one))) << fault.what();
    EXPECT_TRUE(mentions(fault, "lane_test.cpp:" + std::to_string(two))) << fault.what();
  }
  expect_fault(FaultKind::divergent_collective, [&] {  // one line, two operations
    launch(device, config_of(32), [](SimCta cta) { cta.lane() == 3 ? cta.sync_warp() : cta.sync_block(); });
  });
}

TEST(Lane, ReturnedLanesAreMissed) {
  Device device({.memory_bytes = 1 << 20});
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    expect_fault(FaultKind::divergent_collective, [&] {
      launch(device, config_of(32, 0, seed), [](SimCta cta) {
        if (cta.lane() == 13) return;
        cta.sync_warp();
      });
    });
}

}  // namespace
}  // namespace fourfold::sim
