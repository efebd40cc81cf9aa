#include "sim/shared_memory.h"

#include "support.h"

namespace fourfold::sim {
namespace {

struct Storage {
  std::uint32_t words[256];
  U32x4 quads[64];
};

template <class F>
void run_shared(int threads, std::uint64_t seed, F kernel) {
  Device device({.memory_bytes = 1 << 20});
  launch(device, config_of(threads, sizeof(Storage), seed),
         [&](SimCta cta) { kernel(cta, cta.shared<Storage>()); });
}

TEST(SharedMemory, KeepsWhatIsStored) {
  run_shared(64, 0, [](SimCta cta, Storage& s) {
    cta.store_shared(&s.words[cta.thread()], static_cast<std::uint32_t>(cta.thread() * 3));
    cta.store_shared(&s.quads[cta.thread()], U32x4{{1, 2, 3, static_cast<std::uint32_t>(cta.thread())}});
    cta.sync_block();
    const int other = 63 - cta.thread();
    EXPECT_EQ(cta.load_shared(&s.words[other]), static_cast<std::uint32_t>(other * 3));
    EXPECT_EQ(cta.load_shared(&s.quads[other]).v[3], static_cast<std::uint32_t>(other));
  });
}

TEST(SharedMemory, FindsBytesNobodyWrote) {
  const Fault fault = expect_fault(FaultKind::unwritten_read, [] {
    run_shared(32, 0, [](SimCta cta, Storage& s) {
      if (cta.lane() == 5) cta.load_shared(&s.words[7]);
    });
  });
  EXPECT_EQ(fault.place().lane, 5);
  EXPECT_EQ(fault.place().file, "shared_memory_test.cpp");
  EXPECT_TRUE(mentions(fault, "shared byte 28"));
  // One missing word of four is enough.
  expect_fault(FaultKind::unwritten_read, [] {
    run_shared(32, 0, [](SimCta cta, Storage& s) {
      auto* const words = reinterpret_cast<std::uint32_t*>(&s.quads[0]);
      for (int i = 0; i < 3; ++i)
        if (cta.lane() == 0) cta.store_shared(words + i, 1u);
      cta.sync_warp();
      cta.load_shared(&s.quads[0]);
    });
  });
}

TEST(SharedMemory, FindsWriteThenReadInEverySeed) {
  int line = 0;
  const auto action = [&](std::uint64_t seed) {
    run_shared(64, seed, [&](SimCta cta, Storage& s) {
      if (cta.thread() == 40) cta.store_shared(&s.words[3], 9u);
      line = __LINE__ - 1;
      if (cta.thread() == 40) cta.store_shared(&s.words[4], 9u);
      cta.sync_warp();
      if (cta.thread() == 0) {
        // Written by another warp, ordered with nobody; before or after, it is a fault.
        cta.load_shared(&s.words[3]);
      }
    });
  };
  int races = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Fault fault = fault_of([&] { action(seed); });
    if (fault.kind() == FaultKind::race) {
      ++races;
      if (fault.place().warp == 0) {
        EXPECT_TRUE(mentions(fault, "warp 1 lane 8 at shared_memory_test.cpp:" + std::to_string(line)));
      }
    } else {
      EXPECT_EQ(fault.kind(), FaultKind::unwritten_read);
    }
  }
  EXPECT_GT(races, 0);
}

TEST(SharedMemory, FindsReadThenWriteAndWriteThenWrite) {
  EXPECT_EQ(faults_in_seeds(FaultKind::race, 10,
                            [](std::uint64_t seed) {
                              run_shared(64, seed, [](SimCta cta, Storage& s) {
                                if (cta.thread() < 32) cta.store_shared(&s.words[cta.thread()], 1u);
                                cta.sync_block();
                                if (cta.thread() == 3) cta.load_shared(&s.words[8]);
                                if (cta.thread() == 60) cta.store_shared(&s.words[8], 2u);
                              });
                            }),
            10);
  EXPECT_EQ(faults_in_seeds(FaultKind::race, 10,
                            [](std::uint64_t seed) {
                              run_shared(64, seed, [](SimCta cta, Storage& s) {
                                if (cta.lane() == 0) cta.store_shared(&s.words[8], 2u);
                              });
                            }),
            10);
}

// Lanes of one warp run one after another here; that is no order.
TEST(SharedMemory, LanesOfAWarpAreNotOrderedByRunningTogether) {
  EXPECT_EQ(faults_in_seeds(FaultKind::race, 10,
                            [](std::uint64_t seed) {
                              run_shared(32, seed, [](SimCta cta, Storage& s) {
                                cta.store_shared(&s.words[cta.lane()], 1u);
                                cta.ballot(true);  // gathers the warp, orders no memory
                                cta.load_shared(&s.words[31 - cta.lane()]);
                              });
                            }),
            10);
}

TEST(SharedMemory, NeighbouringWordsDoNotCollide) {
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    run_shared(128, seed, [](SimCta cta, Storage& s) {
      cta.store_shared(&s.words[cta.thread()], 1u);
      cta.load_shared(&s.words[cta.thread()]);
      cta.store_shared(&s.words[cta.thread()], 2u);
    });
}

TEST(SharedMemory, ManyReadersAreAllRemembered) {
  // 128 threads read one word, all but one are ordered before the writer.
  EXPECT_EQ(faults_in_seeds(FaultKind::race, 10,
                            [](std::uint64_t seed) {
                              run_shared(160, seed, [](SimCta cta, Storage& s) {
                                if (cta.thread() == 0) cta.store_shared(&s.words[0], 1u);
                                cta.sync_block();
                                if (cta.thread() < 128) cta.load_shared(&s.words[0]);
                                if (cta.thread() < 96) cta.barrier_sync(device::NamedBarrier(1), 128);
                                if (cta.thread() >= 128) {
                                  cta.barrier_sync(device::NamedBarrier(1), 128);
                                  if (cta.thread() == 128) cta.store_shared(&s.words[0], 2u);
                                }
                              });
                            }),
            10);
}

TEST(SharedMemory, ChecksBoundsAndAlignment) {
  expect_fault(FaultKind::out_of_bounds, [] {
    run_shared(32, 0,
               [](SimCta cta, Storage& s) { cta.store_shared(&s.words[0] + sizeof(Storage) / 4, 1u); });
  });
  expect_fault(FaultKind::out_of_bounds,
               [] { run_shared(32, 0, [](SimCta cta, Storage& s) { cta.load_shared(&s.words[0] - 1); }); });
  expect_fault(FaultKind::misaligned, [] {
    run_shared(32, 0, [](SimCta cta, Storage& s) {
      cta.store_shared(reinterpret_cast<U32x4*>(reinterpret_cast<std::uintptr_t>(&s.words[1])), U32x4{});
    });
  });
}

TEST(SharedMemory, NoticesRawWritesBehindItsEnd) {
  const Fault fault = expect_fault(FaultKind::out_of_bounds, [] {
    run_shared(32, 0, [](SimCta cta, Storage& s) {
      if (cta.thread() == 0) *(reinterpret_cast<volatile unsigned char*>(&s) + sizeof(Storage)) = 1;
    });
  });
  EXPECT_TRUE(mentions(fault, "past the block's shared memory"));
}

TEST(SharedMemory, LoadMatrixDistributesRowsAndCountsAsARead) {
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    run_shared(32, seed, [](SimCta cta, Storage& s) {
      // Matrix m, row r: halves 100 m + 10 r + column.
      const auto half = [](int m, int r, int column) {
        return static_cast<std::uint32_t>(100 * m + 10 * r + column);
      };
      const int m = cta.lane() / 8, r = cta.lane() % 8;
      U32x4 row;
      for (int i = 0; i < 4; ++i) row.v[i] = half(m, r, 2 * i) | half(m, r, 2 * i + 1) << 16;
      cta.store_shared(&s.quads[cta.lane()], row);
      cta.sync_warp();
      const U32x4 got = cta.load_matrix_x4(&s.quads[cta.lane()]);
      for (int j = 0; j < 4; ++j)
        EXPECT_EQ(got.v[j], half(j, cta.lane() / 4, 2 * (cta.lane() % 4)) |
                                half(j, cta.lane() / 4, 2 * (cta.lane() % 4) + 1) << 16);
    });
  EXPECT_EQ(faults_in_seeds(FaultKind::race, 5,
                            [](std::uint64_t seed) {
                              run_shared(32, seed, [](SimCta cta, Storage& s) {
                                cta.store_shared(&s.quads[cta.lane()], U32x4{});
                                cta.sync_warp();
                                cta.load_matrix_x4(&s.quads[cta.lane()]);
                                if (cta.lane() == 0) cta.store_shared(&s.quads[9], U32x4{});
                              });
                            }),
            5);
  expect_fault(FaultKind::misaligned, [] {
    run_shared(32, 0, [](SimCta cta, Storage& s) {
      cta.store_shared(&s.quads[cta.lane()], U32x4{});
      cta.sync_warp();
      cta.load_matrix_x4(reinterpret_cast<const std::byte*>(&s.quads[cta.lane()]) + 4);
    });
  });
}

TEST(SharedMemory, StorageMustFitTheLaunchAndTheChip) {
  Device device({.memory_bytes = 1 << 20});
  const Fault small = expect_fault(FaultKind::shared_limit, [&] {
    launch(device, config_of(32, 64), [](SimCta cta) { cta.shared<Storage>(); });
  });
  EXPECT_TRUE(mentions(small, "2,048") && mentions(small, "64"));
  const Fault large =
      expect_fault(FaultKind::shared_limit, [&] { launch(device, config_of(32, 102400), [](SimCta) {}); });
  EXPECT_TRUE(mentions(large, "102,400") && mentions(large, "101,376"));
}

// A granule that everybody reads, with other words in each phase; the last read of one thread is not ordered
// before the write, whichever thread it is.
TEST(SharedMemory, AmongReadersOfManyPhasesTheUnorderedOneIsFound) {
  const auto action = [](int late, bool synced) {
    run_shared(96, 1, [=](SimCta cta, Storage& s) {
      if (cta.thread() < 4) cta.store_shared(&s.words[cta.thread()], 1u);
      cta.sync_block();
      for (int phase = 0; phase < 5; ++phase) {
        for (int again = 0; again < 2; ++again) cta.load_shared(&s.words[(phase + again) % 4]);
        cta.sync_block();
      }
      if (cta.thread() == late) cta.load_shared(&s.words[2]);
      if (synced) cta.sync_block();
      if (cta.thread() == 3) cta.store_shared(&s.words[2], 2u);
    });
  };
  for (const int late : {0, 31, 32, 70, 95}) {
    EXPECT_NO_THROW(action(late, true));
    expect_fault(FaultKind::race, [&] { action(late, false); });
  }
}

}  // namespace
}  // namespace fourfold::sim
