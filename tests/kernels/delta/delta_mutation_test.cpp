// Removes every synchronisation of the DeltaNet kernels in turn: the simulator must report a fault, or the
// result must be wrong. tests/kernels/mutation_test.cpp does the same for the MoE layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/delta/rows.h"
#include "plan/arch.h"
#include "sim/fault.h"
#include "sim/site.h"
#include "tests/kernels/delta/delta_bench.h"

namespace fourfold::delta {
namespace {

constexpr int kHeadDim = 32;

// A prompt of three chunks beside one that ends inside its first, then generated rows that cross an eight and
// a block, several to a step and alone.
struct Scenario {
  Layout layout = layout_of(1, 2, kHeadDim);
  HostWeights weights = make_weights(layout, 3);

  std::vector<std::uint16_t> run(std::uint64_t seed, const sim::Mutation* mutation,
                                 std::vector<sim::SyncSite>* sites) const {
    DeltaBench bench(layout, weights, 2, seed);
    if (mutation) bench.device().install(*mutation);
    std::vector<std::uint16_t> all;
    const auto rows = [&](int slot, int position, int count) {
      StepRows step{slot, position, {}};
      for (int i = 0; i < count; ++i)
        step.rows.push_back(make_row(layout, static_cast<std::uint64_t>(slot), position + i, true));
      return step;
    };
    const auto add = [&](const std::vector<std::uint16_t>& out) {
      all.insert(all.end(), out.begin(), out.end());
    };
    add(bench.prompt<kHeadDim, plan::Sm120>({rows(0, 0, 182), rows(1, 0, 40)}));
    using Decode = DecodeRow<plan::Sm120, kHeadDim>;
    add(bench.decode<Decode>({rows(0, 182, 5), rows(1, 40, 1)}));
    add(bench.decode<Decode>({rows(0, 187, 8), rows(1, 41, 10)}));
    add(bench.decode<Decode>({rows(0, 192, 3), rows(1, 51, 30)}));
    add(bench.decode<Decode>({rows(0, 195, 60), rows(1, 81, 1)}));
    add(bench.decode<Decode>({rows(0, 255, 1)}));
    add(bench.decode<Decode>({rows(0, 256, 1), rows(1, 82, 1)}));
    if (sites) *sites = bench.device().executed_sites();
    return all;
  }
};

// Heads of 128 leave SM120's scan one place of K and P, small ones two.
struct RealHeads {
  Layout layout = layout_of(1, 1, 128);
  HostWeights weights = make_weights(layout, 3);

  std::vector<std::uint16_t> run(std::uint64_t seed, const sim::Mutation* mutation,
                                 std::vector<sim::SyncSite>* sites) const {
    DeltaBench bench(layout, weights, 1, seed);
    if (mutation) bench.device().install(*mutation);
    StepRows step{0, 0, {}};
    for (int i = 0; i < 182; ++i) step.rows.push_back(make_row(layout, 0, i, true));
    const auto out = bench.prompt<128, plan::Sm120>({step});
    if (sites) *sites = bench.device().executed_sites();
    return out;
  }
};
static_assert(ScanStorageOf<plan::Sm120, 128>::stages == 1 &&
              ScanStorageOf<plan::Sm120, kHeadDim>::stages == 2 &&
              ScanStorageOf<plan::Sm90, 128>::stages == 2);

bool is_ours(const sim::SyncSite& site) {
  for (const char* file : {"decode.h", "decode_inputs.h", "decode_one.h", "decode_rule.h", "prompt_rows.h",
                           "prompt_prepare.h", "prompt_scan.h", "prompt_finish.h", "lane_math.h"})
    if (site.file == file) return true;
  return false;
}

template <class Scenario>
bool is_caught(const Scenario& scenario, const sim::Mutation& mutation,
               const std::vector<std::uint16_t>& want) {
  for (const std::uint64_t seed : {1u, 2u, 3u, 0u}) try {
      if (scenario.run(seed, &mutation, nullptr) != want) return true;
    } catch (const sim::Fault&) {
      return true;
    }
  return false;
}

TEST(DeltaMutations, EverySynchronisationIsNeeded) {
  const Scenario scenario;
  std::vector<sim::SyncSite> sites;
  const auto want = scenario.run(1, nullptr, &sites);
  for (const std::uint64_t seed : {2u, 3u, 0u}) ASSERT_EQ(scenario.run(seed, nullptr, nullptr), want);
  int count = 0;
  for (const sim::SyncSite& site : sites) {
    if (!is_ours(site)) continue;
    for (const sim::Mutation& mutation : sim::mutations_of(site)) {
      ++count;
      // Without it the next kernel starts later: no more than that.
      const bool harmless = site.op == sim::SyncOp::release_successors;
      EXPECT_EQ(is_caught(scenario, mutation, want), !harmless) << sim::describe(mutation);
    }
  }
  EXPECT_GT(count, 30);
}

TEST(DeltaMutations, AndInTheScanOfRealHeads) {
  const RealHeads scenario;
  std::vector<sim::SyncSite> sites;
  const auto want = scenario.run(1, nullptr, &sites);
  int count = 0;
  for (const sim::SyncSite& site : sites) {
    if (site.file != "prompt_scan.h" || site.op == sim::SyncOp::release_successors) continue;
    for (const sim::Mutation& mutation : sim::mutations_of(site)) {
      ++count;
      EXPECT_TRUE(is_caught(scenario, mutation, want)) << sim::describe(mutation);
    }
  }
  EXPECT_GT(count, 15);
}

}  // namespace
}  // namespace fourfold::delta
