#include "sim/warpgroups.h"

#include <bit>

#include "support.h"

namespace fourfold::sim {
namespace {

constexpr int kN = 16;

std::uint16_t bf16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}
std::uint32_t pair(float low, float high) { return bf16(low) | static_cast<std::uint32_t>(bf16(high)) << 16; }
float a_at(int row, int k) { return static_cast<float>((row * 5 + k * 3) % 11 - 5); }
float b_at(int k, int n) { return static_cast<float>((k * 7 + n * 4) % 9 - 4); }

// kN tokens of 64 bf16 along K, swizzled; filled by bulk copies from an image of the same layout, or by
// copy_16_async.
struct Storage {
  alignas(1024) std::uint16_t panel[kN * 64];
  Mbarrier full;
};

// What a test may leave out of the kernel below.
struct Damage {
  bool no_proxy_fence = false, no_sync = false, no_copy_wait = false;
  bool no_wgmma_fence = false, no_commit = false, no_wait = false;
  bool touch_d = false, change_a = false, store_d = false, compute_d = false;
  bool overwrite_panel = false;
};

void fragments_of_a(SimCta cta, int k16, std::uint32_t (&a)[4]) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
  for (int i = 0; i < 4; ++i) {
    const int row = 16 * (cta.warp() & 3) + g + 8 * (i & 1), k = 16 * k16 + 2 * t + 8 * (i >> 1);
    a[i] = pair(a_at(row, k), a_at(row, k + 1));
  }
}

// D (64 x kN) = A (64 x 64) B (64 x kN): four chained wgmmas in one or two groups.
template <bool Bulk>
void multiply_panel(Device& device, const std::uint16_t* image, float* out, std::uint64_t seed,
                    const Damage& damage = {}) {
  launch(device, config_of(128, sizeof(Storage), seed), [&](SimCta cta) {
    auto& s = cta.shared<Storage>();
    if constexpr (Bulk) {
      if (cta.thread() == 0) {
        cta.init(&s.full, 1);
        cta.fence_barrier_init();
        cta.arrive_expect(&s.full, sizeof s.panel);
        cta.bulk_load(s.panel, image, sizeof s.panel, &s.full);
      }
      cta.sync_block();
      if (!damage.no_sync) cta.wait(&s.full, 0);
    } else {
      for (int chunk = cta.thread(); chunk < kN * 8; chunk += 128)
        cta.copy_16_async(reinterpret_cast<U32x4*>(s.panel) + chunk,
                          reinterpret_cast<const U32x4*>(image) + chunk);
      cta.copy_commit();
      if (!damage.no_copy_wait) cta.copy_wait<0>();
      if (!damage.no_proxy_fence) cta.fence_async_proxy();
      if (!damage.no_sync) cta.sync_block();
    }
    float d[kN / 2];
    for (float& x : d) x = 1.0f;
    std::uint32_t a[4][4];
    for (int k16 = 0; k16 < 4; ++k16) fragments_of_a(cta, k16, a[k16]);
    const std::uint64_t b = cta.wgmma_descriptor(s.panel);
    if (!damage.no_wgmma_fence) cta.wgmma_fence();
    for (int k16 = 0; k16 < 4; ++k16) {
      cta.wgmma_bf16<kN>(d, a[k16], b + static_cast<std::uint64_t>(2 * k16));  // 32 bytes along K
      if (k16 == 1 && damage.touch_d) d[3] = 0.0f;
      if (k16 == 1) cta.wgmma_commit();
    }
    if (!damage.no_commit) cta.wgmma_commit();
    if (damage.change_a) a[2][1] ^= 1u;
    if (damage.store_d && cta.thread() == 17) cta.store(out, d[0]);
    if (damage.compute_d) cta.add(d[0], 1.0f);
    if (damage.overwrite_panel && cta.thread() == 0)
      cta.store_shared(reinterpret_cast<U32x4*>(s.panel), U32x4{});
    if (!damage.no_wait) cta.wgmma_wait<0>();
    for (int i = 0; i < kN / 2; ++i) {
      const int row = 16 * cta.warp() + (cta.lane() >> 2) + 8 * (i % 4 >> 1);
      const int n = 8 * (i / 4) + 2 * (cta.lane() & 3) + (i & 1);
      cta.store(out + row * kN + n, d[i]);
    }
  });
}

class WgmmaTest : public testing::Test {
 protected:
  WgmmaTest() {
    std::vector<std::uint16_t> image(kN * 64);
    for (int n = 0; n < kN; ++n)
      for (int k = 0; k < 64; ++k)
        image[(device::swizzled_offset(static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(k / 8)) +
               static_cast<std::uint32_t>(k % 8) * 2) /
              2] = bf16(b_at(k, n));
    device.write_from_host(panel, image.data(), image.size() * 2);
  }
  template <bool Bulk>
  void fault_in_seeds(std::vector<FaultKind> kinds, const Damage& damage) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const Fault fault = fault_of([&] { multiply_panel<Bulk>(device, panel, out, seed, damage); });
      EXPECT_NE(std::find(kinds.begin(), kinds.end(), fault.kind()), kinds.end()) << fault.what();
    }
  }
  Device device{{.memory_bytes = 1 << 22}};
  std::uint16_t* panel = device.allocate_array<std::uint16_t>(kN * 64, "panel");
  float* out = device.allocate_array<float>(64 * kN, "out");
};

TEST_F(WgmmaTest, MultipliesInEverySeedFromBothKindsOfCopies) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    device.forget(out, 64 * kN * 4);
    if (seed % 2)
      multiply_panel<true>(device, panel, out, seed);
    else
      multiply_panel<false>(device, panel, out, seed);
    std::vector<float> got(64 * kN);
    device.read_to_host(got.data(), out, got.size() * 4);
    for (int row = 0; row < 64; ++row)
      for (int n = 0; n < kN; ++n) {
        float want = 1;
        for (int k = 0; k < 64; ++k) want += a_at(row, k) * b_at(k, n);
        EXPECT_EQ(got[static_cast<std::size_t>(row * kN + n)], want) << "row " << row << " n " << n;
      }
  }
}

// 64 rows of K and 128 columns, which run along the rows of two panels.
struct ColumnStorage {
  alignas(1024) std::uint16_t panel[2][64 * 64];
};

void multiply_columns(Device& device, const std::uint16_t* image, float* out, std::uint64_t seed,
                      bool overwrite = false) {
  launch(device, config_of(128, sizeof(ColumnStorage), seed), [&](SimCta cta) {
    auto& s = cta.shared<ColumnStorage>();
    for (int i = cta.thread(); i < 2 * 64 * 8; i += 128)
      cta.store_shared(reinterpret_cast<U32x4*>(s.panel) + i,
                       cta.load(reinterpret_cast<const U32x4*>(image) + i));
    cta.fence_async_proxy();
    cta.sync_block();
    float d[64] = {};
    std::uint32_t a[4][4];
    for (int k16 = 0; k16 < 4; ++k16) fragments_of_a(cta, k16, a[k16]);
    const std::uint64_t b = cta.wgmma_columns_descriptor(s.panel, sizeof s.panel[0]);
    cta.wgmma_fence();
    for (int k16 = 0; k16 < 4; ++k16)  // 16 rows of 128 bytes
      cta.wgmma_bf16_columns<128>(d, a[k16], b + static_cast<std::uint64_t>(128 * k16));
    cta.wgmma_commit();
    // The last byte that the last step reads.
    if (overwrite && cta.thread() == 0)
      cta.store_shared(reinterpret_cast<U32x4*>(s.panel) + 2 * 64 * 8 - 1, U32x4{});
    cta.wgmma_wait<0>();
    for (int i = 0; i < 64; ++i) {
      const int row = 16 * cta.warp() + (cta.lane() >> 2) + 8 * (i % 4 >> 1);
      cta.store(out + row * 128 + 8 * (i / 4) + 2 * (cta.lane() & 3) + (i & 1), d[i]);
    }
  });
}

TEST_F(WgmmaTest, MultipliesAnOperandWhoseColumnsRunAlongItsRows) {
  std::vector<std::uint16_t> image(2 * 64 * 64);
  for (int k = 0; k < 64; ++k)
    for (int n = 0; n < 128; ++n)
      image[static_cast<std::size_t>(n / 64 * 64 * 64) +
            device::swizzled_offset(static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(n % 64 / 8)) /
                2 +
            static_cast<std::uint32_t>(n % 8)] = bf16(b_at(k, n));
  auto* columns = device.allocate_array<std::uint16_t>(image.size(), "columns");
  auto* sums = device.allocate_array<float>(64 * 128, "sums");
  device.write_from_host(columns, image.data(), image.size() * 2);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    device.forget(sums, 64 * 128 * 4);
    multiply_columns(device, columns, sums, seed);
    std::vector<float> got(64 * 128);
    device.read_to_host(got.data(), sums, got.size() * 4);
    for (int row = 0; row < 64; ++row)
      for (int n = 0; n < 128; ++n) {
        float want = 0;
        for (int k = 0; k < 64; ++k) want += a_at(row, k) * b_at(k, n);
        EXPECT_EQ(got[static_cast<std::size_t>(row * 128 + n)], want) << "row " << row << " n " << n;
      }
    expect_fault(FaultKind::race, [&] { multiply_columns(device, columns, sums, seed, true); });
  }
}

TEST_F(WgmmaTest, OrdinaryWritesNeedTheProxyFence) {
  fault_in_seeds<false>({FaultKind::proxy_race}, {.no_proxy_fence = true});
}

TEST_F(WgmmaTest, DataMustHaveArrivedWhenTheWgmmaIsIssued) {
  fault_in_seeds<false>({FaultKind::race, FaultKind::unwritten_read}, {.no_sync = true});
  fault_in_seeds<false>({FaultKind::race}, {.no_copy_wait = true});
  fault_in_seeds<true>({FaultKind::race}, {.no_sync = true});
}

TEST_F(WgmmaTest, RegistersInFlightAreGuarded) {
  fault_in_seeds<true>({FaultKind::register_rule}, {.no_wgmma_fence = true});
  fault_in_seeds<true>({FaultKind::early_accumulator}, {.touch_d = true});
  fault_in_seeds<true>({FaultKind::changed_operand}, {.change_a = true});
  fault_in_seeds<true>({FaultKind::early_accumulator}, {.store_d = true});
  fault_in_seeds<true>({FaultKind::early_accumulator}, {.compute_d = true});
  fault_in_seeds<true>({FaultKind::early_accumulator}, {.no_commit = true});
  fault_in_seeds<true>({FaultKind::early_accumulator}, {.no_wait = true});
}

TEST_F(WgmmaTest, TheOperandInSharedMemoryMayNotChange) {
  fault_in_seeds<true>({FaultKind::race}, {.overwrite_panel = true});
}

TEST_F(WgmmaTest, GroupsMayStayInFlight) {
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    launch(device, config_of(128, sizeof(Storage), seed), [&](SimCta cta) {
      auto& s = cta.shared<Storage>();
      for (int chunk = cta.thread(); chunk < kN * 8; chunk += 128)
        cta.store_shared(reinterpret_cast<U32x4*>(s.panel) + chunk,
                         cta.load(reinterpret_cast<const U32x4*>(panel) + chunk));
      cta.fence_async_proxy();
      cta.sync_block();
      float d[2][kN / 2] = {};  // even and odd k16 steps
      std::uint32_t a[4][4];
      for (int k16 = 0; k16 < 4; ++k16) {
        fragments_of_a(cta, k16, a[k16]);
        cta.wgmma_fence();
        cta.wgmma_bf16<kN>(d[k16 % 2], a[k16],
                           cta.wgmma_descriptor(s.panel) + static_cast<std::uint64_t>(2 * k16));
        cta.wgmma_commit();
        cta.wgmma_wait<1>();
        // The step before is complete, this one is not.
        if (k16 == 1) {
          EXPECT_NE(std::bit_cast<std::uint32_t>(d[0][0]), Warpgroups::kPoison);
          EXPECT_EQ(std::bit_cast<std::uint32_t>(d[1][0]), Warpgroups::kPoison);
        }
      }
      cta.wgmma_wait<0>();
      const int row = 16 * cta.warp() + (cta.lane() >> 2), n = 2 * (cta.lane() & 3);
      float want[2] = {};
      for (int k = 0; k < 64; ++k) want[k / 16 % 2] += a_at(row, k) * b_at(k, n);
      EXPECT_EQ(d[0][0], want[0]);
      EXPECT_EQ(d[1][0], want[1]);
    });
}

// One thread gives the panel back for all four warps after its own wait: groups belong to the warpgroup.
TEST_F(WgmmaTest, OneWarpMayReleaseForTheGroup) {
  const auto run_group = [&](std::uint64_t seed, bool wait) {
    launch(device, config_of(256, sizeof(Storage), seed), [&](SimCta cta) {
      auto& s = cta.shared<Storage>();
      if (cta.thread() == 128) {
        cta.init(&s.full, 1);
        cta.fence_barrier_init();
      }
      if (cta.warp() >= 4)
        for (int i = cta.thread() - 128; i < kN * 8; i += 128)
          cta.store_shared(reinterpret_cast<U32x4*>(s.panel) + i, U32x4{});
      cta.fence_async_proxy();
      cta.sync_block();
      if (cta.warp() >= 4) {
        cta.wait(&s.full, 0);
        cta.store_shared(reinterpret_cast<U32x4*>(s.panel) + cta.thread() - 128, U32x4{});
        return;
      }
      float d[kN / 2] = {};
      const std::uint32_t a[4] = {};
      cta.wgmma_fence();
      cta.wgmma_bf16<kN>(d, a, cta.wgmma_descriptor(s.panel));
      cta.wgmma_commit();
      if (wait) cta.wgmma_wait<0>();
      if (cta.thread() == 70) cta.arrive(&s.full);
      if (!wait) cta.wgmma_wait<0>();
    });
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    run_group(seed, true);
    expect_fault(FaultKind::race, [&] { run_group(seed, false); });
  }
}

// Four warps with a zeroed panel, fenced and synchronised; `body` does what it likes.
template <class F>
Fault wgmma_fault(FaultKind kind, Device& device, F body, int threads = 128) {
  return expect_fault(kind, [&] {
    launch(device, config_of(threads, sizeof(Storage), 3), [&](SimCta cta) {
      auto& s = cta.shared<Storage>();
      for (int i = cta.thread(); i < kN * 8; i += threads)
        cta.store_shared(reinterpret_cast<U32x4*>(s.panel) + i, U32x4{});
      cta.fence_async_proxy();
      cta.sync_block();
      cta.wgmma_fence();
      body(cta, s);
    });
  });
}

TEST_F(WgmmaTest, FormAndConvergenceAreChecked) {
  const std::uint32_t a[4] = {};
  float d[32][4][64] = {};  // enough for every thread; zero, never read
  const auto own = [&](SimCta cta) { return d[cta.lane()][cta.warp() % 4]; };
  wgmma_fault(FaultKind::bad_descriptor, device, [&](SimCta cta, Storage& s) {
    cta.wgmma_bf16<8>(own(cta), a, cta.wgmma_descriptor(s.panel) & ~(3ull << 62));
  });
  wgmma_fault(FaultKind::bad_descriptor, device, [&](SimCta cta, Storage& s) {
    cta.wgmma_bf16<8>(own(cta), a, cta.wgmma_descriptor(s.panel) | 1ull << 49);
  });
  wgmma_fault(FaultKind::misaligned, device, [&](SimCta cta, Storage& s) {
    cta.wgmma_bf16<8>(own(cta), a, cta.wgmma_descriptor(s.panel + 64));  // one row down: not a swizzle atom
  });
  wgmma_fault(FaultKind::misaligned, device, [&](SimCta cta, Storage& s) {
    cta.wgmma_bf16_columns<64>(own(cta), a, cta.wgmma_columns_descriptor(s.panel, 1024) + 2);
  });
  wgmma_fault(FaultKind::misaligned, device, [&](SimCta cta, Storage& s) {
    cta.wgmma_bf16_columns<128>(own(cta), a, cta.wgmma_columns_descriptor(s.panel, 512));
  });
  wgmma_fault(FaultKind::out_of_bounds, device, [&](SimCta cta, Storage& s) {
    cta.wgmma_bf16_columns<128>(own(cta), a, cta.wgmma_columns_descriptor(s.panel, 8192));
  });
  wgmma_fault(FaultKind::out_of_bounds, device, [&](SimCta cta, Storage& s) {
    cta.wgmma_bf16<16>(own(cta), a,
                       cta.wgmma_descriptor(s.panel) + (std::uint64_t{8192 >> 4} << 32));  // the stride
  });
  wgmma_fault(FaultKind::early_accumulator, device, [&](SimCta cta, Storage& s) {
    cta.wgmma_bf16<16>(own(cta), a, cta.wgmma_descriptor(s.panel));
    cta.wgmma_bf16<16>(own(cta) + 4, a, cta.wgmma_descriptor(s.panel));
  });
  wgmma_fault(FaultKind::divergent_collective, device, [&](SimCta cta, Storage& s) {
    cta.wgmma_bf16<8>(own(cta), a, cta.wgmma_descriptor(s.panel) + (cta.lane() == 9 ? 2 : 0));
  });
  wgmma_fault(FaultKind::divergent_collective, device, [&](SimCta cta, Storage& s) {
    cta.wgmma_bf16<8>(own(cta), a, cta.wgmma_descriptor(s.panel) + (cta.warp() == 2 ? 2 : 0));
  });
  wgmma_fault(FaultKind::divergent_collective, device, [&](SimCta cta, Storage&) {
    if (cta.warp() == 1) cta.wgmma_commit();
  });
  wgmma_fault(
      FaultKind::divergent_collective, device, [](SimCta, Storage&) {}, 96);
  const Fault deadlock = wgmma_fault(FaultKind::deadlock, device, [&](SimCta cta, Storage& s) {
    if (cta.warp() == 3) return;
    cta.wgmma_bf16<8>(own(cta), a, cta.wgmma_descriptor(s.panel));
    cta.wgmma_commit();
    cta.wgmma_wait<0>();
  });
  EXPECT_TRUE(mentions(deadlock, "other warps of the warpgroup have not committed as many groups"))
      << deadlock.what();
}

LaunchConfig with_registers(int threads, int registers, std::uint64_t seed = 0) {
  LaunchConfig config = config_of(threads, 0, seed);
  config.registers_per_thread = registers;
  return config;
}

TEST(Registers, AreHandedOverBetweenWarpgroups) {
  Device device({.memory_bytes = 1 << 20});
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    launch(device, with_registers(384, 168, seed), [](SimCta cta) {
      if (cta.warp() < 4)
        cta.drop_registers<40>();
      else
        cta.raise_registers<232>();
    });
  const Fault fault = expect_fault(FaultKind::deadlock, [&] {
    launch(device, with_registers(384, 168), [](SimCta cta) {
      if (cta.warp() < 4)
        cta.drop_registers<40>();
      else
        cta.raise_registers<240>();
    });
  });
  EXPECT_TRUE(mentions(fault, "wants 240 registers a thread and has 168")) << fault.what();
}

TEST(Registers, FollowTheRules) {
  Device device({.memory_bytes = 1 << 20});
  const auto refuse = [&](FaultKind kind, auto body) {
    expect_fault(kind, [&] { launch(device, with_registers(128, 128), [&](SimCta cta) { body(cta); }); });
  };
  refuse(FaultKind::register_rule, [](SimCta cta) { cta.drop_registers<20>(); });
  refuse(FaultKind::register_rule, [](SimCta cta) { cta.drop_registers<100>(); });
  refuse(FaultKind::register_rule, [](SimCta cta) { cta.drop_registers<136>(); });
  refuse(FaultKind::register_rule, [](SimCta cta) { cta.raise_registers<120>(); });
  refuse(FaultKind::register_rule, [](SimCta cta) { cta.raise_registers<264>(); });
  refuse(FaultKind::divergent_collective, [](SimCta cta) {
    if (cta.warp() != 2) cta.drop_registers<120>();
  });
}

}  // namespace
}  // namespace fourfold::sim
