// The scheduler: seeds, deadlocks, livelocks, order.
#include "sim/block.h"

#include <set>

#include "support.h"

namespace fourfold::sim {
namespace {

std::vector<int> order_of_threads(std::uint64_t seed, int rounds) {
  Device device({.memory_bytes = 1 << 20});
  std::vector<int> order;
  launch(device, config_of(128, 0, seed), [&](SimCta cta) {
    for (int i = 0; i < rounds; ++i) {
      order.push_back(cta.thread());
      cta.sync_warp();
    }
  });
  return order;
}

TEST(Block, SeedZeroIsPlainOrder) {
  const std::vector<int> order = order_of_threads(0, 1);
  ASSERT_EQ(order.size(), 128u);
  for (int i = 0; i < 128; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Block, ASeedRepeatsAndSeedsDiffer) {
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const std::vector<int> order = order_of_threads(seed, 5);
    EXPECT_EQ(order, order_of_threads(seed, 5));
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 10u);
}

TEST(Block, DeadlocksListEveryWarp) {
  Device device({.memory_bytes = 1 << 20});
  struct Storage {
    Mbarrier barrier;
  };
  const Fault fault = expect_fault(FaultKind::deadlock, [&] {
    launch(device, config_of(128, sizeof(Storage), 4), [&](SimCta cta) {
      auto& s = cta.shared<Storage>();
      if (cta.thread() == 0) {
        cta.init(&s.barrier, 1);
        cta.fence_barrier_init();
      }
      const int warp = cta.warp();
      cta.sync_block();
      if (warp == 0) cta.wait(&s.barrier, 0);
      if (warp == 1) cta.barrier_sync(device::NamedBarrier(2), 64);
      if (warp == 2 && cta.lane() < 30) cta.sync_warp();
      if (warp == 2) cta.wait(&s.barrier, 0);
    });
  });
  EXPECT_TRUE(mentions(fault, "warp 0 lanes 0-31: wait(parity 0) at block_test.cpp")) << fault.what();
  EXPECT_TRUE(mentions(fault, "warp 1 lanes 0-31: barrier_sync at block_test.cpp")) << fault.what();
  EXPECT_TRUE(mentions(fault, "barrier 2 has 1 of 2 warps")) << fault.what();
  EXPECT_TRUE(mentions(fault, "warp 2 lanes 0-29: sync_warp at block_test.cpp")) << fault.what();
  EXPECT_TRUE(mentions(fault, "warp 2 lanes 30-31: wait(parity 0)")) << fault.what();
  EXPECT_TRUE(mentions(fault, "warp 3 lanes 0-31: returned from the kernel")) << fault.what();
}

TEST(Block, TheNumberOfTheWarpIsACollective) {
  // On the GPU it comes out of a shuffle: one lane asking alone would wait for ever.
  Device device;
  expect_fault(FaultKind::divergent_collective, [&] {
    launch(device, config_of(32), [](SimCta cta) {
      if (cta.lane() == 0) cta.warp();
      cta.sync_warp();
    });
  });
}

TEST(Block, PollingForeverIsCutOff) {
  Device device({.memory_bytes = 1 << 20});
  auto* const flag = counting_words(device, 1, "flag");
  LaunchConfig config = config_of(32);
  config.step_limit = 10000;
  const Fault fault = expect_fault(FaultKind::deadlock, [&] {
    launch(device, config, [&](SimCta cta) {
      while (cta.load(flag) == 0) {
      }
    });
  });
  EXPECT_TRUE(mentions(fault, "more than 10,000 steps")) << fault.what();
}

TEST(Block, CountsWhatItDid) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 32, "words");
  const LaunchStats stats = launch(device, config_of(64), [&](SimCta cta) {
    cta.sync_warp();
    cta.ballot(true);
    cta.load(words + cta.lane());
    cta.sync_block();
  });
  EXPECT_EQ(stats.collectives, 6u);
  EXPECT_EQ(stats.accesses, 64u);
  EXPECT_GT(stats.switches, 64u);
}

}  // namespace
}  // namespace fourfold::sim
