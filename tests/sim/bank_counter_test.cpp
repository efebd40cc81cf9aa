#include "sim/bank_counter.h"

#include "support.h"

namespace fourfold::sim {
namespace {

template <class F>
BankTraffic passes(std::uint32_t bytes, F offset_of, std::uint32_t lanes = ~0u) {
  std::uint32_t offset[32];
  for (std::uint32_t lane = 0; lane < 32; ++lane) offset[lane] = offset_of(lane);
  return count_wavefronts(offset, lanes, bytes);
}

TEST(BankCounter, CountsPassesOfOneInstruction) {
  EXPECT_EQ(passes(4, [](auto lane) { return 4 * lane; }).wavefronts, 1u);
  EXPECT_EQ(passes(4, [](auto) { return 64u; }).wavefronts, 1u);  // one word for all
  EXPECT_EQ(passes(4, [](auto lane) { return 8 * lane; }).wavefronts, 2u);
  EXPECT_EQ(passes(4, [](auto lane) { return 128 * lane; }).wavefronts, 32u);
  EXPECT_EQ(passes(8, [](auto lane) { return 8 * lane; }).wavefronts, 2u);
  EXPECT_EQ(passes(8, [](auto lane) { return 16 * lane; }).wavefronts, 4u);
  EXPECT_EQ(passes(16, [](auto lane) { return 16 * lane; }).wavefronts, 4u);
  EXPECT_EQ(passes(16, [](auto lane) { return 16 * lane; }).ideal, 4u);
  EXPECT_EQ(passes(16, [](auto lane) { return 128 * lane; }).wavefronts, 32u);
  EXPECT_EQ(passes(16, [](auto lane) { return 128 * (lane & 7) + ((lane & 7) << 4); }).wavefronts,
            4u);  // swizzled
  EXPECT_EQ(passes(
                16, [](auto lane) { return 16 * lane; }, 0xFFu)
                .ideal,
            1u);
}

TEST(BankCounter, ReportsPerLineOfTheKernel) {
  struct Storage {
    std::uint32_t words[1024];
    U32x4 quads[64];
  };
  Device device({.memory_bytes = 1 << 20});
  for (std::uint64_t seed : {0u, 5u}) {
    int good = 0, bad = 0, matrix = 0;
    const LaunchStats stats = launch(device, config_of(64, sizeof(Storage), seed), [&](SimCta cta) {
      auto& s = cta.shared<Storage>();
      for (int i = cta.thread(); i < 1024; i += 64) cta.store_shared(&s.words[i], 0u);
      cta.store_shared(&s.quads[cta.thread()], U32x4{});
      cta.sync_block();
      for (int i = 0; i < 3; ++i) {
        good = __LINE__ + 1;
        cta.load_shared(&s.words[32 * i + cta.lane()]);
        bad = __LINE__ + 1;
        cta.load_shared(&s.words[(32 * cta.lane() + i) % 1024]);
        if (cta.lane() < 4) cta.load_shared(&s.words[cta.lane()]);  // divergent
      }
      matrix = __LINE__ + 1;
      cta.load_matrix_x4(&s.quads[cta.lane()]);
    });
    const auto find = [&](int line) {
      for (const SiteTraffic& site : stats.traffic)
        if (site.line == line) return site;
      return SiteTraffic{};
    };
    EXPECT_EQ(find(good).accesses, 6u);
    EXPECT_EQ(find(good).wavefronts, 6u);
    EXPECT_EQ(find(bad).accesses, 6u);
    EXPECT_EQ(find(bad).wavefronts, 6u * 32);
    EXPECT_EQ(find(bad).ideal, 6u);
    EXPECT_EQ(find(matrix).wavefronts, 2u * 4);
    EXPECT_EQ(find(matrix).file, "bank_counter_test.cpp");
  }
}

}  // namespace
}  // namespace fourfold::sim
