// Ranks that gather by NCCL, which a library of the test stands in for: each has a simulated GPU and memory
// of its own.
#include "kernels/all_reduce/nccl_exchange.h"

#include "tests/kernels/all_reduce/apart.h"
#include "tests/kernels/all_reduce/fake_nccl.h"

namespace fourfold::all_reduce {
namespace {

using namespace std::chrono_literals;

struct Group {
  explicit Group(int ranks) : meeting(ranks) {}
  Meeting meeting;
  std::atomic<std::uint64_t> generation = 0;
  std::function<void()> before_looking = [] {};
  std::chrono::milliseconds connecting = 45s, heard = 6s;
};

struct Process {
  sim::Device device;
  std::unique_ptr<kernels::Machine> machine;
  std::unique_ptr<NcclExchange> exchange;

  Process(int rank, int ranks, Group& group, int rows)
      : device({.memory_bytes = 1 << 24, .peers = std::make_shared<sim::PeerMemory>(ranks), .rank = rank}),
        machine(kernels::make_sim_machine(device)),
        exchange(std::make_unique<NcclExchange>(
            NcclExchangeOptions{.ranks = ranks,
                                .rank = rank,
                                .blocks = 2,
                                .is_staged = true,
                                .connecting = group.connecting,
                                .heard = group.heard},
            std::make_unique<NcclMember>(FOURFOLD_FAKE_NCCL),
            NcclRendezvous{
                .carry = [&group, rank](
                             std::string_view where, std::span<const float> part,
                             std::span<float> all) { group.meeting.carry(rank, where, part, all); },
                .require_all_there =
                    [&group] {
                      group.before_looking();
                      group.meeting.require_all_there();
                    },
                .generation = [&group] { return group.generation.load(); },
                .fail_group = [](const std::string& why) { fail(Code::io, "all begin anew: {}", why); }})) {
    exchange->join(rank, *machine, kColumns, rows, kGathered);
  }
  // As PreparedGpu does in front of a call.
  Results run(int rank, int ranks, int rows, bool norms) {
    if (exchange->has_failed()) {
      machine->memory().wait();
      exchange->begin_anew();
    }
    return run_rank(rank, ranks, *exchange, *machine, rows, norms);
  }
};

TEST(NcclExchange, TheBitsOfRanksInOneProcess) {
  constexpr int kRanks = 3;
  for (const int rows : {1, 2, 300}) {
    const bool norms = rows <= 2;
    const auto wanted = results_of_one_process(kRanks, rows, norms);
    Group group(kRanks);
    std::vector<std::unique_ptr<Process>> processes;
    for (int rank = 0; rank < kRanks; ++rank)
      processes.push_back(std::make_unique<Process>(rank, kRanks, group, rows));
    EXPECT_TRUE(processes[0]->exchange->has_failed()) << "there is no group before the first call";
    for (int round = 0; round < 2; ++round)  // the second in the same group
      EXPECT_EQ(on_all(kRanks,
                       [&](int rank) {
                         return processes[static_cast<std::size_t>(rank)]->run(rank, kRanks, rows, norms);
                       }),
                wanted)
          << rows;
    EXPECT_EQ(group.meeting.wheres(), std::vector<std::string>(kRanks, "the id of NCCL's group"));
  }
}

// NCCL waits for ever for a rank that is gone. Whoever watches ends the group; when the ranks begin anew all
// of them make another, also one that had noticed nothing.
TEST(NcclExchange, ALostRankEndsTheGroupAndAnotherIsMade) {
  Group group(2);
  Process one(0, 2, group, 1), two(1, 2, group, 1);
  const auto run_both = [&] {
    return on_all(2, [&](int rank) { return (rank == 0 ? one : two).run(rank, 2, 1, true); });
  };
  const auto wanted = run_both();
  EXPECT_EQ(wanted[0], wanted[1]);
  std::jthread leaves([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    group.meeting.give_up("rank 1 was switched off");
  });
  EXPECT_THROW(one.run(0, 2, 1, true), std::exception);
  leaves.join();
  try {
    one.exchange->rethrow_failure();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 1 was switched off");
  }
  EXPECT_TRUE(one.exchange->has_failed());
  EXPECT_FALSE(two.exchange->has_failed()) << "it had nothing to do";
  group.meeting.mend();
  ++group.generation;
  EXPECT_TRUE(two.exchange->has_failed());
  EXPECT_EQ(run_both(), wanted);
  EXPECT_EQ(group.meeting.wheres().size(), 4u) << "an id for each group, brought by each rank";
}

// What a failed run says; "" when it did not fail.
std::string why_failed(const std::function<void()>& run) {
  try {
    run();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

// A rank that brought its part of the group's id, and no more: NCCL waits for it in ncclCommInitRank.
TEST(NcclExchange, ARankThatIsLostWhileTheGroupIsMadeIsNotWaitedFor) {
  Group group(2);
  Process one(0, 2, group, 1), two(1, 2, group, 1);
  std::jthread other([&] {
    std::vector<float> part(32), all(64);
    group.meeting.carry(1, "the id of NCCL's group", part, all);
    std::this_thread::sleep_for(100ms);
    group.meeting.give_up("rank 1 was switched off");
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(why_failed([&] { one.run(0, 2, 1, true); }), "rank 1 was switched off");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  other.join();
  group.meeting.mend();
  ++group.generation;
  const auto results = on_all(2, [&](int rank) { return (rank == 0 ? one : two).run(rank, 2, 1, true); });
  EXPECT_EQ(results, results_of_one_process(2, 1, true));
}

TEST(NcclExchange, ARankThatIsThereAndNeverJoinsMakesAllBeginAnew) {
  Group group(2);
  group.connecting = 200ms, group.heard = 50ms;
  Process one(0, 2, group, 1);
  std::jthread other([&] {
    std::vector<float> part(32), all(64);
    group.meeting.carry(1, "the id of NCCL's group", part, all);
  });
  const std::string why = why_failed([&] { one.run(0, 2, 1, true); });
  EXPECT_TRUE(why.starts_with("all begin anew: NCCL has not connected the 2 ranks within 200 ms")) << why;
}

// NCCL reports an error, and nobody is lost: it is nobody's end.
TEST(NcclExchange, AnErrorThatNobodyExplainsMakesAllBeginAnew) {
  const FakeNccl fake;
  Group group(2);
  group.heard = 200ms;
  Process one(0, 2, group, 1), two(1, 2, group, 1);
  const auto run_both = [&] {
    return on_all(2, [&](int rank) { return (rank == 0 ? one : two).run(rank, 2, 1, true); });
  };
  const auto wanted = run_both();
  std::jthread breaks([&] {
    std::this_thread::sleep_for(100ms);
    fake.tell(2);
  });
  const std::string why = why_failed([&] { one.run(0, 2, 1, true); });
  EXPECT_TRUE(why.starts_with("all begin anew: NCCL, ")) << why;
  EXPECT_NE(why.find("unhandled system error (2)"), std::string::npos) << why;
  EXPECT_TRUE(one.exchange->has_failed());
  breaks.join();
  fake.tell(0);
  ++group.generation;
  EXPECT_EQ(run_both(), wanted);
}

// Whoever looks may find a loss late. That is of the work that ends, not of the next.
TEST(NcclExchange, WorkEndsWhenNobodyLooksAnyMore) {
  Group group(1);
  std::atomic<bool> is_in = false, may_go = true;
  group.before_looking = [&] {
    is_in = true;
    while (!may_go) std::this_thread::sleep_for(1ms);
  };
  Process one(0, 1, group, 1);
  one.run(0, 1, 1, true);
  may_go = false;
  is_in = false;
  one.exchange->begin_work();
  while (!is_in) std::this_thread::sleep_for(1ms);
  std::atomic<bool> ended = false;
  std::jthread ends([&] {
    one.exchange->end_work();
    ended = true;
  });
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(ended);
  group.meeting.give_up("rank 1 was switched off");
  may_go = true;
  ends.join();
  EXPECT_EQ(why_failed([&] { one.exchange->rethrow_failure(); }), "rank 1 was switched off");
}

}  // namespace
}  // namespace fourfold::all_reduce
