// Call sites and mutations: every synchronisation of a kernel can be removed, and its absence is found.
#include "sim/site.h"

#include <algorithm>

#include "support.h"

namespace fourfold::sim {
namespace {

TEST(SiteTable, GivesOneNumberPerLine) {
  SiteTable table;
  const char here[] = "/one/path/kernel.h";
  const char there[] = "other/kernel.h";
  const auto a = table.intern({here, 7});
  EXPECT_EQ(table.intern({there, 7}), a);
  EXPECT_NE(table.intern({here, 8}), a);
  EXPECT_EQ(table.find_or_add("kernel.h", 7), a);
  EXPECT_EQ(table.text(a), "kernel.h:7");
  EXPECT_EQ(table.text(0), "the host");
  table.note(a, SyncOp::wait);
  ASSERT_EQ(table.executed().size(), 1u);
  EXPECT_EQ(table.executed()[0], (SyncSite{"kernel.h", 7, SyncOp::wait}));
}

constexpr int kStages = 2;
constexpr int kTiles = 6;

struct Storage {
  alignas(1024) std::uint16_t panel[kStages][8 * 64];
  Mbarrier full[kStages], empty[kStages];
  std::uint32_t sum[4];
};

// A small kernel with every kind of synchronisation there is: a bulk pipeline into wgmma, a second grid
// behind it.
void run_chain(Device& device, const std::uint16_t* input, float* middle, float* out, std::uint64_t seed) {
  LaunchConfig config = config_of(256, sizeof(Storage), seed);
  config.pdl = true;
  launch(device, config, [&](SimCta cta) {
    auto& s = cta.shared<Storage>();
    if (cta.thread() == 0) {
      for (int i = 0; i < kStages; ++i) {
        cta.init(&s.full[i], 1);
        cta.init(&s.empty[i], 4);
      }
      cta.fence_barrier_init();
    }
    cta.sync_block();
    cta.wait_predecessors();
    cta.release_successors();
    device::PipelineCursor<kStages> cursor;
    if (cta.warp() >= 4) {
      if (cta.thread() != 128) return;
      for (int tile = 0; tile < kTiles; ++tile, cursor.advance()) {
        cta.wait(&s.empty[cursor.stage], cursor.phase ^ 1u);
        cta.arrive_expect(&s.full[cursor.stage], sizeof s.panel[0]);
        cta.bulk_load(s.panel[cursor.stage], input + tile * 512, sizeof s.panel[0], &s.full[cursor.stage]);
      }
      return;
    }
    float d[4] = {};
    const std::uint32_t a[4] = {0x3F803F80u, 0x3F803F80u, 0x3F803F80u, 0x3F803F80u};
    for (int tile = 0; tile < kTiles; ++tile, cursor.advance()) {
      cta.wait(&s.full[cursor.stage], cursor.phase);
      cta.wgmma_fence();
      cta.wgmma_bf16<8>(d, a, cta.wgmma_descriptor(s.panel[cursor.stage]));
      cta.wgmma_commit();
      cta.wgmma_wait<0>();
      if (cta.lane() == 0) cta.arrive(&s.empty[cursor.stage]);
    }
    cta.store(middle + cta.thread(), cta.add(d[0], d[1]));
  });
  launch(device, config, [&](SimCta cta) {
    auto& s = cta.shared<Storage>();
    cta.wait_predecessors();
    if (cta.warp() >= 4) return;
    auto* const panel = reinterpret_cast<U32x4*>(s.panel[0]);
    if (cta.thread() < 64) {
      cta.copy_16_async(panel + cta.thread(), reinterpret_cast<const U32x4*>(input) + cta.thread());
      cta.copy_commit();
      cta.copy_wait<0>();
    }
    cta.fence_async_proxy();
    cta.barrier_sync(device::NamedBarrier(1), 128);
    float d[4] = {};
    const std::uint32_t a[4] = {0x3F803F80u, 0x3F803F80u, 0x3F803F80u, 0x3F803F80u};
    cta.wgmma_fence();
    cta.wgmma_bf16<8>(d, a, cta.wgmma_descriptor(panel));
    cta.wgmma_commit();
    cta.wgmma_wait<0>();
    const int warp = cta.warp();
    if (cta.lane() == 31) cta.store_shared(&s.sum[warp], 1u);
    cta.sync_warp();
    cta.load_shared(&s.sum[warp]);
    cta.store(out + cta.thread(), cta.add(d[0], cta.load(middle + cta.thread())));
  });
}

class MutationTest : public testing::Test {
 protected:
  MutationTest() {
    std::vector<std::uint16_t> words(kTiles * 512, 0x3F80);
    device.write_from_host(input, words.data(), words.size() * 2);
  }
  Device device{{.memory_bytes = 1 << 22}};
  std::uint16_t* input = device.allocate_array<std::uint16_t>(kTiles * 512, "input");
  float* middle = device.allocate_array<float>(128, "middle");
  float* out = device.allocate_array<float>(128, "out");
};

TEST_F(MutationTest, EveryRemovedSynchronisationIsFound) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) run_chain(device, input, middle, out, seed);
  std::vector<float> got(128);
  device.read_to_host(got.data(), out, 512);
  for (const float value : got) EXPECT_EQ(value, 2 * 16 * kTiles + 16);

  const std::vector<SyncSite> sites = device.executed_sites();
  EXPECT_EQ(sites.size(), 22u);
  for (const SyncSite& site : sites)
    for (const Mutation& mutation : mutations_of(site)) {
      int found = 0;
      device.install(mutation);
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        device.synchronize();
        try {
          run_chain(device, input, middle, out, seed);
        } catch (const Fault&) {
          ++found;
        }
      }
      device.clear_mutation();
      // Releasing successors late costs time, never correctness.
      EXPECT_EQ(found, site.op == SyncOp::release_successors ? 0 : 5) << describe(mutation);
    }
}

TEST_F(MutationTest, KindsAreListed) {
  EXPECT_EQ(mutations_of({"k.h", 1, SyncOp::wait}).size(), 1u);
  EXPECT_EQ(mutations_of({"k.h", 1, SyncOp::arrive_expect}).size(), 2u);
  EXPECT_EQ(describe({{"k.h", 1, SyncOp::arrive_expect}, MutationKind::no_expect}),
            "k.h:1 arrive_expect without expecting bytes");
}

TEST_F(MutationTest, LaunchesReportTheirOwnSites) {
  const LaunchStats stats = launch(device, config_of(32), [](SimCta cta) { cta.sync_warp(); });
  ASSERT_EQ(stats.sites.size(), 1u);
  EXPECT_EQ(stats.sites[0].op, SyncOp::sync_warp);
  EXPECT_EQ(stats.sites[0].file, "site_test.cpp");
}

TEST_F(MutationTest, ADeviceSeedServesLaunchesWithoutOne) {
  std::vector<int> plain, seeded;
  const auto record = [&](std::vector<int>& order) {
    launch(device, config_of(64), [&](SimCta cta) { order.push_back(cta.thread()); });
  };
  record(plain);
  device.set_seed(9);
  record(seeded);
  EXPECT_TRUE(std::is_sorted(plain.begin(), plain.end()));
  EXPECT_NE(plain, seeded);
}

}  // namespace
}  // namespace fourfold::sim
