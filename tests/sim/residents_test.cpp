// Blocks that wait for each other, in one grid and in two: only those that can be there at the same time.
#include "sim/residents.h"

#include "support.h"

namespace fourfold::sim {
namespace {

class ResidentsTest : public testing::Test {
 protected:
  Device device{{.memory_bytes = 1 << 20}};
  std::uint32_t* flags = [this] {
    auto* const words = static_cast<std::uint32_t*>(device.peers().allocate(64 * 4, "flags"));
    device.peers().write_from_host(words, std::vector<std::uint32_t>(64).data(), 64 * 4);
    return words;
  }();

  static LaunchConfig on(const plan::ArchFacts& chip, int blocks, int shared_bytes, const char* name) {
    LaunchConfig config = config_of(32, shared_bytes);
    config.shared_limit_bytes = chip.smem_bytes_per_block;
    config.chip = &chip;
    config.sms = 2;
    config.blocks = blocks;
    config.name = name;
    return config;
  }
  // Every block waits for every other.
  void meet(LaunchConfig config) {
    launch(device, config, [this](SimCta cta) {
      if (cta.lane() != 0) return;
      cta.store_release_system(flags + cta.block(), 1);
      for (int other = 0; other < cta.blocks(); ++other)
        while (cta.load_acquire_system(flags + other) == 0) cta.give_way();
    });
  }
  // The first kernel lets its successor start and waits for a flag that one sets before its own wait.
  void first(LaunchConfig config, bool releases = true) {
    launch(device, config, [=, this](SimCta cta) {
      if (releases) cta.release_successors();
      if (cta.lane() != 0) return;
      while (cta.load_acquire_system(flags + cta.block()) == 0) cta.give_way();
    });
  }
  void second(LaunchConfig config, bool sets_early = true) {
    config.pdl = true;
    launch(device, config, [=, this](SimCta cta) {
      if (!sets_early) cta.wait_predecessors();
      if (cta.lane() == 0) cta.store_release_system(flags + cta.block(), 1);
      cta.wait_predecessors();
    });
  }
};

constexpr int k97 = 97 * 1024;

TEST_F(ResidentsTest, ManyBlocksMeetWhereTheyFit) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    LaunchConfig fits = on(plan::kSm120, 2, k97, "meeting");
    fits.together = true;
    fits.seed = seed;
    meet(fits);
    LaunchConfig four = on(plan::kSm90, 4, k97, "meeting");
    four.together = true;
    four.seed = seed;
    meet(four);
  }
}

TEST_F(ResidentsTest, AMeetingOfMoreBlocksThanFitIsRefused) {
  LaunchConfig config = on(plan::kSm120, 3, k97, "meeting");
  config.together = true;
  const Fault fault = expect_fault(FaultKind::deadlock, [&] { meet(config); });
  EXPECT_TRUE(mentions(fault,
                       "deadlock in meeting: its 3 blocks wait for each other, but only 2 can be there "
                       "at once: 2 SMs of sm120 with 1 each"))
      << fault.what();
  EXPECT_TRUE(mentions(fault, "100,352 of 102,400 bytes")) << fault.what();
  LaunchConfig warps = on(plan::kSm120, 5, 0, "meeting");
  warps.together = true;
  warps.threads = 768;
  EXPECT_TRUE(mentions(expect_fault(FaultKind::deadlock, [&] { meet(warps); }), "24 of 48 warps"));
}

TEST_F(ResidentsTest, BlocksThatMeetMustSaySo) {
  const Fault fault =
      expect_fault(FaultKind::deadlock, [&] { meet(on(plan::kSm120, 3, 0, "quiet meeting")); });
  EXPECT_TRUE(mentions(fault, "grid 1 (quiet meeting), block 0:")) << fault.what();
  EXPECT_TRUE(mentions(fault, "warp 0 lanes 0: looks at flags + 4, at residents_test.cpp:")) << fault.what();
  EXPECT_TRUE(mentions(fault, "2 of 3 blocks cannot start: they run one after another")) << fault.what();
}

TEST_F(ResidentsTest, AKernelThatWaitsForItsSuccessorNeedsItBeside) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    device.set_seed(seed);
    device.peers().write_from_host(flags, std::vector<std::uint32_t>(64).data(), 64 * 4);
    first(on(plan::kSm90, 1, k97, "first"));
    second(on(plan::kSm90, 1, k97, "second"));
    device.synchronize();
  }
  device.set_seed(0);
  // On SM120 there is an SM for each of them; with as many blocks as SMs there is not.
  device.peers().write_from_host(flags, std::vector<std::uint32_t>(64).data(), 64 * 4);
  first(on(plan::kSm120, 1, k97, "first"));
  second(on(plan::kSm120, 1, k97, "second"));
  device.synchronize();
  device.peers().write_from_host(flags, std::vector<std::uint32_t>(64).data(), 64 * 4);
  LaunchConfig both = on(plan::kSm120, 2, k97, "first");
  both.together = true;
  first(both);
  const Fault fault = expect_fault(FaultKind::deadlock, [&] { second(on(plan::kSm120, 2, k97, "second")); });
  EXPECT_TRUE(mentions(fault, "(first), block 0:")) << fault.what();
  EXPECT_TRUE(mentions(fault, "looks at flags + 0, at residents_test.cpp:")) << fault.what();
  EXPECT_TRUE(mentions(fault,
                       "(second): 2 of 2 blocks cannot start: an SM of sm120 has 102,400 bytes of shared "
                       "memory and 48 warps; a block takes 100,352 and 1, and the blocks on SM 0 have "
                       "100,352 and 1"))
      << fault.what();
  // The device is usable again.
  device.peers().write_from_host(flags, std::vector<std::uint32_t>(64, 1).data(), 64 * 4);
  first(both);
}

TEST_F(ResidentsTest, BlocksThatFindRoomLetTheOthersFollow) {
  // One of three blocks fits beside the first kernel; the others take its place when it has ended.
  LaunchConfig waits = on(plan::kSm120, 1, k97, "first");
  first(waits);
  second(on(plan::kSm120, 3, k97, "second"));
  device.synchronize();
  EXPECT_EQ(flags[2], 1u);
}

TEST_F(ResidentsTest, ASuccessorThatCannotComeIsNamed) {
  // Not released: the next kernel may not start, and the deadlock is this one's.
  const Fault alone =
      expect_fault(FaultKind::deadlock, [&] { first(on(plan::kSm90, 1, 0, "first"), false); });
  EXPECT_TRUE(mentions(alone, "every block looks for something that nobody brings")) << alone.what();
  // The host waits instead of launching.
  first(on(plan::kSm90, 1, 0, "first"));
  const Fault host = expect_fault(FaultKind::deadlock, [&] { device.synchronize(); });
  EXPECT_TRUE(mentions(host, "(first), block 0:")) << host.what();
  // An ordinary launch behind it starts too late.
  first(on(plan::kSm90, 1, 0, "first"));
  const Fault ordinary = expect_fault(
      FaultKind::deadlock, [&] { launch(device, on(plan::kSm90, 1, 0, "ordinary"), [](SimCta) {}); });
  EXPECT_TRUE(mentions(ordinary, "ordinary, launched behind it, starts when it has ended"))
      << ordinary.what();
  // Each waits for the other.
  first(on(plan::kSm90, 1, 0, "first"));
  const Fault circle =
      expect_fault(FaultKind::deadlock, [&] { second(on(plan::kSm90, 1, 0, "second"), false); });
  EXPECT_TRUE(mentions(circle, "looks at its predecessors, which have not ended, at residents_test.cpp:"))
      << circle.what();
}

TEST_F(ResidentsTest, RacesBetweenTwoRunningKernelsAreFound) {
  auto* const x = counting_words(device, 32, "x");
  first(on(plan::kSm90, 1, 0, "first"));
  LaunchConfig config = on(plan::kSm90, 1, 0, "second");
  config.pdl = true;
  // The second kernel reads before its wait what the first one writes behind its meeting: found in either
  // order, here when the first one writes.
  device.peers().write_from_host(flags, std::vector<std::uint32_t>(64, 1).data(), 64 * 4);
  launch(device, config, [](SimCta cta) { cta.wait_predecessors(); });
  device.synchronize();
  device.peers().write_from_host(flags, std::vector<std::uint32_t>(64).data(), 64 * 4);
  launch(device, on(plan::kSm90, 1, 0, "writer"), [=, this](SimCta cta) {
    cta.release_successors();
    if (cta.lane() != 0) return;
    while (cta.load_acquire_system(flags) == 0) cta.give_way();
    cta.store(x, 1u);
  });
  const Fault fault = expect_fault(FaultKind::predecessor_race, [&] {
    launch(device, config, [=, this](SimCta cta) {
      if (cta.lane() == 0) {
        cta.load(x);
        cta.store_release_system(flags, 1);
      }
      cta.wait_predecessors();
    });
  });
  EXPECT_TRUE(mentions(fault, "in writer")) << fault.what();
}

}  // namespace
}  // namespace fourfold::sim
