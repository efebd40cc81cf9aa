#include "sim/peer_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "support.h"

namespace fourfold::sim {
namespace {

// Two devices that see one buffer and one flag.
struct Pair {
  std::shared_ptr<PeerMemory> peers;
  Device first, second;
  std::uint32_t *data, *flag;
  explicit Pair(std::uint64_t seed = 0)
      : peers(std::make_shared<PeerMemory>(2, seed)),
        first({.memory_bytes = 1 << 20, .peers = peers, .rank = 0}),
        second({.memory_bytes = 1 << 20, .peers = peers, .rank = 1}) {
    data = static_cast<std::uint32_t*>(peers->allocate(256, "data"));
    flag = static_cast<std::uint32_t*>(peers->allocate(4, "flag"));
    const std::uint32_t zero = 0;
    peers->write_from_host(flag, &zero, 4);
  }
};

LaunchConfig one_warp(bool together = false) {
  LaunchConfig config = config_of(32);
  config.together = together;
  return config;
}

TEST(PeerMemory, AFlagOrdersWhatAnotherDeviceWrote) {
  Pair pair;
  launch(pair.first, one_warp(), [&](SimCta cta) {
    cta.store(pair.data + cta.lane(), 7u);
    cta.sync_warp();
    if (cta.lane() == 0) cta.store_release_system(pair.flag, 1);
  });
  std::uint32_t* got = pair.second.allocate_array<std::uint32_t>(32, "got");
  launch(pair.second, one_warp(), [&](SimCta cta) {
    if (cta.lane() == 0)
      while (cta.load_acquire_system(pair.flag) == 0) cta.give_way();
    cta.sync_warp();
    cta.store(got + cta.lane(), cta.load(pair.data + cta.lane()));
  });
  std::vector<std::uint32_t> read(32);
  pair.second.read_to_host(read.data(), got, 128);
  EXPECT_EQ(read, std::vector<std::uint32_t>(32, 7));
}

// Threads that look at other flags in turns, again and again, do not make it forget the one that counts.
TEST(PeerMemory, PollingForgetsNothing) {
  Pair pair;
  auto* others = static_cast<std::uint32_t*>(pair.peers->allocate(8, "other flags"));
  launch(pair.first, one_warp(), [&](SimCta cta) {
    if (cta.lane() < 2) cta.store_release_system(others + cta.lane(), 1);
    cta.sync_warp();
    if (cta.lane() != 0) return;
    cta.store(pair.data, 7u);
    cta.store_release_system(pair.flag, 1);
  });
  std::uint32_t heard = 0, got = 0;
  launch(pair.second, one_warp(true), [&](SimCta cta) {
    if (cta.lane() == 2) heard = cta.load_acquire_system(pair.flag);
    cta.sync_warp();
    for (int i = 0; i < 3000; ++i) {
      if (cta.lane() < 2) cta.load_acquire_system(others + cta.lane());
      cta.sync_warp();
    }
    if (cta.lane() == 0) got = cta.load(pair.data);
  });
  EXPECT_EQ(heard, 1u);
  EXPECT_EQ(got, 7u);
}

TEST(PeerMemory, WithoutAFlagItIsARace) {
  Pair pair;
  launch(pair.first, one_warp(), [&](SimCta cta) { cta.store(pair.data + cta.lane(), 7u); });
  const Fault fault = expect_fault(FaultKind::race, [&] {
    launch(pair.second, one_warp(), [&](SimCta cta) { cta.load(pair.data + cta.lane()); });
  });
  EXPECT_NE(std::string(fault.what()).find("data + 0: written by rank 0"), std::string::npos) << fault.what();
}

TEST(PeerMemory, AFlagSpeaksForOthersOnlyAfterABarrier) {
  Pair pair;
  launch(pair.first, one_warp(), [&](SimCta cta) {
    cta.store(pair.data + cta.lane(), 7u);
    if (cta.lane() == 0) cta.store_release_system(pair.flag, 1);  // no sync_warp before it
  });
  expect_fault(FaultKind::race, [&] {
    launch(pair.second, one_warp(), [&](SimCta cta) {
      if (cta.lane() == 0) cta.load_acquire_system(pair.flag);
      cta.sync_warp();
      cta.load(pair.data + cta.lane());
    });
  });
}

TEST(PeerMemory, WritingOverWhatAnotherMayStillReadIsARace) {
  Pair pair;
  launch(pair.first, one_warp(), [&](SimCta cta) {
    if (cta.lane() != 0) return;
    cta.store(pair.data, 7u);
    cta.store_release_system(pair.flag, 1);
  });
  launch(pair.second, one_warp(), [&](SimCta cta) {
    if (cta.lane() == 0 && cta.load_acquire_system(pair.flag) == 1) cta.load(pair.data);
  });
  expect_fault(FaultKind::race, [&] {
    launch(pair.first, one_warp(), [&](SimCta cta) {
      if (cta.lane() == 0) cta.store(pair.data, 8u);
    });
  });
}

TEST(PeerMemory, OnlySharedMemoryIsReached) {
  Pair pair;
  auto* own = pair.first.allocate_array<std::uint32_t>(32, "own");
  expect_fault(FaultKind::out_of_bounds, [&] {
    launch(pair.second, one_warp(), [&](SimCta cta) { cta.store(own + cta.lane(), 1u); });
  });
  expect_fault(FaultKind::unwritten_read, [&] {
    launch(pair.second, one_warp(), [&](SimCta cta) { cta.load(pair.data + cta.lane()); });
  });
}

// Blocks that wait for each other run side by side, in either direction.
TEST(PeerMemory, BlocksOfOneGridCanWaitForEachOther) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Device device;
    auto* flags = static_cast<std::uint32_t*>(device.peers().allocate(8, "flags"));
    device.peers().write_from_host(flags, std::vector<std::uint32_t>(2).data(), 8);
    LaunchConfig config = one_warp(true);
    config.blocks = 2;
    config.seed = seed;
    launch(device, config, [&](SimCta cta) {
      if (cta.lane() != 0) return;
      cta.store_release_system(flags + cta.block(), 1);
      while (cta.load_acquire_system(flags + 1 - cta.block()) == 0) cta.give_way();
    });
  }
}

TEST(PeerMemory, ASeedRepeatsTheTurns) {
  const auto run = [](std::uint64_t seed) {
    Pair pair(seed);
    std::uint64_t time[2] = {};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        pair.peers->enter(rank);
        for (int i = 0; i < 20 + 7 * rank; ++i) pair.peers->give_way(rank);
        time[rank] = pair.peers->nanoseconds();
        pair.peers->leave(rank);
      });
    for (std::thread& thread : threads) thread.join();
    return std::pair(time[0], time[1]);
  };
  EXPECT_EQ(run(3), run(3));
}

TEST(PeerMemory, RefusesTooManyRanks) { EXPECT_THROW(PeerMemory(9), Error); }

}  // namespace
}  // namespace fourfold::sim
