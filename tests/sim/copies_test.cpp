#include "sim/copies.h"

#include <algorithm>
#include <numeric>

#include "support.h"

namespace fourfold::sim {
namespace {

constexpr int kStages = 3;
constexpr int kStageWords = 512;

struct Pipeline {
  alignas(128) std::uint32_t stage[kStages][kStageWords];
  Mbarrier full[kStages], empty[kStages];
};

// What a test may leave out of the pipeline below.
struct Damage {
  bool no_sync_warp = false;   // before lane 0 of a consumer warp gives the stage back
  bool no_empty_wait = false;  // the producer does not wait for the stage
  bool no_full_wait = false;   // the consumers do not wait for the data
  int forget_bytes = 0;        // fewer bytes expected than copied
};

// One producer warp, `consumers` warps that sum up `tiles` tiles; every seed must give the same sums.
void run_pipeline(Device& device, const std::uint32_t* input, std::uint32_t* sums, int tiles, int consumers,
                  std::uint64_t seed, const Damage& damage = {}) {
  launch(device, config_of(32 * (consumers + 1), sizeof(Pipeline), seed), [&](SimCta cta) {
    auto& s = cta.shared<Pipeline>();
    if (cta.thread() == 0) {
      for (int i = 0; i < kStages; ++i) {
        cta.init(&s.full[i], 1);
        cta.init(&s.empty[i], consumers);
      }
      cta.fence_barrier_init();
    }
    cta.sync_block();
    device::PipelineCursor<kStages> cursor;
    if (cta.warp() == consumers) {
      for (int tile = 0; tile < tiles; ++tile, cursor.advance()) {
        if (cta.lane() == 0) {
          // A fresh barrier reports the phase before as complete: the first lap never blocks.
          if (!damage.no_empty_wait) cta.wait(&s.empty[cursor.stage], cursor.phase ^ 1u);
          cta.arrive_expect(&s.full[cursor.stage], kStageWords * 4 - damage.forget_bytes);
          cta.bulk_load(s.stage[cursor.stage], input + tile * kStageWords, kStageWords * 4,
                        &s.full[cursor.stage]);
        }
      }
      return;
    }
    std::uint32_t sum = 0;
    for (int tile = 0; tile < tiles; ++tile, cursor.advance()) {
      if (!damage.no_full_wait) cta.wait(&s.full[cursor.stage], cursor.phase);
      const auto* const quads = reinterpret_cast<const U32x4*>(s.stage[cursor.stage]);
      for (int i = cta.lane(); i < kStageWords / 4; i += 32) {
        const U32x4 quad = cta.load_shared(quads + i);
        sum += quad.v[0] + quad.v[1] + quad.v[2] + quad.v[3];
      }
      if (!damage.no_sync_warp) cta.sync_warp();
      if (cta.lane() == 0) cta.arrive(&s.empty[cursor.stage]);
    }
    cta.store(sums + cta.thread(), sum);
  });
}

class PipelineTest : public testing::Test {
 protected:
  static constexpr int kTiles = 8, kConsumers = 3;
  Device device{{.memory_bytes = 1 << 22}};
  std::uint32_t* input = counting_words(device, kTiles* kStageWords, "input");
  std::uint32_t* sums = device.allocate_array<std::uint32_t>(32 * kConsumers, "sums");

  int damaged(const Damage& damage, int seeds, std::vector<FaultKind> kinds) {
    int found = 0;
    for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(seeds); ++seed) {
      try {
        run_pipeline(device, input, sums, kTiles, kConsumers, seed, damage);
      } catch (const Fault& fault) {
        ++found;
        EXPECT_NE(std::find(kinds.begin(), kinds.end(), fault.kind()), kinds.end()) << fault.what();
      }
    }
    return found;
  }
};

TEST_F(PipelineTest, GivesTheSameSumsInEverySeed) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    device.forget(sums, 4 * 32 * kConsumers);
    run_pipeline(device, input, sums, kTiles, kConsumers, seed);
    std::vector<std::uint32_t> got(32 * kConsumers);
    device.read_to_host(got.data(), sums, got.size() * 4);
    for (int warp = 0; warp < kConsumers; ++warp) {
      const auto total = std::accumulate(got.begin() + 32 * warp, got.begin() + 32 * (warp + 1), 0u);
      constexpr std::uint32_t kWords = kTiles * kStageWords;
      EXPECT_EQ(total, kWords * (kWords - 1) / 2) << "seed " << seed;
    }
  }
}

TEST_F(PipelineTest, AMissingSyncWarpBeforeTheArriveIsFoundInEverySeed) {
  EXPECT_EQ(damaged({.no_sync_warp = true}, 20, {FaultKind::race, FaultKind::barrier_overrun}), 20);
}

TEST_F(PipelineTest, MissingWaitsAreFoundInEverySeed) {
  EXPECT_EQ(damaged({.no_empty_wait = true}, 20,
                    {FaultKind::race, FaultKind::barrier_overrun, FaultKind::barrier_misuse}),
            20);
  EXPECT_EQ(damaged({.no_full_wait = true}, 20,
                    {FaultKind::race, FaultKind::unwritten_read, FaultKind::barrier_overrun}),
            20);
}

TEST_F(PipelineTest, WrongByteCountsAreFoundInEverySeed) {
  EXPECT_EQ(damaged({.forget_bytes = 16}, 20, {FaultKind::deadlock, FaultKind::barrier_misuse}), 20);
  EXPECT_EQ(damaged({.forget_bytes = -16}, 20, {FaultKind::deadlock}), 20);
  EXPECT_EQ(damaged({.forget_bytes = kStageWords * 4}, 20, {FaultKind::race, FaultKind::barrier_misuse}), 20);
}

struct Storage {
  U32x4 quads[256];
  Mbarrier barrier;
};

// Runs `body` in one warp with an initialised barrier.
template <class F>
void run_copy(Device& device, std::uint64_t seed, F body) {
  launch(device, config_of(32, sizeof(Storage), seed), [&](SimCta cta) {
    auto& s = cta.shared<Storage>();
    if (cta.lane() == 0) {
      cta.init(&s.barrier, 1);
      cta.fence_barrier_init();
    }
    cta.sync_warp();
    body(cta, s);
  });
}

TEST(BulkCopy, ChecksSizesAddressesAndSources) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 256, "words");
  auto* const fresh = device.allocate_array<std::uint32_t>(256, "fresh");
  const auto copy = [&](FaultKind kind, int bytes, int to_offset, const void* from) {
    return expect_fault(kind, [&] {
      run_copy(device, 0, [&](SimCta cta, Storage& s) {
        if (cta.lane() == 0)
          cta.bulk_load(reinterpret_cast<std::byte*>(s.quads) + to_offset, from, bytes, &s.barrier);
      });
    });
  };
  copy(FaultKind::misaligned, 24, 0, words);
  copy(FaultKind::misaligned, 0, 0, words);
  copy(FaultKind::misaligned, 16, 8, words);
  copy(FaultKind::misaligned, 16, 0, words + 1);
  copy(FaultKind::out_of_bounds, 1040, 0, words);
  copy(FaultKind::out_of_bounds, 32, 256 * 16, words);
  copy(FaultKind::barrier_misuse, 16, 256 * 16, words);  // over the barrier itself
  copy(FaultKind::unwritten_read, 64, 0, fresh);
  const Fault left = copy(FaultKind::leftover_copy, 64, 0, words);
  EXPECT_EQ(left.place().file, "copies_test.cpp");
}

TEST(BulkCopy, ExpectedBytesThatNeverComeAreLeftOver) {
  Device device({.memory_bytes = 1 << 20});
  const Fault fault = expect_fault(FaultKind::leftover_copy, [&] {
    run_copy(device, 0, [&](SimCta cta, Storage& s) {
      if (cta.lane() == 0) cta.arrive_expect(&s.barrier, 48);
    });
  });
  EXPECT_TRUE(mentions(fault, "48 bytes outstanding")) << fault.what();
}

TEST(BulkCopy, NeedsAFencedBarrier) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 256, "words");
  expect_fault(FaultKind::barrier_misuse, [&] {
    launch(device, config_of(32, sizeof(Storage)), [&](SimCta cta) {
      auto& s = cta.shared<Storage>();
      if (cta.lane() != 0) return;
      cta.init(&s.barrier, 1);
      cta.bulk_load(s.quads, words, 16, &s.barrier);
    });
  });
}

TEST(BulkCopy, BelongsToTheEngineUntilThePhaseIsObserved) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 256, "words");
  const auto touch = [&](std::uint64_t seed, auto body) {
    run_copy(device, seed, [&](SimCta cta, Storage& s) {
      if (cta.lane() == 0) {
        cta.arrive_expect(&s.barrier, 1024);
        cta.bulk_load(s.quads, words, 1024, &s.barrier);
        body(cta, s);
      }
      cta.sync_warp();
      cta.wait(&s.barrier, 0);
      EXPECT_EQ(cta.load_shared(&s.quads[cta.lane()]).v[0], static_cast<std::uint32_t>(4 * cta.lane()));
    });
  };
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    touch(seed, [](SimCta, Storage&) {});
    const Fault read = expect_fault(
        FaultKind::race, [&] { touch(seed, [](SimCta cta, Storage& s) { cta.load_shared(&s.quads[9]); }); });
    EXPECT_TRUE(mentions(read, "a bulk copy issued at copies_test.cpp")) << read.what();
    expect_fault(FaultKind::race, [&] {
      touch(seed, [](SimCta cta, Storage& s) { cta.store_shared(&s.quads[9], U32x4{}); });
    });
    expect_fault(FaultKind::race, [&] {
      touch(seed, [&](SimCta cta, Storage& s) { cta.bulk_load(&s.quads[9], words, 16, &s.barrier); });
    });
  }
}

TEST(BulkCopy, MayNotOverwriteWhatIsStillRead) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 256, "words");
  const auto overwrite = [&](std::uint64_t seed, bool ordered, bool fenced) {
    run_copy(device, seed, [&](SimCta cta, Storage& s) {
      if (cta.lane() == 5) cta.store_shared(&s.quads[3], U32x4{{7, 7, 7, 7}});
      if (fenced) cta.fence_async_proxy();
      if (ordered) cta.sync_warp();
      if (cta.lane() == 0) {
        cta.arrive_expect(&s.barrier, 1024);
        cta.bulk_load(s.quads, words, 1024, &s.barrier);
      }
      cta.wait(&s.barrier, 0);
    });
  };
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    overwrite(seed, true, true);
    expect_fault(FaultKind::race, [&] { overwrite(seed, false, true); });
    // Ordered, but the ordinary write may still be on its way when the engine writes.
    expect_fault(FaultKind::proxy_race, [&] { overwrite(seed, true, false); });
  }
}

// The refill of a ring by the warp that reads it: a warp barrier alone does not make the loads complete.
TEST(BulkCopy, MayNotOvertakeALoadThatIsStillOnItsWay) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 256, "words");
  enum class Between { nothing, fence_of_lane_0, fence_of_all };
  const auto refill = [&](std::uint64_t seed, Between between) {
    run_copy(device, seed, [&](SimCta cta, Storage& s) {
      const auto fill = [&] {
        if (cta.lane() != 0) return;
        cta.arrive_expect(&s.barrier, 1024);
        cta.bulk_load(s.quads, words, 1024, &s.barrier);
      };
      fill();
      cta.wait(&s.barrier, 0);
      cta.load_shared(&s.quads[cta.lane()]);
      if (between == Between::fence_of_all || (between == Between::fence_of_lane_0 && cta.lane() == 0))
        cta.fence_async_proxy();
      cta.sync_warp();
      fill();
      cta.wait(&s.barrier, 1);
    });
  };
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    refill(seed, Between::fence_of_all);
    const Fault fault = expect_fault(FaultKind::late_read, [&] { refill(seed, Between::nothing); });
    EXPECT_TRUE(mentions(fault, "fence_async_proxy")) << fault.what();
    // The fence of the lane that copies says nothing about the loads of the others.
    expect_fault(FaultKind::late_read, [&] { refill(seed, Between::fence_of_lane_0); });
  }
}

// One lane arrives for its warp, behind a warp barrier: whoever waits for that may overwrite what was read.
TEST(BulkCopy, AnArriveStandsBehindTheLoadsOfItsWarp) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 256, "words");
  struct Ring {
    U32x4 quads[64];
    Mbarrier full, empty;
  };
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    launch(device, config_of(64, sizeof(Ring), seed), [&](SimCta cta) {
      auto& ring = cta.shared<Ring>();
      if (cta.thread() == 0) {
        cta.init(&ring.full, 1);
        cta.init(&ring.empty, 1);
        cta.fence_barrier_init();
      }
      cta.sync_block();
      const int warp = cta.warp();
      for (std::uint32_t lap = 0; lap < 3; ++lap) {
        if (warp == 0 && cta.lane() == 0) {
          cta.wait(&ring.empty, (lap & 1u) ^ 1u);
          cta.arrive_expect(&ring.full, 1024);
          cta.bulk_load(ring.quads, words, 1024, &ring.full);
        } else if (warp == 1) {
          cta.wait(&ring.full, lap & 1u);
          cta.load_shared(&ring.quads[cta.lane()]);
          cta.sync_warp();
          if (cta.lane() == 0) cta.arrive(&ring.empty);
        }
      }
    });
}

// A warp refills one buffer while it reads the other. That the second one's copy has been waited for says
// nothing about loads from the first: the lane that announced the bytes did not read for the others.
TEST(BulkCopy, AnnouncingBytesSettlesNoLoadsOfOthers) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 256, "words");
  const auto refill = [&](std::uint64_t seed, bool fenced) {
    run_copy(device, seed, [&](SimCta cta, Storage& s) {
      const auto fill = [&](int half) {
        if (cta.lane() != 0) return;
        cta.arrive_expect(&s.barrier, 512);
        cta.bulk_load(s.quads + 32 * half, words, 512, &s.barrier);
      };
      fill(0);
      cta.wait(&s.barrier, 0);
      cta.load_shared(&s.quads[cta.lane()]);
      if (fenced) cta.fence_async_proxy();
      cta.sync_warp();
      fill(1);
      cta.wait(&s.barrier, 1);
      fill(0);
      cta.wait(&s.barrier, 0);
    });
  };
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    refill(seed, true);
    expect_fault(FaultKind::late_read, [&] { refill(seed, false); });
  }
}

TEST(BulkCopy, ReadsGlobalDataOfItsOwnBlockOnlyBehindAFence) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 256, "words");
  const auto copy = [&](bool fenced) {
    run_copy(device, 3, [&](SimCta cta, Storage& s) {
      if (cta.lane() != 0) return;
      cta.store(words + 3, 77u);
      if (fenced) cta.fence_async_proxy();
      cta.arrive_expect(&s.barrier, 16);
      cta.bulk_load(s.quads, words, 16, &s.barrier);
      cta.wait(&s.barrier, 0);
      EXPECT_EQ(cta.load_shared(&s.quads[0]).v[3], 77u);
    });
  };
  copy(true);
  expect_fault(FaultKind::proxy_race, [&] { copy(false); });
}

TEST(AsyncCopy, GroupsLandWhenWaitedFor) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 1024, "words");
  const auto* const quads = reinterpret_cast<const U32x4*>(words);
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    run_copy(device, seed, [&](SimCta cta, Storage& s) {
      for (int group = 0; group < 3; ++group) {
        cta.copy_16_async(&s.quads[32 * group + cta.lane()], quads + 32 * group + cta.lane());
        cta.copy_commit();
      }
      cta.copy_wait<1>();
      // Groups 0 and 1 are there for the thread that copied them, for others after a sync.
      EXPECT_EQ(cta.load_shared(&s.quads[32 + cta.lane()]).v[1],
                static_cast<std::uint32_t>(4 * (32 + cta.lane()) + 1));
      cta.sync_warp();
      EXPECT_EQ(cta.load_shared(&s.quads[31 - cta.lane()]).v[0],
                static_cast<std::uint32_t>(4 * (31 - cta.lane())));
      cta.copy_wait<0>();
      EXPECT_EQ(cta.load_shared(&s.quads[64 + cta.lane()]).v[2],
                static_cast<std::uint32_t>(4 * (64 + cta.lane()) + 2));
    });
}

TEST(AsyncCopy, EarlyAndUnorderedReadsAreRaces) {
  Device device({.memory_bytes = 1 << 20});
  const auto* const quads = reinterpret_cast<const U32x4*>(counting_words(device, 1024, "words"));
  const auto body = [&](std::uint64_t seed, bool commit, bool wait, bool sync, int neighbour) {
    run_copy(device, seed, [&](SimCta cta, Storage& s) {
      cta.copy_16_async(&s.quads[cta.lane()], quads + cta.lane());
      if (commit) cta.copy_commit();
      if (wait) cta.copy_wait<0>();
      if (sync) cta.sync_warp();
      cta.load_shared(&s.quads[(cta.lane() + neighbour) % 32]);
    });
  };
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    body(seed, true, true, true, 1);
    body(seed, true, true, false, 0);
    const Fault unordered =
        fault_of([&] { body(seed, true, true, false, 1); });  // the neighbour may be later, too
    EXPECT_TRUE(unordered.kind() == FaultKind::race || unordered.kind() == FaultKind::unwritten_read);
    expect_fault(FaultKind::race, [&] { body(seed, true, false, true, 1); });
    expect_fault(FaultKind::race, [&] { body(seed, true, false, true, 0); });
    expect_fault(FaultKind::race,
                 [&] { body(seed, false, true, true, 0); });  // an uncommitted copy is in no group
  }
}

// Four lanes fill 16 bytes, a word each: theirs alone is in flight.
TEST(AsyncCopy, OfAWordOwnsThatWord) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 1024, "words");
  const auto body = [&](std::uint64_t seed, bool wait, int read) {
    run_copy(device, seed, [&](SimCta cta, Storage& s) {
      auto* const to = reinterpret_cast<std::uint32_t*>(s.quads);
      if (cta.lane() % 4 != 3)
        cta.copy_4_async(to + cta.lane(), words + 64 + cta.lane());
      else
        cta.store_shared(to + cta.lane(), std::uint32_t{7});  // beside words in flight
      cta.copy_commit();
      if (wait) cta.copy_wait<0>();
      const int word = cta.lane() + read;
      if (cta.lane() % 4 == 0) {
        EXPECT_EQ(cta.load_shared(to + word), static_cast<std::uint32_t>(64 + word));
      }
      cta.copy_wait<0>();
    });
  };
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    body(seed, true, 0);
    expect_fault(FaultKind::race, [&] { body(seed, false, 0); });
    const Fault of_a_neighbour = fault_of([&] { body(seed, true, 1); });
    EXPECT_TRUE(of_a_neighbour.kind() == FaultKind::race ||
                of_a_neighbour.kind() == FaultKind::unwritten_read);
  }
  expect_fault(FaultKind::misaligned, [&] {
    run_copy(device, 0,
             [&](SimCta cta, Storage& s) { cta.copy_4_async(reinterpret_cast<char*>(s.quads) + 2, words); });
  });
}

TEST(AsyncCopy, SyncBeforeTheWaitDoesNotCount) {
  Device device({.memory_bytes = 1 << 20});
  const auto* const quads = reinterpret_cast<const U32x4*>(counting_words(device, 1024, "words"));
  EXPECT_EQ(faults_in_seeds(FaultKind::race, 10,
                            [&](std::uint64_t seed) {
                              run_copy(device, seed, [&](SimCta cta, Storage& s) {
                                cta.copy_16_async(&s.quads[cta.lane()], quads + cta.lane());
                                cta.copy_commit();
                                cta.sync_warp();
                                cta.copy_wait<0>();
                                cta.ballot(true);
                                cta.load_shared(&s.quads[31 - cta.lane()]);
                              });
                            }),
            10);
}

TEST(AsyncCopy, LeftoversAndFormAreChecked) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 1024, "words");
  expect_fault(FaultKind::leftover_copy, [&] {
    run_copy(device, 0, [&](SimCta cta, Storage& s) {
      cta.copy_16_async(&s.quads[cta.lane()], reinterpret_cast<const U32x4*>(words) + cta.lane());
      cta.copy_commit();
    });
  });
  expect_fault(FaultKind::misaligned, [&] {
    run_copy(device, 0, [&](SimCta cta, Storage& s) { cta.copy_16_async(&s.quads[0], words + 1); });
  });
  expect_fault(FaultKind::misaligned, [&] {
    run_copy(device, 0, [&](SimCta cta, Storage& s) { cta.copy_16_async(&s.quads[0].v[1], words); });
  });
}

// Warp 1 copies a quad a lane and lets the copies arrive on the barrier; warp 0 waits there and reads the
// quads of other lanes.
struct Announced {
  bool waits = true;
  int arrivals = 32;
  bool late_copy = false;  // one more copy after the arrival was asked for
};
void run_announced(Device& device, const U32x4* quads, std::uint64_t seed, Announced how = {}) {
  launch(device, config_of(64, sizeof(Storage), seed), [&](SimCta cta) {
    auto& s = cta.shared<Storage>();
    if (cta.thread() == 0) {
      cta.init(&s.barrier, how.arrivals);
      cta.fence_barrier_init();
    }
    cta.sync_block();
    const int lane = cta.lane();
    if (cta.warp() == 1) {
      cta.copy_16_async(&s.quads[lane], quads + lane);
      cta.copy_16_async(&s.quads[32 + lane], quads + 32 + lane);
      cta.copy_arrive(&s.barrier);
      if (how.late_copy) {
        cta.copy_16_async(&s.quads[64 + lane], quads + 64 + lane);
        cta.copy_commit();
        cta.copy_wait<0>();
      }
      return;
    }
    if (how.waits) cta.wait(&s.barrier, 0);
    EXPECT_EQ(cta.load_shared(&s.quads[31 - lane]).v[1], static_cast<std::uint32_t>(4 * (31 - lane) + 1));
    EXPECT_EQ(cta.load_shared(&s.quads[63 - lane]).v[2], static_cast<std::uint32_t>(4 * (63 - lane) + 2));
    if (how.late_copy) cta.load_shared(&s.quads[64 + lane]);
  });
}

class CopyArrive : public testing::Test {
 protected:
  static bool unordered(const Fault& fault) {
    return fault.kind() == FaultKind::race || fault.kind() == FaultKind::unwritten_read;
  }
  Device device{{.memory_bytes = 1 << 20}};
  const U32x4* quads = reinterpret_cast<const U32x4*>(counting_words(device, 1024, "words"));
};

TEST_F(CopyArrive, OrdersTheCopiesBeforeWhoWaitsForThePhase) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) run_announced(device, quads, seed);
}

TEST_F(CopyArrive, WithoutTheWaitReadsAreRaces) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Fault fault = fault_of([&] { run_announced(device, quads, seed, {.waits = false}); });
    EXPECT_TRUE(unordered(fault)) << fault.what();
  }
}

TEST_F(CopyArrive, CoversOnlyTheCopiesBeforeIt) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Fault fault = fault_of([&] { run_announced(device, quads, seed, {.late_copy = true}); });
    EXPECT_TRUE(unordered(fault)) << fault.what();
  }
}

TEST_F(CopyArrive, TheCopyingThreadMustWaitToo) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto run = [&](bool waits) {
      run_copy(device, seed, [&](SimCta cta, Storage& s) {
        if (cta.lane() != 0) return;
        cta.copy_16_async(&s.quads[0], quads + 5);
        cta.copy_arrive(&s.barrier);
        if (waits) cta.wait(&s.barrier, 0);
        EXPECT_EQ(cta.load_shared(&s.quads[0]).v[0], 20u);
      });
    };
    run(true);
    expect_fault(FaultKind::race, [&] { run(false); });
  }
}

TEST_F(CopyArrive, DoesNotBlockAndServesManyPhases) {
  // A ring of two quads a lane, refilled five times: the copies of one lap are in flight while the next is
  // prepared.
  struct Ring {
    U32x4 quad[2][32];
    Mbarrier full[2], empty[2];
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    launch(device, config_of(64, sizeof(Ring), seed), [&](SimCta cta) {
      auto& s = cta.shared<Ring>();
      if (cta.thread() == 0) {
        for (int i = 0; i < 2; ++i) {
          cta.init(&s.full[i], 32);
          cta.init(&s.empty[i], 32);
        }
        cta.fence_barrier_init();
      }
      cta.sync_block();
      device::PipelineCursor<2> cursor;
      for (int lap = 0; lap < 5; ++lap, cursor.advance()) {
        if (cta.warp() == 1) {
          cta.wait(&s.empty[cursor.stage], cursor.phase ^ 1u);
          cta.copy_16_async(&s.quad[cursor.stage][cta.lane()], quads + 32 * lap + cta.lane());
          cta.copy_arrive(&s.full[cursor.stage]);
        } else {
          cta.wait(&s.full[cursor.stage], cursor.phase);
          EXPECT_EQ(cta.load_shared(&s.quad[cursor.stage][cta.lane() ^ 7]).v[0],
                    static_cast<std::uint32_t>(4 * (32 * lap + (cta.lane() ^ 7))));
          cta.arrive(&s.empty[cursor.stage]);
        }
      }
    });
}

TEST_F(CopyArrive, WithoutCopiesItIsAnArrival) {
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    run_copy(device, seed, [&](SimCta cta, Storage& s) {
      if (cta.lane() == 3) cta.copy_arrive(&s.barrier);
      cta.wait(&s.barrier, 0);
    });
}

TEST_F(CopyArrive, CopiesStayOrdinaryWrites) {
  // A bulk copy may overwrite them only behind a proxy fence of who waited.
  const auto overwrite = [&](std::uint64_t seed, bool fenced) {
    struct Two {
      U32x4 quads[32];
      Mbarrier copied, loaded;
    };
    launch(device, config_of(32, sizeof(Two), seed), [&](SimCta cta) {
      auto& s = cta.shared<Two>();
      if (cta.lane() == 0) {
        cta.init(&s.copied, 32);
        cta.init(&s.loaded, 1);
        cta.fence_barrier_init();
      }
      cta.sync_warp();
      cta.copy_16_async(&s.quads[cta.lane()], quads + cta.lane());
      cta.copy_arrive(&s.copied);
      cta.wait(&s.copied, 0);
      if (fenced) cta.fence_async_proxy();
      if (cta.lane() == 0) {
        cta.arrive_expect(&s.loaded, 512);
        cta.bulk_load(s.quads, quads + 32, 512, &s.loaded);
      }
      cta.wait(&s.loaded, 0);
      EXPECT_EQ(cta.load_shared(&s.quads[cta.lane()]).v[0],
                static_cast<std::uint32_t>(4 * (32 + cta.lane())));
    });
  };
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    overwrite(seed, true);
    expect_fault(FaultKind::proxy_race, [&] { overwrite(seed, false); });
  }
}

TEST_F(CopyArrive, MisuseIsNamed) {
  expect_fault(FaultKind::barrier_misuse, [&] {
    launch(device, config_of(32, sizeof(Storage)), [&](SimCta cta) {
      cta.copy_arrive(&cta.shared<Storage>().barrier);  // never initialised
    });
  });
  // More arrivals than the barrier was made for, in one phase: the bytes expected keep it open.
  const Fault overrun = expect_fault(FaultKind::barrier_overrun, [&] {
    run_copy(device, 0, [&](SimCta cta, Storage& s) {
      if (cta.lane() != 0) return;
      cta.arrive_expect(&s.barrier, 16);
      cta.copy_16_async(&s.quads[0], quads);
      cta.copy_arrive(&s.barrier);
      cta.wait(&s.barrier, 0);
    });
  });
  EXPECT_TRUE(mentions(overrun, "copies of warp 0 lane 0 completed")) << overrun.what();
  // One arrival too few is a wait without end.
  expect_fault(FaultKind::deadlock, [&] { run_announced(device, quads, 0, {.arrivals = 33}); });
  // Nobody waits: the copies would land in the shared memory of another block.
  expect_fault(FaultKind::leftover_copy, [&] {
    run_copy(device, 0, [&](SimCta cta, Storage& s) {
      if (cta.lane() != 0) return;
      cta.copy_16_async(&s.quads[0], quads);
      cta.copy_arrive(&s.barrier);
    });
  });
}

TEST_F(CopyArrive, CanBeRemoved) {
  run_announced(device, quads, 0);
  for (const SyncSite& site : device.executed_sites())
    for (const Mutation& mutation : mutations_of(site)) {
      device.install(mutation);
      for (std::uint64_t seed = 0; seed < 10; ++seed) fault_of([&] { run_announced(device, quads, seed); });
    }
  device.clear_mutation();
  const auto& sites = device.executed_sites();
  const auto is_copy_arrive = [](const SyncSite& site) { return site.op == SyncOp::copy_arrive; };
  EXPECT_EQ(std::count_if(sites.begin(), sites.end(), is_copy_arrive), 1);
  run_announced(device, quads, 1);
}

}  // namespace
}  // namespace fourfold::sim
