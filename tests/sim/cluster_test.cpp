// Blocks of a cluster: their barrier, and what they send to each other.
#include "sim/cluster.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/launch/sim_row.h"
#include "support.h"

namespace fourfold::sim {
namespace {

using device::F32x2;
using device::F32x4;

constexpr int kMost = 8;

LaunchConfig cluster_config(int blocks, int cluster, int threads, int shared_bytes, std::uint64_t seed) {
  LaunchConfig config = config_of(threads, shared_bytes, seed);
  config.blocks = blocks;
  config.cluster = cluster;
  return config;
}

// ---- each block sends its value to all, and adds up all values in the order of ranks ----

template <class T>
struct Exchange {
  T got[kMost];
  Mbarrier full;
};
// What a test may leave out.
struct Damage {
  bool no_fence = false;
  bool no_cluster_barrier = false;
  bool no_wait = false;
  bool no_expect = false;
  int forget_bytes = 0;
};

float value_of(int block, int seed) { return 1.0f + 0x1p-20f * static_cast<float>(block * block + seed); }

template <class T, std::size_t N>
T filled(float value) {
  float words[N];
  for (float& word : words) word = value;
  T all;
  std::memcpy(&all, words, sizeof all);
  return all;
}

// Two clusters of two warps; lane r of warp 0 sends to rank r, warp 1 adds up.
template <class T>
void run_exchange(Device& device, float* sums, int cluster, LaunchConfig config, const Damage& damage = {}) {
  launch(device, config, [=](SimCta cta) {
    auto& s = cta.shared<Exchange<T>>();
    if (cta.thread() == 0) {
      cta.init(&s.full, 1);
      if (!damage.no_fence) cta.fence_barrier_init();
      const int bytes = cluster * static_cast<int>(sizeof(T)) - damage.forget_bytes;
      if (damage.no_expect)
        cta.arrive(&s.full);
      else
        cta.arrive_expect(&s.full, bytes);
    }
    if (!damage.no_cluster_barrier) {
      cta.cluster_arrive();
      cta.cluster_wait();
    } else {
      cta.sync_block();
    }
    if (cta.warp() == 0) {
      const T value = filled<T, sizeof(T) / 4>(value_of(cta.block(), cluster));
      if (cta.lane() < cluster) cta.send(&s.got[cta.cluster_rank()], cta.lane(), value, &s.full);
      return;
    }
    if (!damage.no_wait) cta.wait(&s.full, 0);
    float sum = 0;
    for (int rank = 0; rank < cluster; ++rank) {
      const T got = cta.load_shared(&s.got[rank]);
      float word;
      std::memcpy(&word, reinterpret_cast<const char*>(&got) + sizeof(T) - 4, 4);
      sum = SimCta::add(sum, word);
    }
    cta.store(sums + 32 * cta.block() + cta.lane(), sum);
  });
}

class ExchangeTest : public testing::Test {
 protected:
  Device device{{.memory_bytes = 1 << 20}};
  float* sums = device.allocate_array<float>(32 * 2 * kMost, "sums");

  template <class T>
  void expect_sums(int cluster, LaunchConfig config) {
    device.forget(sums, 4 * 32 * 2 * kMost);
    run_exchange<T>(device, sums, cluster, config);
    for (int block = 0; block < 2 * cluster; ++block) {
      float expected = 0, got[32];
      for (int rank = 0; rank < cluster; ++rank)
        expected += value_of(block / cluster * cluster + rank, cluster);
      device.read_to_host(got, sums + 32 * block, sizeof got);
      for (const float sum : got) EXPECT_EQ(sum, expected) << "block " << block << ", seed " << config.seed;
    }
  }
  template <class T = float>
  static LaunchConfig config(int cluster, std::uint64_t seed) {
    return cluster_config(2 * cluster, cluster, 64, sizeof(Exchange<T>), seed);
  }
  // In how many of the seeds it is noticed; any other kind fails the test.
  int damaged(const Damage& damage, int seeds, const std::vector<FaultKind>& kinds) {
    int found = 0;
    for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(seeds); ++seed) {
      try {
        run_exchange<float>(device, sums, 8, config(8, seed), damage);
      } catch (const Fault& fault) {
        ++found;
        EXPECT_NE(std::find(kinds.begin(), kinds.end(), fault.kind()), kinds.end()) << fault.what();
      }
    }
    return found;
  }
};

TEST_F(ExchangeTest, EveryBlockGetsEveryValueInEverySeed) {
  for (std::uint64_t seed = 0; seed < 30; ++seed)
    for (const int cluster : {1, 2, 4, 8}) {
      expect_sums<float>(cluster, config<float>(cluster, seed));
      expect_sums<F32x2>(cluster, config<F32x2>(cluster, seed));
      expect_sums<F32x4>(cluster, config<F32x4>(cluster, seed));
    }
}

TEST_F(ExchangeTest, RunsOnTheSmsOfEitherChip) {
  for (const plan::ArchFacts* const chip : {&plan::kSm90, &plan::kSm120})
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      LaunchConfig on_chip = config(8, seed);
      on_chip.chip = chip;
      on_chip.sms = 8;
      on_chip.shared_bytes = on_chip.shared_limit_bytes = chip->smem_bytes_per_block;
      expect_sums<float>(8, on_chip);
      on_chip.sms = 16;
      on_chip.together = true;
      expect_sums<float>(8, on_chip);
      on_chip.sms = 7;
      const Fault fault = expect_fault(FaultKind::deadlock, [&] { expect_sums<float>(8, on_chip); });
      EXPECT_TRUE(mentions(fault, "but only 7 can be there at once")) << fault.what();
    }
}

TEST_F(ExchangeTest, WhatIsMissingIsFoundInEverySeed) {
  EXPECT_EQ(damaged({.no_fence = true}, 20, {FaultKind::barrier_misuse}), 20);
  EXPECT_EQ(damaged({.no_cluster_barrier = true}, 20, {FaultKind::barrier_misuse}), 20);
  EXPECT_EQ(damaged({.no_wait = true}, 20, {FaultKind::race, FaultKind::unwritten_read}), 20);
}

TEST_F(ExchangeTest, WrongByteCountsAreFoundInEverySeed) {
  // One too few: the phase is over without the last one.
  EXPECT_EQ(damaged({.forget_bytes = 4}, 20,
                    {FaultKind::barrier_misuse, FaultKind::race, FaultKind::unwritten_read}),
            20);
  EXPECT_EQ(damaged({.forget_bytes = -4}, 20, {FaultKind::deadlock}), 20);
  EXPECT_EQ(
      damaged({.no_expect = true}, 20,
              {FaultKind::race, FaultKind::unwritten_read, FaultKind::deadlock, FaultKind::barrier_misuse}),
      20);
}

TEST_F(ExchangeTest, EveryMutationIsNoticedInEverySeed) {
  run_exchange<float>(device, sums, 4, config(4, 0));
  const std::vector<SyncSite> sites = device.executed_sites();
  EXPECT_EQ(sites.size(), 6u);  // init, fence, arrive_expect, cluster_arrive, cluster_wait, wait
  for (const SyncSite& site : sites)
    for (const Mutation& mutation : mutations_of(site)) {
      device.install(mutation);
      for (std::uint64_t seed = 0; seed < 10; ++seed)
        EXPECT_THROW(run_exchange<float>(device, sums, 4, config(4, seed)), Fault)
            << describe(mutation) << ", seed " << seed;
    }
}

// ---- what a send does ----

struct Storage {
  alignas(16) float got[32];
  Mbarrier first, second;
};

// A cluster of two blocks of one warp, with both barriers ready and the cluster's barrier passed.
template <class F>
void run_pair(std::uint64_t seed, F body) {
  Device device({.memory_bytes = 1 << 20});
  launch(device, cluster_config(2, 2, 32, sizeof(Storage), seed), [&](SimCta cta) {
    auto& s = cta.shared<Storage>();
    if (cta.lane() == 0) {
      cta.init(&s.first, 1);
      cta.init(&s.second, 1);
      cta.fence_barrier_init();
    }
    cta.cluster_arrive();
    cta.cluster_wait();
    body(cta, s);
  });
}

TEST(Send, LandsLateAndInAnyOrder) {
  int behind = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    run_pair(seed, [&](SimCta cta, Storage& s) {
      if (cta.lane() != 0) return;
      const int rank = cta.cluster_rank();
      cta.arrive_expect(&s.first, 4);
      cta.arrive_expect(&s.second, 4);
      cta.send(&s.got[0], rank, 1.0f, &s.first);
      cta.send(&s.got[1], rank, 2.0f, &s.second);
      EXPECT_NE(*const_cast<volatile float*>(&s.got[0]), 1.0f);
      cta.wait(&s.second, 0);
      EXPECT_EQ(cta.load_shared(&s.got[1]), 2.0f);
      behind += *const_cast<volatile float*>(&s.got[0]) != 1.0f;
      cta.wait(&s.first, 0);
      EXPECT_EQ(cta.load_shared(&s.got[0]), 1.0f);
    });
  EXPECT_GT(behind, 10);
  EXPECT_LT(behind, 70);
}

TEST(Send, IsSeenByThoseAloneWhoWaitedForItsPhase) {
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (const bool synced : {false, true}) {
      const auto pass_on = [&] {
        run_pair(seed, [&](SimCta cta, Storage& s) {
          if (cta.lane() == 0) {
            cta.arrive_expect(&s.first, 16);
            cta.send(reinterpret_cast<U32x4*>(s.got), 1 - cta.cluster_rank(), U32x4{{1, 2, 3, 4}}, &s.first);
            cta.wait(&s.first, 0);
          }
          if (synced) cta.sync_warp();
          if (cta.lane() == 0 || synced)
            EXPECT_EQ(cta.load_shared(reinterpret_cast<const U32x4*>(s.got)).v[2], 3u);
          else if (cta.lane() == 9)
            cta.load_shared(&s.got[2]);
          if (!synced && cta.lane() != 0) cta.wait(&s.first, 0);
        });
      };
      if (synced) {
        pass_on();
        continue;
      }
      const Fault fault = fault_of(pass_on);
      EXPECT_TRUE(fault.kind() == FaultKind::race || fault.kind() == FaultKind::unwritten_read)
          << fault.what();
      EXPECT_TRUE(fault.kind() != FaultKind::race || mentions(fault, "written by a send at cluster_test.cpp"))
          << fault.what();
    }
}

TEST(Send, ChecksRanksAddressesAndBarriers) {
  const auto refused = [](FaultKind kind, const char* text, auto send) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const Fault fault = expect_fault(kind, [&] {
        run_pair(seed, [&](SimCta cta, Storage& s) {
          if (cta.block() == 0 && cta.lane() == 0) send(cta, s);
          cta.cluster_arrive();
          cta.cluster_wait();
        });
      });
      EXPECT_TRUE(mentions(fault, text)) << fault.what();
    }
  };
  refused(FaultKind::out_of_bounds, "send to rank 2 of a cluster of 2 blocks",
          [](SimCta cta, Storage& s) { cta.send(&s.got[0], 2, 1.0f, &s.first); });
  refused(FaultKind::misaligned, "send of 8 bytes at shared byte 4", [](SimCta cta, Storage& s) {
    cta.send(reinterpret_cast<F32x2*>(&s.got[1]), 1, F32x2{{1, 2}}, &s.first);
  });
  refused(FaultKind::out_of_bounds, "send of 4 bytes at shared byte 144; the block has 144 bytes",
          [](SimCta cta, Storage& s) { cta.send(s.got + sizeof(Storage) / 4, 1, 1.0f, &s.first); });
  refused(
      FaultKind::barrier_misuse,
      "send of 4 bytes to block 1 (rank 1): its shared byte 64 is no initialised barrier",
      [](SimCta cta, Storage& s) { cta.send(&s.got[0], 1, 1.0f, reinterpret_cast<Mbarrier*>(&s.got[16])); });
  refused(FaultKind::barrier_misuse, "these bytes are a barrier, not data",
          [](SimCta cta, Storage& s) { cta.send(reinterpret_cast<float*>(&s.second), 1, 1.0f, &s.first); });
  refused(FaultKind::race, "written by a send at cluster_test.cpp", [](SimCta cta, Storage& s) {
    cta.send(&s.got[3], 1, 1.0f, &s.first);
    cta.send(&s.got[3], 1, 2.0f, &s.first);
  });
}

TEST(Send, GoesToNoBlockThatHasReturned) {
  int gone = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Fault fault = fault_of([&] {
      run_pair(seed, [&](SimCta cta, Storage& s) {
        if (cta.block() == 1) return;
        for (int i = 0; i < 200; ++i) cta.sync_warp();
        if (cta.lane() == 0) cta.send(&s.got[0], 1, 1.0f, &s.first);
      });
    });
    // Where the other block was slow, it ends with the send in flight, or with bytes nobody expected.
    if (fault.kind() != FaultKind::out_of_bounds) {
      EXPECT_EQ(fault_name(fault.kind()), fault_name(FaultKind::leftover_copy)) << fault.what();
      continue;
    }
    ++gone;
    EXPECT_TRUE(mentions(fault,
                         "send of 4 bytes to block 1 (rank 1): it has returned from the kernel, and "
                         "its shared memory is gone"))
        << fault.what();
  }
  EXPECT_GT(gone, 10);
}

// Rounds over one place: the receiver has to say, at the cluster's barrier, that it has read.
void run_rounds(std::uint64_t seed, bool says_so) {
  run_pair(seed, [&](SimCta cta, Storage& s) {
    for (std::uint32_t round = 0; round < 3; ++round) {
      if (cta.lane() == 0) {
        cta.arrive_expect(&s.first, 4);
        cta.send(&s.got[0], 1 - cta.cluster_rank(), static_cast<float>(round), &s.first);
      }
      cta.wait(&s.first, round & 1u);
      EXPECT_EQ(cta.load_shared(&s.got[0]), static_cast<float>(round));
      if (!says_so) continue;
      cta.cluster_arrive();
      cta.cluster_wait();
    }
  });
}

TEST(Send, OverwritesOnlyWhatTheReceiverHasRead) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    run_rounds(seed, true);
    const Fault fault = expect_fault(FaultKind::race, [&] { run_rounds(seed, false); });
    EXPECT_TRUE(mentions(fault, "(rank ")) << fault.what();
  }
}

TEST(Send, ToTheOwnBlockIsCheckedAsACopy) {
  const auto own = [](std::uint64_t seed, bool settles) {
    run_pair(seed, [&](SimCta cta, Storage& s) {
      if (cta.lane() != 0) return;
      cta.store_shared(&s.got[0], 1.0f);
      EXPECT_EQ(cta.load_shared(&s.got[0]), 1.0f);
      if (settles) cta.arrive_expect(&s.first, 4);
      cta.send(&s.got[0], cta.cluster_rank(), 2.0f, &s.first);
      if (!settles) cta.arrive_expect(&s.first, 4);
      cta.wait(&s.first, 0);
      EXPECT_EQ(cta.load_shared(&s.got[0]), 2.0f);
    });
  };
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    own(seed, true);
    expect_fault(FaultKind::late_read, [&] { own(seed, false); });
  }
}

// ---- the cluster's barrier ----

template <class F>
void run_blocks(int blocks, std::uint64_t seed, F body) {
  Device device({.memory_bytes = 1 << 20});
  launch(device, cluster_config(blocks, blocks, 64, 0, seed), [&](SimCta cta) { body(cta); });
}

TEST(ClusterBarrier, NobodyPassesBeforeAllHaveArrived) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    int arrived = 0;
    run_blocks(4, seed, [&](SimCta cta) {
      for (int round = 1; round <= 3; ++round) {
        ++arrived;
        cta.cluster_arrive();
        cta.cluster_wait();
        EXPECT_GE(arrived, round * 4 * 64);
      }
    });
  }
}

TEST(ClusterBarrier, ABlockThatLeavesWithoutArrivingIsADeadlock) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Fault fault = expect_fault(FaultKind::deadlock, [&] {
      run_blocks(4, seed, [&](SimCta cta) {
        if (cta.block() == 2) return;
        cta.cluster_arrive();
        cta.cluster_wait();
      });
    });
    EXPECT_TRUE(mentions(fault, "6 of 8 warps of the cluster have arrived")) << fault.what();
    EXPECT_TRUE(mentions(fault, " block 2 (rank 2):\n  warp 0 lanes 0-31: returned from the kernel"))
        << fault.what();
  }
}

TEST(ClusterBarrier, ArrivalsAndWaitsTakeTurns) {
  const auto refused = [](const char* text, auto body) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const Fault fault = expect_fault(FaultKind::barrier_misuse, [&] { run_blocks(2, seed, body); });
      EXPECT_TRUE(mentions(fault, text)) << fault.what();
    }
  };
  refused("cluster_arrive again", [](SimCta cta) {
    cta.cluster_arrive();
    cta.cluster_arrive();
  });
  refused("cluster_wait with no cluster_arrive", [](SimCta cta) { cta.cluster_wait(); });
  refused("behind a cluster_arrive, with no cluster_wait", [](SimCta cta) { cta.cluster_arrive(); });
}

TEST(ClusterBarrier, IsACollectiveOfTheWarp) {
  const Fault fault = expect_fault(FaultKind::divergent_collective, [] {
    run_blocks(2, 0, [](SimCta cta) {
      if (cta.lane() == 5) cta.sync_warp();
      cta.cluster_arrive();
      cta.cluster_wait();
    });
  });
  EXPECT_TRUE(mentions(fault, "cluster_arrive"));
}

TEST(Cluster, GridsAreWholeClustersOfPortableSizes) {
  Device device({.memory_bytes = 1 << 20});
  const auto refusal = [&](int blocks, int cluster) -> std::string {
    try {
      launch(device, cluster_config(blocks, cluster, 32, 0, 0), [](SimCta) {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(8, 4), "");
  EXPECT_EQ(refusal(4, 8), "test: 4 blocks are no whole clusters of 8");
  EXPECT_EQ(refusal(12, 8), "test: 12 blocks are no whole clusters of 8");
  EXPECT_EQ(refusal(16, 16), "test: clusters of 16 blocks; 2, 4 and 8 are on every chip that has them");
  EXPECT_EQ(refusal(6, 3), "test: clusters of 3 blocks; 2, 4 and 8 are on every chip that has them");
}

struct RankRow {
  using Arch = plan::Sm120;
  struct Params {
    std::uint32_t* ranks;
  };
  using Storage = kernels::NoStorage;
  static constexpr int threads = 32, blocks_per_sm = 1, cluster = 4;
  static std::string name() { return "rank"; }
  static plan::RowFacts facts() { return kernels::step_facts<RankRow>("rank", "any"); }
  template <class Cta>
  static void run(Cta cta, const Params& params) {
    cta.wait_predecessors();
    if (cta.lane() == 0)
      cta.store(params.ranks + cta.block(), static_cast<std::uint32_t>(cta.cluster_rank()));
    cta.cluster_arrive();
    cta.cluster_wait();
  }
};

TEST(Cluster, ARowSaysItsSize) {
  static_assert(kernels::cluster_of<RankRow>() == 4);
  Device device({.memory_bytes = 1 << 20});
  auto* const ranks = device.allocate_array<std::uint32_t>(8, "ranks");
  kernels::run_on_sim<RankRow>(device, 8, {ranks});
  std::uint32_t got[8];
  device.read_to_host(got, ranks, sizeof got);
  for (std::uint32_t block = 0; block < 8; ++block) EXPECT_EQ(got[block], block % 4);
  EXPECT_THROW(kernels::run_on_sim<RankRow>(device, 6, {ranks}), Error);
}

TEST(Cluster, ABlockKnowsItsRank) {
  run_blocks(8, 3, [](SimCta cta) { EXPECT_EQ(cta.cluster_rank(), cta.block() % 8); });
  Device device({.memory_bytes = 1 << 20});
  launch(device, cluster_config(12, 4, 32, 0, 5),
         [](SimCta cta) { EXPECT_EQ(cta.cluster_rank(), cta.block() % 4); });
}

}  // namespace
}  // namespace fourfold::sim
