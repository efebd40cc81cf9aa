#include "kernels/all_reduce/exchange.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::all_reduce {
namespace {

constexpr int kColumns = 64;

struct Machines {
  std::vector<std::unique_ptr<sim::Device>> devices;
  std::vector<std::unique_ptr<kernels::Machine>> owned;
  std::vector<kernels::Machine*> machines;

  explicit Machines(int ranks) {
    const auto peers = std::make_shared<sim::PeerMemory>(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      devices.push_back(std::make_unique<sim::Device>(
          sim::DeviceOptions{.memory_bytes = 1 << 22, .peers = peers, .rank = rank}));
      owned.push_back(kernels::make_sim_machine(*devices.back()));
      machines.push_back(owned.back().get());
    }
  }
  void join(Exchange& exchange, int rows) {
    for (std::size_t rank = 0; rank < machines.size(); ++rank)
      exchange.join(static_cast<int>(rank), *machines[rank], kColumns, rows);
  }
};

TEST(Exchange, EveryWayGivesTheSumsAndTheyAreChecked) {
  for (const Way way : {Way::one_shot, Way::two_shot, Way::host}) {
    Machines all(3);
    Exchange exchange({.ranks = 3, .way = way, .blocks = 2, .wait_seconds = 60});
    for (std::size_t rank = 0; rank < all.machines.size(); ++rank)
      exchange.join(static_cast<int>(rank), *all.machines[rank], kColumns, 64, 2 * kColumns);
    std::atomic<int> loads = 0;
    EXPECT_EQ(
        check_values(
            exchange, all.machines,
            {.columns = kColumns, .rounds = 4, .gathered = 2 * kColumns, .load = [&](int) { ++loads; }}),
        "")
        << way_name(way);
    EXPECT_EQ(loads, 3 * 4) << "something runs beside every round";
  }
}

TEST(Exchange, ADamagedFlagIsFoundByTheCheck) {
  Machines all(2);
  Exchange exchange({.ranks = 2, .way = Way::one_shot, .blocks = 2, .wait_seconds = 60});
  all.join(exchange, 64);
  const sim::SyncSite* flag = nullptr;
  const ValueCheck once{.columns = kColumns, .rounds = 1};
  ASSERT_EQ(check_values(exchange, all.machines, once), "");
  for (const sim::SyncSite& site : all.devices[0]->executed_sites())
    if (site.op == sim::SyncOp::store_release) flag = &site;
  ASSERT_NE(flag, nullptr);
  all.devices[0]->install({*flag});
  EXPECT_NE(check_values(exchange, all.machines, once).find("race"), std::string::npos);
}

// Whoever finds something wrong tells the others to stop before anything is given back: nobody waits for it
// until its patience, an hour here, has ended.
TEST(Exchange, ARankThatEndsTheCheckEndsItForAll) {
  for (const Way way : {Way::one_shot, Way::two_shot}) {
    Machines all(2);
    Exchange exchange({.ranks = 2, .way = way, .blocks = 2, .wait_seconds = 3600});
    all.join(exchange, 64);
    int rounds = 0;
    const std::string wrong =
        check_values(exchange, all.machines, {.columns = kColumns, .rounds = 50, .load = [&](int rank) {
                                                if (rank == 1 && ++rounds == 3)
                                                  throw std::runtime_error("link");
                                              }});
    EXPECT_EQ(wrong, "link") << way_name(way);
  }
}

TEST(Exchange, RanksMeetOnTheHost) {
  Exchange exchange({.ranks = 3, .wait_seconds = 60});
  std::atomic<int> inside = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      for (int round = 0; round < 20; ++round) {
        ++inside;
        EXPECT_FALSE(exchange.meet(rank).has_value());
        EXPECT_GE(inside, 3 * (round + 1)) << "all have come this often";
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::optional<Exchange::Unanswered> missed;
  std::thread waiting([&] { missed = exchange.meet(0); });
  exchange.stop();
  waiting.join();
  ASSERT_TRUE(missed.has_value());
  EXPECT_EQ(missed->source, 1);
  Exchange hasty({.ranks = 2, .wait_seconds = 0.01});
  missed = hasty.meet(1);
  ASSERT_TRUE(missed.has_value());
  EXPECT_EQ(missed->source, 0);
  EXPECT_EQ(missed->why, "it waited 0.01 s");
}

TEST(Exchange, ARecordedCallCanBeReplayed) {
  Machines all(2);
  Exchange exchange({.ranks = 2, .way = Way::one_shot, .blocks = 1, .wait_seconds = 60});
  all.join(exchange, 1);
  std::vector<std::vector<float>> got(2, std::vector<float>(kColumns));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      kernels::Machine& machine = *all.machines[static_cast<std::size_t>(rank)];
      kernels::Arena arena(machine.memory());
      auto* x = arena.upload(std::vector<float>(kColumns, 1.0f), "x");
      auto* part = arena.upload(std::vector<float>(kColumns), "part");
      const auto recording = machine.record([&] { exchange.launch(rank, x, part, 1); });
      for (int call = 0; call < 3; ++call) {
        const std::vector<float> mine(kColumns, static_cast<float>(rank + 1));
        machine.memory().write(part, mine.data(), mine.size() * 4);
        machine.replay(*recording);
      }
      machine.memory().read(got[static_cast<std::size_t>(rank)].data(), x, kColumns * 4);
      exchange.require_answers(rank);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got[0], std::vector<float>(kColumns, 10.0f));
  EXPECT_EQ(got[1], got[0]);
}

TEST(Exchange, ALostRankIsNamed) {
  Machines all(2);
  Exchange exchange({.ranks = 2, .way = Way::host, .blocks = 1, .wait_seconds = 0.01});
  all.join(exchange, 1);
  kernels::Machine& machine = *all.machines[0];
  kernels::Arena arena(machine.memory());
  auto* x = arena.upload(std::vector<float>(kColumns), "x");
  auto* part = arena.upload(std::vector<float>(kColumns), "part");
  exchange.launch(0, x, part, 1, 7);
  try {
    exchange.require_answers(0);
    FAIL() << "nobody was missed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::device_lost);
    EXPECT_STREQ(error.what(), "rank 0 had no answer from rank 1: it waited 0.01 s");
    EXPECT_EQ(exchange.unanswered(0)->place, 7);
  }
}

TEST(Exchange, RefusesWhatCannotBe) {
  EXPECT_THROW(Exchange({.ranks = 9}), Error);
  Machines all(2);
  Exchange exchange({.ranks = 2});
  exchange.join(0, *all.machines[0], 64, 8);
  EXPECT_THROW(exchange.join(1, *all.machines[1], 128, 8), Error);
}

TEST(Exchange, GoesTheWayOfItsSize) {
  EXPECT_EQ(way_of(false, 4, 1, 4096), Way::host);
  EXPECT_EQ(way_of(true, 4, 1, 4096), Way::one_shot);
  EXPECT_EQ(way_of(true, 4, 2048, 4096), Way::two_shot);
  EXPECT_EQ(way_of(true, 2, 2048, 4096), Way::one_shot);  // as many bytes, a trip less
}

}  // namespace
}  // namespace fourfold::all_reduce
