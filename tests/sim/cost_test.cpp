// What simulation costs. Prints; asserts nothing about time.
#include <chrono>
#include <cstdio>

#include "support.h"

namespace fourfold::sim {
namespace {

template <class F>
double seconds_of(F action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Best of three: the machine may be busy with other things.
template <class F>
double best_seconds(F action) {
  double best = seconds_of(action);
  for (int i = 0; i < 2; ++i) best = std::min(best, seconds_of(action));
  return best;
}

TEST(Cost, Printed) {
  Device device;
  constexpr int kRounds = 1000;
  struct Storage {
    U32x4 data[512];
    std::uint32_t words[2048];
  };
  const auto report = [&](const char* what, double per) {
    std::printf("  %-52s %9.3f us\n", what, per * 1e6);
  };

  report("start of a block of 384 threads, 101,376 bytes shared", best_seconds([&] {
                                                                    LaunchConfig config =
                                                                        config_of(384, kSharedLimit);
                                                                    config.blocks = 20;
                                                                    launch(device, config, [](SimCta) {});
                                                                  }) / 20);
  report("empty collective of a warp (ballot)", best_seconds([&] {
                                                  launch(device, config_of(32, 0, 3), [](SimCta cta) {
                                                    for (int i = 0; i < kRounds; ++i) cta.ballot(true);
                                                  });
                                                }) / kRounds);
  report("sync_warp, 12 warps", best_seconds([&] {
                                  launch(device, config_of(384, 0, 3), [](SimCta cta) {
                                    for (int i = 0; i < kRounds / 10; ++i) cta.sync_warp();
                                  });
                                }) / (kRounds / 10 * 12));
  report("sync_block, 384 threads", best_seconds([&] {
                                      launch(device, config_of(384, 0, 3), [](SimCta cta) {
                                        for (int i = 0; i < kRounds / 10; ++i) cta.sync_block();
                                      });
                                    }) / (kRounds / 10));
  report("mma_bf16, 8 warps",
         best_seconds([&] {
           launch(device, config_of(256, 0, 3), [](SimCta cta) {
             float d[4] = {};
             const std::uint32_t a[4] = {0x3F803F80u, 0x3F803FC0u, 0x3F803F80u, 0x40003F80u};
             for (int i = 0; i < kRounds; ++i) cta.mma_bf16(d, a, 0x3F813F80u, 0x3F803E80u);
           });
         }) / (kRounds * 8));
  report("mma_nvfp4, 8 warps",
         best_seconds([&] {
           launch(device, config_of(256, 0, 3), [](SimCta cta) {
             float d[4] = {};
             const std::uint32_t a[4] = {0x12345678u, 0x9ABCDEF0u, 0x0F1E2D3Cu, 0x55AA55AAu};
             for (int i = 0; i < kRounds; ++i)
               cta.mma_nvfp4<0, 0>(d, a, 0x31415926u, 0x27182818u, 0x38383938u, 0x37383838u);
           });
         }) / (kRounds * 8));
  const auto loads = [&](int threads, auto body) {
    return best_seconds([&] {
             launch(device, config_of(threads, sizeof(Storage), 3), [&](SimCta cta) {
               auto& storage = cta.shared<Storage>();
               for (int i = cta.thread(); i < 512; i += cta.threads())
                 cta.store_shared(&storage.data[i], U32x4{{1, 2, 3, 4}});
               for (int i = cta.thread(); i < 2048; i += cta.threads())
                 cta.store_shared(&storage.words[i], 5u);
               cta.sync_block();
               for (int i = 0; i < kRounds; ++i) {
                 body(cta, storage, i);
                 if (i % 8 == 7) cta.sync_warp();
               }
             });
           }) /
           (kRounds * threads);
  };
  report("load_shared of 16 bytes, per lane, 8 warps", loads(256, [](SimCta cta, Storage& storage, int i) {
           cta.load_shared(&storage.data[(cta.lane() + 32 * i) % 512]);
         }));
  report("load_shared of 4 bytes, per lane, 8 warps", loads(256, [](SimCta cta, Storage& storage, int i) {
           cta.load_shared(&storage.words[(cta.lane() + 32 * i) % 2048]);
         }));
  report("store_shared of 16 bytes, per lane, 8 warps", loads(256, [](SimCta cta, Storage& storage, int i) {
           cta.store_shared(&storage.data[cta.thread() + 256 * (i & 1)], U32x4{{1, 2, 3, 4}});
         }));
  auto* const global = counting_words(device, 1 << 16, "words");
  report("load of 16 bytes, per lane, 8 warps", loads(256, [&](SimCta cta, Storage&, int i) {
           cta.load(reinterpret_cast<const U32x4*>(global) + (cta.thread() + 256 * i) % (1 << 14));
         }));
}

}  // namespace
}  // namespace fourfold::sim
