#include "sim/global_memory.h"

#include "base/error.h"
#include "support.h"

namespace fourfold::sim {
namespace {

TEST(GlobalMemory, LoadsAndStoresEverySize) {
  Device device({.memory_bytes = 1 << 20});
  auto* const in = counting_words(device, 64, "in");
  auto* const out = device.allocate_array<std::uint32_t>(64, "out");
  launch(device, config_of(32), [&](SimCta cta) {
    const int i = cta.thread();
    if (i < 16)
      cta.store(reinterpret_cast<U32x4*>(out) + i, cta.load(reinterpret_cast<const U32x4*>(in) + i));
    cta.sync_block();
    if (i == 0) {
      cta.store(reinterpret_cast<std::uint8_t*>(out) + 1, std::uint8_t{0xAB});
      cta.store(reinterpret_cast<std::uint16_t*>(out) + 3, std::uint16_t{0xCDEF});
      cta.store(out + 2, cta.load_stream(in + 63));
      EXPECT_EQ(cta.load(reinterpret_cast<const std::uint16_t*>(in) + 14), 7u);
      const auto pair = cta.load(reinterpret_cast<const device::U32x2*>(in) + 2);
      cta.store(reinterpret_cast<device::U32x2*>(out) + 2, device::U32x2{{pair.v[1], pair.v[0]}});
    }
  });
  std::uint32_t got[64];
  device.read_to_host(got, out, sizeof got);
  EXPECT_EQ(got[0], 0xAB00u);
  EXPECT_EQ(got[1], 0xCDEF0001u);
  EXPECT_EQ(got[2], 63u);
  EXPECT_EQ(got[4], 5u);
  EXPECT_EQ(got[5], 4u);
  EXPECT_EQ(got[63], 63u);
}

TEST(GlobalMemory, ChecksBoundsAlignmentAndUnwrittenBytes) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 10, "words");
  const Fault past = expect_fault(FaultKind::out_of_bounds, [&] {
    launch(device, config_of(32), [&](SimCta cta) { cta.load(words + 10 + cta.lane()); });
  });
  EXPECT_TRUE(mentions(past, "words + 40 (0 bytes past its end)")) << past.what();
  // The last 16 bytes hold only 8 of the allocation.
  expect_fault(FaultKind::out_of_bounds, [&] {
    launch(device, config_of(32), [&](SimCta cta) { cta.load(reinterpret_cast<const U32x4*>(words + 8)); });
  });
  expect_fault(FaultKind::misaligned, [&] {
    launch(device, config_of(32), [&](SimCta cta) {
      cta.load(reinterpret_cast<const U32x4*>(reinterpret_cast<std::uintptr_t>(words + 1)));
    });
  });
  int on_host = 0;
  expect_fault(FaultKind::out_of_bounds,
               [&] { launch(device, config_of(32), [&](SimCta cta) { cta.load(&on_host); }); });
  auto* const fresh = device.allocate_array<std::uint32_t>(4, "fresh");
  expect_fault(FaultKind::unwritten_read,
               [&] { launch(device, config_of(32), [&](SimCta cta) { cta.load(fresh); }); });
  // One byte of four is not enough.
  expect_fault(FaultKind::unwritten_read, [&] {
    launch(device, config_of(32), [&](SimCta cta) {
      if (cta.lane() == 0) {
        cta.store(reinterpret_cast<std::uint8_t*>(fresh), std::uint8_t{1});
        cta.load(fresh);
      }
    });
  });
  std::uint32_t host[4];
  expect_fault(FaultKind::unwritten_read, [&] { device.read_to_host(host, fresh, 16); });
  expect_fault(FaultKind::out_of_bounds, [&] { device.read_to_host(host, fresh, 20); });
  device.mark_written(words, 4);
  device.forget(words, 8);
  expect_fault(FaultKind::unwritten_read,
               [&] { launch(device, config_of(32), [&](SimCta cta) { cta.load(words + 1); }); });
}

TEST(GlobalMemory, ReleasedMemoryIsGone) {
  Device device({.memory_bytes = 1 << 20});
  auto* const first = counting_words(device, 100000, "first");
  device.release(first);
  expect_fault(FaultKind::out_of_bounds,
               [&] { launch(device, config_of(32), [&](SimCta cta) { cta.load(first); }); });
  auto* const second = device.allocate_array<std::uint32_t>(100000, "second");
  EXPECT_EQ(first, second);  // reused, and unwritten again
  expect_fault(FaultKind::unwritten_read,
               [&] { launch(device, config_of(32), [&](SimCta cta) { cta.load(second); }); });
  EXPECT_THROW(device.allocate(1 << 20, "too much"), Error);
}

TEST(GlobalMemory, BlocksOfAGridMayNotTalk) {
  Device device({.memory_bytes = 1 << 20});
  LaunchConfig config = config_of(32);
  config.blocks = 2;
  auto* const words = counting_words(device, 64, "words");
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    config.seed = seed;
    // Write and read, write and write, read and write: each in both orders of the blocks.
    const Fault raw = expect_fault(FaultKind::race, [&] {
      launch(device, config, [&](SimCta cta) {
        if (cta.lane() != 0) return;
        if (cta.block() == 0) cta.store(words + 5, 1u);
        if (cta.block() == 1) cta.load(words + 5);
      });
    });
    EXPECT_TRUE(mentions(raw, "of the same grid at global_memory_test.cpp"));
    expect_fault(FaultKind::race, [&] {
      launch(device, config, [&](SimCta cta) {
        if (cta.lane() == 0) cta.store(words + 6, 1u);
      });
    });
    // Neighbours are free, down to the byte, and everybody may read.
    launch(device, config, [&](SimCta cta) {
      if (cta.lane() == 0)
        cta.store(reinterpret_cast<std::uint16_t*>(words + 7) + cta.block(), std::uint16_t{1});
      if (cta.lane() == 1) cta.store(words + 8 + cta.block(), 1u);
      cta.load(words + 20);
    });
  }
}

TEST(GlobalMemory, ThreadsOfABlockNeedOrderToo) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 64, "words");
  const auto exchange = [&](bool ordered, std::uint64_t seed) {
    launch(device, config_of(64, 0, seed), [&](SimCta cta) {
      cta.store(words + cta.thread(), 1u);
      if (ordered) cta.sync_block();
      cta.load(words + 63 - cta.thread());
    });
  };
  EXPECT_EQ(faults_in_seeds(FaultKind::race, 6, [&](std::uint64_t seed) { exchange(true, seed); }), 0);
  EXPECT_EQ(faults_in_seeds(FaultKind::race, 6, [&](std::uint64_t seed) { exchange(false, seed); }), 6);
  expect_fault(FaultKind::race, [&] {
    launch(device, config_of(32), [&](SimCta cta) {
      if (cta.lane() == 0) cta.load(words + 3);
      if (cta.lane() == 1) cta.store(words + 3, 1u);
    });
  });
}

TEST(GlobalMemory, TheReadOnlyPathMissesWritesOfItsOwnGrid) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = counting_words(device, 64, "words");
  const Fault fault = expect_fault(FaultKind::race, [&] {
    launch(device, config_of(32), [&](SimCta cta) {
      cta.store(words + cta.lane(), 1u);
      cta.load(words + cta.lane());
      cta.load_stream(words + cta.lane());
    });
  });
  EXPECT_TRUE(mentions(fault, "the read-only path does not see writes of its own grid")) << fault.what();
  launch(device, config_of(32),
         [&](SimCta cta) { cta.load_stream(words + cta.lane()); });  // an older grid's are fine
}

TEST(GlobalMemory, PrefetchIsOnlyAHint) {
  Device device({.memory_bytes = 1 << 20});
  auto* const words = device.allocate_array<std::uint32_t>(64, "words");
  launch(device, config_of(32), [&](SimCta cta) { cta.prefetch_l2(words, 256); });  // unwritten is fine
  expect_fault(FaultKind::misaligned,
               [&] { launch(device, config_of(32), [&](SimCta cta) { cta.prefetch_l2(words, 20); }); });
  expect_fault(FaultKind::misaligned,
               [&] { launch(device, config_of(32), [&](SimCta cta) { cta.prefetch_l2(words + 1, 16); }); });
  expect_fault(FaultKind::out_of_bounds,
               [&] { launch(device, config_of(32), [&](SimCta cta) { cta.prefetch_l2(words, 272); }); });
}

}  // namespace
}  // namespace fourfold::sim
