// Launches, their chain (programmatic dependent launch) and their limits.
#include "sim/device.h"

#include <thread>

#include "base/error.h"
#include "support.h"

namespace fourfold::sim {
namespace {

LaunchConfig dependent(int blocks = 2, std::uint64_t seed = 0) {
  LaunchConfig config = config_of(32, 0, seed);
  config.blocks = blocks;
  config.pdl = true;
  return config;
}

class ChainTest : public testing::Test {
 protected:
  Device device{{.memory_bytes = 1 << 20}};
  std::uint32_t* x = counting_words(device, 64, "x");
  std::uint32_t* y = counting_words(device, 64, "y");
  std::uint32_t* z = counting_words(device, 64, "z");

  // to[block] = from[block] + 1, in lane 0 of each block.
  static void step(SimCta cta, const std::uint32_t* from, std::uint32_t* to) {
    if (cta.lane() == 0) cta.store(to + cta.block(), cta.load(from + cta.block()) + 1);
  }
  void good(const std::uint32_t* from, std::uint32_t* to, std::uint64_t seed) {
    launch(device, dependent(2, seed), [=](SimCta cta) {
      cta.wait_predecessors();
      cta.release_successors();
      step(cta, from, to);
    });
  }
};

TEST_F(ChainTest, WaitsInOrderAreRight) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    good(x, y, seed);
    good(y, z, seed);
    good(z, x, seed);
  }
  std::uint32_t got[2];
  device.read_to_host(got, x, 8);
  EXPECT_EQ(got[0], 30u);
  EXPECT_EQ(got[1], 31u);
}

TEST_F(ChainTest, ReadingThePredecessorBeforeTheWaitIsARace) {
  good(x, y, 0);
  const Fault fault = expect_fault(FaultKind::predecessor_race, [&] {
    launch(device, dependent(), [&](SimCta cta) {
      step(cta, y, z);
      cta.wait_predecessors();
    });
  });
  EXPECT_TRUE(mentions(fault, "written by grid 1")) << fault.what();
}

TEST_F(ChainTest, OverwritingWhatThePredecessorReadsOrWritesIsARace) {
  good(x, y, 0);
  expect_fault(FaultKind::predecessor_race, [&] {
    launch(device, dependent(), [&](SimCta cta) {
      if (cta.lane() == 0) cta.store(x + cta.block(), 1u);  // grid 1 may still read it
      cta.wait_predecessors();
    });
  });
  good(x, y, 0);
  expect_fault(FaultKind::predecessor_race, [&] {
    launch(device, dependent(), [&](SimCta cta) {
      if (cta.lane() == 0) cta.store(y + cta.block(), 1u);
      cta.wait_predecessors();
    });
  });
  // Reading it oneself first does not hide the other reader.
  good(x, y, 0);
  expect_fault(FaultKind::predecessor_race, [&] {
    launch(device, dependent(), [&](SimCta cta) {
      step(cta, x, x);
      cta.wait_predecessors();
    });
  });
}

TEST_F(ChainTest, ConstantsMayBeReadEarly) {
  good(x, y, 0);
  launch(device, dependent(), [&](SimCta cta) {
    cta.load_stream(z + 5);
    cta.wait_predecessors();
    step(cta, y, z + 10);
  });
}

TEST_F(ChainTest, GrandparentsNeedAReleaseAfterTheWait) {
  const auto read_grandparent_early = [&] {
    launch(device, dependent(), [&](SimCta cta) {
      cta.load(y + cta.block());  // written two grids ago
      cta.wait_predecessors();
    });
  };
  good(x, y, 0);
  good(z, z + 8, 0);  // releases after its wait
  read_grandparent_early();

  good(x, y, 0);
  launch(device, dependent(), [&](SimCta cta) {  // one block releases before its wait
    if (cta.block() == 1) cta.release_successors();
    cta.wait_predecessors();
    if (cta.block() == 0) cta.release_successors();
  });
  expect_fault(FaultKind::predecessor_race, read_grandparent_early);

  good(x, y, 0);
  launch(device, dependent(), [&](SimCta cta) { cta.wait_predecessors(); });  // never releases: at its end
  read_grandparent_early();
}

TEST_F(ChainTest, OneWaitingThreadServesThoseItSynchronisesWith) {
  const auto by_lane_0 = [&](bool sync) {
    good(x, y, 0);
    launch(device, dependent(), [&](SimCta cta) {
      if (cta.lane() == 0) cta.wait_predecessors();
      if (sync) cta.sync_warp();
      if (cta.lane() == 7) cta.load(y + cta.block());
    });
  };
  by_lane_0(true);
  expect_fault(FaultKind::predecessor_race, [&] { by_lane_0(false); });
}

TEST_F(ChainTest, ANormalLaunchAndTheHostWaitForEverything) {
  good(x, y, 0);
  LaunchConfig normal = dependent();
  normal.pdl = false;
  launch(device, normal, [&](SimCta cta) { step(cta, y, z); });
  good(z, x, 0);
  device.synchronize();
  launch(device, dependent(), [&](SimCta cta) {
    cta.load(x + cta.block());
    cta.wait_predecessors();
  });
}

TEST_F(ChainTest, ADependentGridThatNeverWaitsBreaksTheChain) {
  good(x, y, 0);
  const Fault fault =
      expect_fault(FaultKind::predecessor_race, [&] { launch(device, dependent(), [](SimCta) {}); });
  EXPECT_TRUE(
      mentions(fault, "grid 2 was launched as a dependent but never waited: grid 3 could overtake grid 1"));
}

TEST(Device, RunsEveryThreadOfEveryBlockOnce) {
  Device device({.memory_bytes = 1 << 20});
  auto* const out = device.allocate_array<std::uint32_t>(5 * 96, "out");
  for (std::uint64_t seed : {0u, 1u, 2u}) {
    LaunchConfig config = config_of(96, 0, seed);
    config.blocks = 5;
    launch(device, config, [&](SimCta cta) {
      EXPECT_EQ(cta.threads(), 96);
      EXPECT_EQ(cta.blocks(), 5);
      EXPECT_EQ(cta.thread(), cta.warp() * 32 + cta.lane());
      cta.store(out + cta.block() * 96 + cta.thread(),
                static_cast<std::uint32_t>(cta.block() * 1000 + cta.thread()));
    });
    std::vector<std::uint32_t> got(5 * 96);
    device.read_to_host(got.data(), out, got.size() * 4);
    for (std::uint32_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i / 96 * 1000 + i % 96);
  }
}

TEST(Device, RefusesImpossibleLaunches) {
  Device device({.memory_bytes = 1 << 20});
  EXPECT_THROW(launch(device, config_of(33), [](SimCta) {}), Error);
  EXPECT_THROW(launch(device, config_of(2048), [](SimCta) {}), Error);
  LaunchConfig none = config_of(32);
  none.blocks = 0;
  EXPECT_THROW(launch(device, none, [](SimCta) {}), Error);
  LaunchConfig registers = config_of(384);
  registers.registers_per_thread = 176;
  expect_fault(FaultKind::register_rule, [&] { launch(device, registers, [](SimCta) {}); });
}

struct Counted {
  explicit Counted(int* counter) : count(counter) { ++*count; }
  ~Counted() { --*count; }
  Counted(const Counted&) = delete;
  int* count;
};

TEST(Device, AFaultUnwindsEveryThreadAndLeavesTheDeviceUsable) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 4, "words");
  int alive = 0;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    expect_fault(FaultKind::out_of_bounds, [&] {
      launch(device, config_of(128, 0, seed), [&](SimCta cta) {
        const Counted counted(&alive);
        cta.sync_block();
        if (cta.thread() == 77) cta.load(words + 4);
        cta.sync_block();
      });
    });
    EXPECT_EQ(alive, 0);
    launch(device, config_of(128, 0, seed), [&](SimCta cta) { cta.sync_block(); });
  }
  // Exceptions of the test itself come through as they are.
  EXPECT_THROW(launch(device, config_of(32),
                      [](SimCta cta) {
                        if (cta.lane() == 3) throw std::runtime_error("mine");
                        cta.sync_warp();
                      }),
               std::runtime_error);
}

TEST(Device, UserChecksNameTheThread) {
  Device device({.memory_bytes = 1 << 20});
  const Fault fault = expect_fault(FaultKind::user_check, [&] {
    device.launch(config_of(64), [](Lane& lane) {
      lane.check(lane.thread() != 45, "no thread 45", {__FILE__, __LINE__});
    });
  });
  EXPECT_EQ(fault.place().warp, 1);
  EXPECT_EQ(fault.place().lane, 13);
  EXPECT_TRUE(mentions(fault, "user_check in test, block 0, warp 1 lane 13, at device_test.cpp:"));
}

TEST(Device, DevicesRunOnDifferentHostThreads) {
  std::vector<std::thread> hosts;
  std::uint32_t results[4] = {};
  for (std::uint32_t host = 0; host < 4; ++host)
    hosts.emplace_back([host, &results] {
      Device device({.memory_bytes = 1 << 20});
      auto* const out = device.allocate_array<std::uint32_t>(64, "out");
      for (std::uint64_t seed = 0; seed < 5; ++seed)
        launch(device, config_of(64, 0, seed), [&](SimCta cta) {
          const std::uint32_t sum = cta.max_all(static_cast<std::uint32_t>(cta.thread()) * (host + 1));
          cta.sync_block();
          cta.store(out + cta.thread(), sum);
        });
      device.read_to_host(&results[host], out + 63, 4);
    });
  for (std::thread& host : hosts) host.join();
  for (std::uint32_t host = 0; host < 4; ++host) EXPECT_EQ(results[host], 63 * (host + 1));
}

}  // namespace
}  // namespace fourfold::sim
