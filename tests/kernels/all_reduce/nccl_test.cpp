#include "kernels/all_reduce/nccl.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/bench/nccl_bench.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::all_reduce {
namespace {

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "nothing was refused";
}

TEST(Nccl, IsCalledAsItWants) {
  void* fake = dlopen(FOURFOLD_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(fake, nullptr) << dlerror();
  const auto calls = reinterpret_cast<const char* (*)()>(dlsym(fake, "fake_nccl_calls"));
  {
    Nccl nccl(FOURFOLD_FAKE_NCCL);
    EXPECT_EQ(nccl.version(), "2.27.3");
    nccl.connect({4, 6});
    const std::vector<float> in[] = {{1, 2, 3}, {10, 20, 30}};
    std::vector<float> out[] = {std::vector<float>(3), std::vector<float>(3)};
    int stream = 0;
    nccl.all_reduce({{in[0].data(), out[0].data(), &stream}, {in[1].data(), out[1].data(), nullptr}}, 3);
    for (const auto& sums : out) EXPECT_EQ(sums, (std::vector<float>{11, 22, 33}));
  }
  EXPECT_STREQ(calls(),
               "init 2;start;sum 3 of type 7 op 0 on 4 with a stream;sum 3 of type 7 op 0 on 6;end;"
               "destroy 4;destroy 6;");
  dlclose(fake);
}

// Another order of additions: other bits, within what that may change.
TEST(Nccl, ItsSumsAreComparedWithOurs) {
  Nccl nccl(FOURFOLD_FAKE_NCCL);
  nccl.connect({0, 1, 2});
  std::vector<std::unique_ptr<sim::Device>> devices;
  std::vector<std::unique_ptr<kernels::Machine>> owned;
  std::vector<kernels::Machine*> machines;
  for (int rank = 0; rank < 3; ++rank) {
    devices.push_back(std::make_unique<sim::Device>(sim::DeviceOptions{.memory_bytes = 1 << 20}));
    owned.push_back(kernels::make_sim_machine(*devices.back()));
    machines.push_back(owned.back().get());
  }
  const auto times = bench::bench_nccl(nccl, machines, {nullptr, nullptr, nullptr},
                                       {.rows = {1, 3}, .columns = 64, .calls = 1, .rounds = 1}, [](int) {});
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[1].rows, 3);
  EXPECT_GT(times[1].difference, 0) << "the fake adds from the last rank on";
  EXPECT_LE(times[1].difference, 1);
}

TEST(Nccl, SaysWhyItCannot) {
  const std::string missing = error_of([] { Nccl nccl("libnccl-not-here.so.2"); });
  EXPECT_NE(missing.find("NCCL cannot be opened: libnccl-not-here.so.2"), std::string::npos) << missing;
  EXPECT_NE(missing.find("Install NCCL"), std::string::npos) << missing;
  const std::string twice = error_of([] { Nccl(FOURFOLD_FAKE_NCCL).connect({0, 0, 0, 1}); });
  EXPECT_NE(twice.find("3 of 4 ranks are on GPU 0"), std::string::npos) << twice;
  const std::string own = error_of([] { Nccl(FOURFOLD_FAKE_NCCL).connect({0, 1, 2, 3, 4}); });
  EXPECT_NE(own.find("NCCL, connecting the GPUs: invalid usage (5)"), std::string::npos) << own;
}

}  // namespace
}  // namespace fourfold::all_reduce
