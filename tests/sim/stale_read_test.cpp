// What an L1 may still hold behind the dependent-launch wait: each kernel with the fault and without it.
#include "support.h"

namespace fourfold::sim {
namespace {

LaunchConfig dependent(int blocks = 1, std::uint64_t seed = 0) {
  LaunchConfig config = config_of(32, 1024, seed);
  config.blocks = blocks;
  config.pdl = true;
  return config;
}

class StaleReadTest : public testing::Test {
 protected:
  Device device{{.memory_bytes = 1 << 20}};
  std::uint32_t* x = counting_words(device, 128, "x");  // four lines of 32 words

  // Word 1 of the first line changes; the next grid may start before that.
  void write_one(std::uint32_t value = 7) {
    launch(device, dependent(), [=, this](SimCta cta) {
      cta.wait_predecessors();
      cta.release_successors();
      if (cta.lane() == 0) cta.store(x + 1, value);
    });
  }
  template <class Early, class Late>
  void read_around_wait(Early early, Late late, int blocks = 1, std::uint64_t seed = 0) {
    write_one();
    launch(device, dependent(blocks, seed), [=](SimCta cta) {
      if (cta.lane() == 0) early(cta);
      cta.sync_warp();
      cta.wait_predecessors();
      if (cta.lane() == 0) late(cta);
    });
    device.synchronize();
  }
};

TEST_F(StaleReadTest, TheReadOnlyPathIsNotHeldBackByTheWait) {
  const Fault fault = expect_fault(FaultKind::stale_read, [&] {
    read_around_wait([](SimCta) {}, [this](SimCta cta) { cta.load_stream(x + 1); });
  });
  EXPECT_TRUE(mentions(fault, "load_stream of x + 4: written by grid 1 at stale_read_test.cpp:"))
      << fault.what();
  EXPECT_TRUE(mentions(fault, "which need not be complete when this one, grid 2, starts")) << fault.what();
  EXPECT_TRUE(mentions(fault, "read-only path is not held back by the wait")) << fault.what();
  // A plain load, and the neighbours that nobody writes.
  read_around_wait([](SimCta) {}, [this](SimCta cta) { EXPECT_EQ(cta.load(x + 1), 7u); });
  read_around_wait([](SimCta) {}, [this](SimCta cta) { EXPECT_EQ(cta.load_stream(x + 2), 2u); });
}

TEST_F(StaleReadTest, TheReadOnlyPathMayReadWhatWasCompleteAtTheStart) {
  const auto read = [&](bool pdl) {
    LaunchConfig config = dependent();
    config.pdl = pdl;
    launch(device, config, [this](SimCta cta) {
      cta.wait_predecessors();
      EXPECT_EQ(cta.load_stream(x + 1), 7u);
    });
  };
  // An ordinary launch starts behind everything; so does the first one after the host has waited.
  write_one();
  read(false);
  write_one();
  device.synchronize();
  read(true);
  // A grandparent whose child released behind its own wait.
  write_one();
  launch(device, dependent(), [](SimCta cta) {
    cta.wait_predecessors();
    cta.release_successors();
  });
  read(true);
  // The same child releasing before its wait.
  write_one();
  launch(device, dependent(), [](SimCta cta) {
    cta.release_successors();
    cta.wait_predecessors();
  });
  expect_fault(FaultKind::stale_read, [&] { read(true); });
}

TEST_F(StaleReadTest, ALineFetchedBeforeTheWaitMayStillBeInL1) {
  const auto late = [this](SimCta cta) { EXPECT_EQ(cta.load(x + 1), 7u); };
  int line = 0;
  const Fault fault = expect_fault(FaultKind::stale_read, [&] {
    line = __LINE__ + 1;
    read_around_wait([this](SimCta cta) { cta.load(x + 31); }, late);  // another word of the line
  });
  EXPECT_TRUE(mentions(fault, "load of x + 4: written by grid 1 at ")) << fault.what();
  EXPECT_TRUE(mentions(
      fault, "fetched the line before its wait, last at stale_read_test.cpp:" + std::to_string(line)))
      << fault.what();
  // By either path.
  expect_fault(FaultKind::stale_read,
               [&] { read_around_wait([this](SimCta cta) { cta.load_stream(x + 31); }, late); });
  // The next line, or the same one behind the wait.
  read_around_wait([this](SimCta cta) { cta.load(x + 32); }, late);
  read_around_wait([](SimCta) {},
                   [this, late](SimCta cta) {
                     cta.load(x + 31);
                     late(cta);
                   });
  // What the early fetch brought is right for words that nobody wrote meanwhile.
  read_around_wait([this](SimCta cta) { cta.load(x + 31); },
                   [this](SimCta cta) { EXPECT_EQ(cta.load(x + 30), 30u); });
}

TEST_F(StaleReadTest, AnotherBlockOfTheGridMayHaveFetchedIt) {
  // Blocks of a grid share an SM at the same time, or one after the other.
  const int found = faults_in_seeds(FaultKind::stale_read, 8, [&](std::uint64_t seed) {
    read_around_wait(
        [this](SimCta cta) {
          if (cta.block() == 0) cta.load(x + 31);
        },
        [this](SimCta cta) {
          if (cta.block() == 1) cta.load(x + 1);
        },
        2, seed);
  });
  EXPECT_GT(found, 0);  // where block 0 comes first
}

TEST_F(StaleReadTest, CopiesGoAroundL1) {
  struct Storage {
    alignas(16) std::uint32_t words[8];
    Mbarrier full;
  };
  const auto read = [&](bool early_copy) {
    write_one();
    launch(device, dependent(), [=, this](SimCta cta) {
      auto& storage = cta.shared<Storage>();
      if (cta.lane() != 0) return;
      if (early_copy) {
        cta.copy_16_async(storage.words, x + 4);
        cta.copy_commit();
        cta.copy_wait<0>();
      } else {
        cta.load(x + 4);
      }
      cta.wait_predecessors();
      if (early_copy) {
        EXPECT_EQ(cta.load(x + 1), 7u);  // nothing is in L1
      } else {
        cta.init(&storage.full, 1);
        cta.fence_barrier_init();
        cta.arrive_expect(&storage.full, 16);
        cta.bulk_load(storage.words, x, 16, &storage.full);
        cta.wait(&storage.full, 0);
        EXPECT_EQ(cta.load_shared(storage.words + 1), 7u);  // what is there is not asked
      }
    });
    device.synchronize();
  };
  read(true);
  read(false);
}

}  // namespace
}  // namespace fourfold::sim
