// The all-reduce on several simulated devices, each with a host thread of its own that takes its turns as a
// seed decides: sums, races, and ranks that do not come.
#include "kernels/all_reduce/all_reduce.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "kernels/all_reduce/rows.h"
#include "kernels/launch/sim_row.h"
#include "sim/device.h"

namespace fourfold::all_reduce {
namespace {

using plan::Sm120;
constexpr int kColumns = 72;
constexpr int kRows = 4;
constexpr std::uint64_t kPatience = 5'000'000;  // turns * 1,000

enum class Kind { sum, norm, gather };

struct Ranks {
  std::shared_ptr<sim::PeerMemory> peers;
  std::vector<std::unique_ptr<sim::Device>> devices;
  AllReduceParams params{};               // first_rank is each rank's own
  std::vector<const float*> norm_weight;  // by rank
  std::vector<std::string> failures;

  template <class T>
  T* shared(std::size_t count, const char* name, bool zero) {
    auto* words = static_cast<T*>(peers->allocate(count * sizeof(T), name));
    if (zero) peers->write_from_host(words, std::vector<T>(count).data(), count * sizeof(T));
    return words;
  }
  template <class T>
  T* own(int rank, const std::vector<T>& values, const char* name) {
    sim::Device& device = *devices[static_cast<std::size_t>(rank)];
    T* words = device.allocate_array<T>(values.size(), name);
    device.write_from_host(words, values.data(), values.size() * sizeof(T));
    return words;
  }

  Ranks(int ranks, Way way, std::uint64_t seed) : peers(std::make_shared<sim::PeerMemory>(ranks, seed)) {
    const auto wide = static_cast<std::size_t>(ranks);
    constexpr int blocks = 2;
    params.ranks = ranks;
    params.blocks = blocks;
    params.columns = kColumns;
    params.gather_columns = kColumns;
    params.out_stride = ranks * kColumns;
    params.capacity = kRows * kColumns / 4;
    if (way == Way::two_shot) params.capacity = (params.capacity + ranks - 1) / ranks;
    params.wait_nanoseconds = kPatience;
    const std::size_t buffer = 2 * wide * static_cast<std::size_t>(params.capacity);
    params.stop = shared<std::uint32_t>(1, "stop", true);
    auto* box = shared<F32x4>(buffer, "mailbox", false);
    auto* box_flags = shared<std::uint32_t>(2 * wide * blocks, "mailbox flags", true);
    failures.resize(wide);
    for (int r = 0; r < ranks; ++r) {
      devices.push_back(std::make_unique<sim::Device>(
          sim::DeviceOptions{.memory_bytes = 1 << 22, .peers = peers, .rank = r}));
      devices.back()->set_seed(seed == 0 ? 0 : seed + static_cast<std::uint64_t>(r));
      RankPlaces& places = params.rank[r];
      places.x = own(r, std::vector<float>(wide * kRows * kColumns), "x");
      places.normed = own(r, std::vector<std::uint16_t>(kRows * kColumns), "normed");
      norm_weight.push_back(own(r, std::vector<float>(kColumns, 1.0f), "norm weight"));
      places.part = own(r, std::vector<float>(kRows * kColumns), "part");
      places.receive = way == Way::host ? box : shared<F32x4>(buffer, "received", false);
      places.sums = shared<F32x4>(buffer, "sums", false);
      places.flags = way == Way::host ? box_flags : shared<std::uint32_t>(2 * wide * blocks, "flags", true);
      places.epochs = own(r, std::vector<std::uint32_t>(blocks, 1), "epochs");
      places.report = shared<std::uint32_t>(wide, "report", true);
    }
  }

  static float number(int rank, int call, std::size_t at) {
    return static_cast<float>(
               static_cast<std::int32_t>(random_bits(static_cast<std::uint64_t>(1 + rank + 16 * call), at))) *
           0x1p-20f;
  }

  // Every rank makes `calls` calls; one of them stops before its call number `until`.
  void run(Way way, int calls, std::optional<int> stopping = {}, int until = 0, Kind kind = Kind::sum) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < params.ranks; ++rank)
      threads.emplace_back([=, this] {
        peers->enter(rank);
        try {
          for (int call = 0; call < calls && !(stopping == rank && call >= until); ++call)
            run_call(way, kind, rank, call);
        } catch (const std::exception& error) {
          failures[static_cast<std::size_t>(rank)] = error.what();
        }
        peers->leave(rank);
      });
    for (std::thread& thread : threads) thread.join();
  }

  void run_call(Way way, Kind kind, int rank, int call) {
    sim::Device& device = *devices[static_cast<std::size_t>(rank)];
    AllReduceParams mine = params;
    mine.first_rank = rank;
    mine.norm_weight = norm_weight[static_cast<std::size_t>(rank)];
    mine.rows = 1 + (3 * call + 1) % kRows;
    std::vector<float> part;
    for (std::size_t i = 0; i < static_cast<std::size_t>(mine.rows * kColumns); ++i)
      part.push_back(number(rank, call, i));
    device.synchronize();
    device.write_from_host(mine.rank[rank].part, part.data(), part.size() * 4);
    const auto launch = [&]<Way W>() {
      if constexpr (W != Way::two_shot) {
        if (kind == Kind::norm) kernels::run_on_sim<AllReduceNormRow<Sm120, W>>(device, mine.blocks, mine);
        if (kind == Kind::gather) kernels::run_on_sim<AllGatherRow<Sm120, W>>(device, mine.blocks, mine);
      }
      if (kind == Kind::sum) kernels::run_on_sim<AllReduceRow<Sm120, W>>(device, mine.blocks, mine);
    };
    if (way == Way::one_shot) launch.template operator()<Way::one_shot>();
    if (way == Way::two_shot) launch.template operator()<Way::two_shot>();
    if (way == Way::host) launch.template operator()<Way::host>();
  }

  void expect_sums(int calls) {
    std::vector<float> want(kRows * kColumns);
    for (int call = 0; call < calls; ++call)
      for (std::size_t i = 0; i < static_cast<std::size_t>((1 + (3 * call + 1) % kRows) * kColumns); ++i) {
        float sum = number(0, call, i);
        for (int r = 1; r < params.ranks; ++r) sum += number(r, call, i);
        want[i] += sum;
      }
    for (int r = 0; r < params.ranks; ++r) {
      EXPECT_EQ(failures[static_cast<std::size_t>(r)], "") << "rank " << r;
      std::vector<float> got(want.size());
      devices[static_cast<std::size_t>(r)]->read_to_host(got.data(), params.rank[r].x, got.size() * 4);
      EXPECT_EQ(got, want) << "rank " << r;
    }
  }

  // Whether `rank` gave `source` up.
  bool gave_up(int rank, int source) {
    std::uint32_t word = 0;
    peers->read_to_host(&word, params.rank[rank].report + source, 4);
    return word != 0;
  }
};

class AllReduceWays : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, AllReduceWays, ::testing::Values(Way::one_shot, Way::two_shot, Way::host),
                         [](const auto& of) { return std::string(way_name(of.param)); });

TEST_P(AllReduceWays, SumsOnSeveralDevicesWhateverTheOrder) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Ranks ranks(seed % 2 == 0 ? 4 : 3, GetParam(), seed);
    ranks.params.overlaps = seed > 3 ? 1 : 0;  // the next call's kernel comes while this one waits
    ranks.run(GetParam(), 5);
    ranks.expect_sums(5);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

// Every synchronisation is needed: without it a run is a fault, or somebody waits in vain.
void expect_every_one_needed(Way way, Kind kind) {
  Ranks whole(2, way, 3);
  whole.params.overlaps = 1;
  whole.run(way, 4, {}, 0, kind);
  EXPECT_EQ(whole.failures, std::vector<std::string>(2));
  int flags = 0, barriers = 0;
  for (const sim::SyncSite& site : whole.devices[0]->executed_sites()) {
    flags += site.op == sim::SyncOp::store_release || site.op == sim::SyncOp::load_acquire;
    barriers += site.op == sim::SyncOp::sync_block;
    bool found = false;
    for (std::uint64_t seed = 1; seed <= 8 && !found; ++seed) {
      Ranks ranks(2, way, seed);
      ranks.params.overlaps = 1;
      for (auto& device : ranks.devices) device->install({site});
      ranks.run(way, 4, {}, 0, kind);
      found = !ranks.failures[0].empty() || !ranks.failures[1].empty() || ranks.gave_up(0, 1) ||
              ranks.gave_up(1, 0);
    }
    // Without it the next kernel starts when this one has ended: no more than that.
    EXPECT_EQ(found, site.op != sim::SyncOp::release_successors) << sim::describe({site});
  }
  EXPECT_GE(flags, 2);
  EXPECT_GE(barriers, kind == Kind::norm ? 3 : 2);
}

TEST_P(AllReduceWays, EveryFlagAndBarrierIsNeeded) { expect_every_one_needed(GetParam(), Kind::sum); }

TEST(AllReduceMutations, EveryFlagAndBarrierOfNormAndGatherIsNeeded) {
  for (const Way way : {Way::one_shot, Way::host})
    for (const Kind kind : {Kind::norm, Kind::gather}) expect_every_one_needed(way, kind);
}

TEST_P(AllReduceWays, ARankThatStopsIsGivenUpByAllOthers) {
  constexpr int calls = 4;
  for (int stopping = 0; stopping < 3; ++stopping)
    for (int until = 0; until < calls; ++until) {
      Ranks ranks(3, GetParam(), static_cast<std::uint64_t>(7 + until));
      ranks.run(GetParam(), calls, stopping, until);
      for (int rank = 0; rank < 3; ++rank) {
        if (rank == stopping) continue;
        EXPECT_EQ(ranks.failures[static_cast<std::size_t>(rank)], "");
        EXPECT_TRUE(ranks.gave_up(rank, stopping)) << rank << " of " << stopping << " at " << until;
      }
      if (HasFailure()) return;
    }
}

TEST_P(AllReduceWays, StopEndsEveryWait) {
  Ranks ranks(2, GetParam(), 5);
  ranks.params.wait_nanoseconds = ~std::uint64_t{0};
  const std::uint32_t one = 1;
  ranks.peers->write_from_host(const_cast<std::uint32_t*>(ranks.params.stop), &one, 4);
  ranks.run(GetParam(), 2, 1, 0);
  EXPECT_TRUE(ranks.gave_up(0, 1));
}

}  // namespace
}  // namespace fourfold::all_reduce
