#include "sim/barriers.h"

#include "support.h"

namespace fourfold::sim {
namespace {

struct Storage {
  Mbarrier barrier[600];
  std::uint32_t words[256];
};

template <class F>
void run_with(int threads, std::uint64_t seed, F kernel) {
  Device device({.memory_bytes = 1 << 20});
  launch(device, config_of(threads, sizeof(Storage), seed),
         [&](SimCta cta) { kernel(cta, cta.shared<Storage>()); });
}

// Thread 0 initialises barrier 0; everybody may use it afterwards.
void prepare(SimCta cta, Storage& s, int arrivals) {
  if (cta.thread() == 0) {
    cta.init(&s.barrier[0], arrivals);
    cta.fence_barrier_init();
  }
  cta.sync_block();
}

TEST(Barriers, PhasesCarryDataThroughManySeeds) {
  for (std::uint64_t seed = 0; seed < 30; ++seed)
    run_with(96, seed, [](SimCta cta, Storage& s) {
      prepare(cta, s, 32);
      for (int round = 0; round < 5; ++round) {
        const auto parity = static_cast<std::uint32_t>(round & 1);
        if (cta.warp() == 1) {
          cta.store_shared(&s.words[cta.lane()], static_cast<std::uint32_t>(100 * round + cta.lane()));
          cta.arrive(&s.barrier[0]);
        } else {
          cta.wait(&s.barrier[0], parity);
          EXPECT_EQ(cta.load_shared(&s.words[31 - cta.lane()]),
                    static_cast<std::uint32_t>(100 * round + 31 - cta.lane()));
        }
        cta.sync_block();
      }
    });
}

TEST(Barriers, AFreshBarrierReportsItsPreviousPhaseComplete) {
  run_with(32, 0, [](SimCta cta, Storage& s) {
    prepare(cta, s, 1);
    cta.wait(&s.barrier[0], 1);
  });
  const Fault fault = expect_fault(FaultKind::deadlock, [] {
    run_with(32, 0, [](SimCta cta, Storage& s) {
      prepare(cta, s, 2);
      if (cta.lane() == 3) cta.arrive(&s.barrier[0]);
      cta.wait(&s.barrier[0], 0);
    });
  });
  EXPECT_TRUE(mentions(fault, "warp 0 lanes 0-31: wait(parity 0) at barriers_test.cpp:")) << fault.what();
  EXPECT_TRUE(mentions(fault, "1 of 2 arrivals missing")) << fault.what();
}

TEST(Barriers, OrderComesOnlyFromArriveAndWait) {
  // Lane 0 arrives for its warp without sync_warp: the other lanes' stores are not ordered.
  const auto run_pair = [](bool ordered, std::uint64_t seed) {
    run_with(64, seed, [&](SimCta cta, Storage& s) {
      prepare(cta, s, 1);
      if (cta.warp() == 0) {
        cta.store_shared(&s.words[cta.lane()], 7u);
        if (ordered) cta.sync_warp();
        if (cta.lane() == 0) cta.arrive(&s.barrier[0]);
      } else {
        cta.wait(&s.barrier[0], 0);
        cta.load_shared(&s.words[cta.lane()]);
      }
    });
  };
  EXPECT_EQ(faults_in_seeds(FaultKind::race, 20, [&](std::uint64_t seed) { run_pair(true, seed); }), 0);
  // Where the reader is first, the bytes are still unwritten; either way it is found.
  int found = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Fault fault = fault_of([&] { run_pair(false, seed); });
    found += fault.kind() == FaultKind::race || fault.kind() == FaultKind::unwritten_read;
  }
  EXPECT_EQ(found, 20);
}

TEST(Barriers, InitNeedsItsFenceAndASync) {
  const auto use = [](bool fence, bool sync) {
    run_with(64, 0, [&](SimCta cta, Storage& s) {
      if (cta.thread() == 0) {
        cta.init(&s.barrier[0], 1);
        if (fence) cta.fence_barrier_init();
      }
      if (sync) cta.sync_block();
      if (cta.thread() == 40) cta.arrive(&s.barrier[0]);
    });
  };
  use(true, true);
  EXPECT_TRUE(
      mentions(expect_fault(FaultKind::barrier_misuse, [&] { use(false, true); }), "no fence_barrier_init"));
  EXPECT_TRUE(mentions(expect_fault(FaultKind::barrier_misuse, [&] { use(true, false); }), "nothing orders"));
  // The initialiser itself needs neither.
  run_with(32, 0, [](SimCta cta, Storage& s) {
    if (cta.thread() != 0) return;
    cta.init(&s.barrier[0], 1);
    cta.arrive(&s.barrier[0]);
    cta.wait(&s.barrier[0], 0);
  });
}

TEST(Barriers, MisuseIsNamed) {
  const auto fault_in = [](FaultKind kind, auto body) {
    return expect_fault(kind, [&] {
      run_with(32, 0, [&](SimCta cta, Storage& s) {
        prepare(cta, s, 1);
        if (cta.lane() == 0) body(cta, s);
      });
    });
  };
  fault_in(FaultKind::barrier_misuse, [](SimCta cta, Storage& s) { cta.wait(&s.barrier[1], 0); });
  fault_in(FaultKind::barrier_misuse, [](SimCta cta, Storage& s) { cta.arrive(&s.barrier[1]); });
  fault_in(FaultKind::barrier_misuse, [](SimCta cta, Storage& s) { cta.init(&s.barrier[0], 1); });
  fault_in(FaultKind::barrier_misuse, [](SimCta cta, Storage& s) { cta.init(&s.barrier[1], 0); });
  fault_in(FaultKind::barrier_misuse, [](SimCta cta, Storage& s) { cta.wait(&s.barrier[0], 2); });
  fault_in(FaultKind::barrier_misuse,
           [](SimCta cta, Storage& s) { cta.arrive_expect(&s.barrier[0], 1 << 20); });
  fault_in(FaultKind::barrier_misuse, [](SimCta cta, Storage& s) { cta.arrive_expect(&s.barrier[0], -16); });
  fault_in(FaultKind::barrier_misuse, [](SimCta cta, Storage& s) {
    for (int i = 1; i < 600; ++i) cta.init(&s.barrier[i], 1);
  });
  fault_in(FaultKind::barrier_misuse, [](SimCta cta, Storage& s) { cta.load_shared(&s.barrier[0].state); });
  fault_in(FaultKind::barrier_misuse,
           [](SimCta cta, Storage& s) { cta.store_shared(&s.barrier[0].state, std::uint64_t{1}); });
  fault_in(FaultKind::misaligned, [](SimCta cta, Storage& s) {
    cta.arrive(reinterpret_cast<Mbarrier*>(reinterpret_cast<std::uintptr_t>(&s.barrier[0]) + 4));
  });
}

TEST(Barriers, TooManyArrivalsAreAnOverrun) {
  // The expected bytes keep the phase open, so the second arrival is one too many.
  expect_fault(FaultKind::barrier_overrun, [] {
    run_with(32, 0, [](SimCta cta, Storage& s) {
      prepare(cta, s, 1);
      if (cta.lane() == 0) cta.arrive_expect(&s.barrier[0], 16);
      if (cta.lane() == 0) cta.arrive(&s.barrier[0]);
    });
  });
}

TEST(Barriers, APhaseCompletedUnderAWaiterIsAnOverrun) {
  // Thread 0 completes two phases; whoever still waits for the first can no longer tell them apart. Who comes
  // so late that both are over waits forever.
  int overruns = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Fault fault = fault_of([&] {
      run_with(64, seed, [](SimCta cta, Storage& s) {
        prepare(cta, s, 1);
        if (cta.warp() == 1) cta.wait(&s.barrier[0], 0);
        cta.ballot(true);
        if (cta.thread() == 0) {
          cta.arrive(&s.barrier[0]);
          cta.arrive(&s.barrier[0]);
        }
      });
    });
    overruns += fault.kind() == FaultKind::barrier_overrun;
    EXPECT_TRUE(fault.kind() == FaultKind::barrier_overrun || fault.kind() == FaultKind::deadlock)
        << fault.what();
  }
  EXPECT_GT(overruns, 3);
}

TEST(Barriers, NamedBarriersJoinTheirWarps) {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    run_with(128, seed, [](SimCta cta, Storage& s) {
      const int pair = cta.warp() / 2;  // warps 0, 1 and warps 2, 3
      cta.store_shared(&s.words[cta.thread()], static_cast<std::uint32_t>(cta.thread()));
      cta.barrier_sync(device::NamedBarrier(1 + pair), 64);
      EXPECT_EQ(cta.load_shared(&s.words[cta.thread() ^ 32]), static_cast<std::uint32_t>(cta.thread() ^ 32));
    });
  EXPECT_EQ(faults_in_seeds(FaultKind::race, 10,
                            [](std::uint64_t seed) {
                              run_with(128, seed, [](SimCta cta, Storage& s) {
                                cta.store_shared(&s.words[cta.thread()], 1u);
                                cta.sync_block();
                                cta.store_shared(&s.words[cta.thread()], 1u);
                                cta.barrier_sync(device::NamedBarrier(1 + cta.warp() / 2), 64);
                                cta.load_shared(&s.words[cta.thread() ^ 64]);  // the other pair
                              });
                            }),
            10);
}

TEST(Barriers, NamedBarriersAreChecked) {
  expect_fault(FaultKind::barrier_misuse, [] {
    run_with(64, 0, [](SimCta cta, Storage&) { cta.barrier_sync(device::NamedBarrier(16), 64); });
  });
  expect_fault(FaultKind::barrier_misuse, [] {
    run_with(64, 0, [](SimCta cta, Storage&) { cta.barrier_sync(device::NamedBarrier(1), 33); });
  });
  expect_fault(FaultKind::barrier_misuse, [] {
    run_with(64, 0, [](SimCta cta, Storage&) { cta.barrier_sync(device::NamedBarrier(1), 128); });
  });
  expect_fault(FaultKind::barrier_misuse, [] {
    run_with(96, 0, [](SimCta cta, Storage&) {
      cta.barrier_sync(device::NamedBarrier(1), cta.warp() == 2 ? 64 : 96);
    });
  });
  const Fault fault = expect_fault(FaultKind::deadlock, [] {
    run_with(96, 0, [](SimCta cta, Storage&) {
      if (cta.warp() != 2) cta.sync_block();
    });
  });
  EXPECT_TRUE(mentions(fault, "barrier 0 has 2 of 3 warps")) << fault.what();
  EXPECT_TRUE(mentions(fault, "warp 2 lanes 0-31: returned from the kernel")) << fault.what();
}

// bar.sync is the aligned form: enough warps, but at two instructions, is undefined on silicon.
TEST(Barriers, WhoWaitsWaitsAtOneInstruction) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Fault fault = expect_fault(FaultKind::divergent_collective, [&] {
      run_with(64, seed, [](SimCta cta, Storage&) {
        if (cta.warp() == 0)
          cta.barrier_sync(device::NamedBarrier(1), 64);
        else
          cta.barrier_sync(device::NamedBarrier(1), 64);
      });
    });
    EXPECT_TRUE(mentions(fault, "others at barriers_test.cpp:")) << fault.what();
  }
}

// Warp 1 writes, passes barrier 1 and goes on; warp 0 waits there and reads.
struct Passing {
  bool passes = true;
  bool waits = true;
};
void run_passing(Device& device, std::uint64_t seed, Passing how = {}) {
  launch(device, config_of(64, sizeof(Storage), seed), [&](SimCta cta) {
    auto& s = cta.shared<Storage>();
    if (cta.warp() == 1) {
      cta.store_shared(&s.words[cta.lane()], static_cast<std::uint32_t>(3 * cta.lane()));
      if (how.passes) cta.barrier_arrive(device::NamedBarrier(1), 64);
      return;
    }
    if (how.waits) cta.barrier_sync(device::NamedBarrier(1), 64);
    EXPECT_EQ(cta.load_shared(&s.words[31 - cta.lane()]), static_cast<std::uint32_t>(3 * (31 - cta.lane())));
  });
}

TEST(BarrierArrive, OrdersTheWritesOfWhoPassesBeforeWhoWaits) {
  Device device({.memory_bytes = 1 << 20});
  for (std::uint64_t seed = 0; seed < 30; ++seed) run_passing(device, seed);
}

TEST(BarrierArrive, WithoutItNothingIsOrdered) {
  Device device({.memory_bytes = 1 << 20});
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    expect_fault(FaultKind::deadlock, [&] { run_passing(device, seed, {.passes = false}); });
    const FaultKind kind = fault_of([&] { run_passing(device, seed, {.waits = false}); }).kind();
    EXPECT_TRUE(kind == FaultKind::race || kind == FaultKind::unwritten_read) << seed;
  }
}

TEST(BarrierArrive, WhoPassesLearnsNothing) {
  // Warp 0 writes and waits; warp 1 only passes, so it may not read what warp 0 wrote.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Fault fault = fault_of([&] {
      run_with(64, seed, [](SimCta cta, Storage& s) {
        if (cta.warp() == 0) {
          cta.store_shared(&s.words[cta.lane()], 1u);
          cta.barrier_sync(device::NamedBarrier(1), 64);
        } else {
          cta.barrier_arrive(device::NamedBarrier(1), 64);
          cta.load_shared(&s.words[cta.lane()]);
        }
      });
    });
    EXPECT_TRUE(fault.kind() == FaultKind::race || fault.kind() == FaultKind::unwritten_read) << fault.what();
  }
}

TEST(BarrierArrive, DoesNotWait) {
  // Each warp passes one barrier before it waits at the other; if passing waited, neither would arrive.
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    run_with(64, seed, [](SimCta cta, Storage& s) {
      const int own = 1 + cta.warp(), other = 2 - cta.warp();
      cta.store_shared(&s.words[cta.thread()], static_cast<std::uint32_t>(cta.thread()));
      cta.barrier_arrive(device::NamedBarrier(other), 64);
      cta.barrier_sync(device::NamedBarrier(own), 64);
      EXPECT_EQ(cta.load_shared(&s.words[cta.thread() ^ 32]), static_cast<std::uint32_t>(cta.thread() ^ 32));
    });
}

TEST(BarrierArrive, TurnsCanBeTakenForManyRounds) {
  // Two warps write the same word in turn; every write is ordered by the passes.
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    run_with(64, seed, [](SimCta cta, Storage& s) {
      const int warp = cta.warp(), own = 1 + warp, other = 2 - warp;
      if (warp == 1) cta.barrier_arrive(device::NamedBarrier(other), 64);
      for (std::uint32_t round = 0; round < 5; ++round) {
        cta.barrier_sync(device::NamedBarrier(own), 64);
        if (cta.lane() == 0) {
          if (round || warp == 1) {
            EXPECT_EQ(cta.load_shared(&s.words[0]), 2 * round + static_cast<std::uint32_t>(warp) - 1);
          }
          cta.store_shared(&s.words[0], 2 * round + static_cast<std::uint32_t>(warp));
        }
        cta.barrier_arrive(device::NamedBarrier(other), 64);
      }
      if (warp == 0) cta.barrier_sync(device::NamedBarrier(own), 64);
    });
}

TEST(BarrierArrive, MisuseIsNamed) {
  const auto fault_in = [](FaultKind kind, auto body) {
    return expect_fault(kind, [&] { run_with(64, 0, [&](SimCta cta, Storage&) { body(cta); }); });
  };
  fault_in(FaultKind::barrier_misuse, [](SimCta cta) { cta.barrier_arrive(device::NamedBarrier(16), 64); });
  fault_in(FaultKind::barrier_misuse, [](SimCta cta) { cta.barrier_arrive(device::NamedBarrier(-1), 64); });
  fault_in(FaultKind::barrier_misuse, [](SimCta cta) { cta.barrier_arrive(device::NamedBarrier(1), 33); });
  fault_in(FaultKind::barrier_misuse, [](SimCta cta) { cta.barrier_arrive(device::NamedBarrier(1), 128); });
  const Fault counts = fault_in(FaultKind::barrier_misuse, [](SimCta cta) {
    if (cta.warp() == 0) cta.barrier_arrive(device::NamedBarrier(1), 64);
    cta.ballot(true);
    if (cta.warp() == 1) cta.barrier_sync(device::NamedBarrier(1), 32);
  });
  EXPECT_TRUE(mentions(counts, "with 32 threads here and 64 at barriers_test.cpp:")) << counts.what();
  const Fault twice = fault_in(FaultKind::barrier_overrun, [](SimCta cta) {
    if (cta.warp() == 1) return;
    cta.barrier_arrive(device::NamedBarrier(1), 64);
    cta.barrier_arrive(device::NamedBarrier(1), 64);
  });
  EXPECT_TRUE(mentions(twice, "this warp has arrived already")) << twice.what();
  fault_in(FaultKind::divergent_collective, [](SimCta cta) {
    if (cta.lane() < 16)
      cta.barrier_arrive(device::NamedBarrier(1), 64);
    else
      cta.ballot(true);
  });
}

TEST(BarrierArrive, CanBeRemoved) {
  Device device({.memory_bytes = 1 << 20});
  run_passing(device, 0);
  const std::vector<SyncSite> sites = device.executed_sites();
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[0].op, SyncOp::barrier_arrive);
  EXPECT_EQ(sites[1].op, SyncOp::barrier_sync);
  ASSERT_EQ(mutations_of(sites[0]).size(), 1u);
  device.install(mutations_of(sites[0])[0]);
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    expect_fault(FaultKind::deadlock, [&] { run_passing(device, seed); });
  device.clear_mutation();
  run_passing(device, 1);
}

}  // namespace
}  // namespace fourfold::sim
