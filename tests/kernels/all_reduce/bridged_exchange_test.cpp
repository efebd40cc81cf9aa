// Ranks whose kernels meet through a thread of the host: each has a simulated GPU and memory of its own, as
// processes have, and what one sends reaches the other through Carry alone.
#include "kernels/all_reduce/bridged_exchange.h"

#include <gtest/gtest.h>

#include "tests/kernels/all_reduce/apart.h"

namespace fourfold::all_reduce {
namespace {

// One rank with all that its process would have.
struct Process {
  sim::Device device;
  std::unique_ptr<kernels::Machine> machine;
  std::unique_ptr<BridgedExchange> exchange;

  Process(int rank, int ranks, Meeting& meeting, int rows)
      : device({.memory_bytes = 1 << 24, .peers = std::make_shared<sim::PeerMemory>(ranks), .rank = rank}),
        machine(kernels::make_sim_machine(device)),
        exchange(std::make_unique<BridgedExchange>(
            BridgeOptions{.ranks = ranks, .rank = rank, .blocks = 2},
            [&meeting, rank](std::string_view where, std::span<const float> part, std::span<float> all) {
              meeting.carry(rank, where, part, all);
            })) {
    exchange->join(rank, *machine, kColumns, rows, kGathered);
  }
};

TEST(BridgedExchange, TheBitsOfRanksInOneProcess) {
  constexpr int kRanks = 3;
  for (const int rows : {1, 2, 300}) {  // more than 256 go in pieces
    const bool norms = rows <= 2;
    const auto wanted = results_of_one_process(kRanks, rows, norms);
    Meeting meeting(kRanks);
    std::vector<std::unique_ptr<Process>> processes;
    for (int rank = 0; rank < kRanks; ++rank)
      processes.push_back(std::make_unique<Process>(rank, kRanks, meeting, rows));
    for (const auto& process : processes) process->exchange->name_places({"first", "second", "third"});
    const auto got = on_all(kRanks, [&](int rank) {
      Process& mine = *processes[static_cast<std::size_t>(rank)];
      return run_rank(rank, kRanks, *mine.exchange, *mine.machine, rows, norms);
    });
    EXPECT_EQ(got, wanted) << rows;
    EXPECT_EQ(got[0].x, got[2].x) << rows;
    const std::vector<std::string> wheres = meeting.wheres();
    EXPECT_EQ(std::ranges::count(wheres, "first"), kRanks * (rows > 256 ? 2 : 1));
    EXPECT_EQ(std::ranges::count(wheres, "second"), norms ? kRanks : 0);
    EXPECT_GE(std::ranges::count(wheres, "third"), kRanks);
  }
}

TEST(BridgedExchange, ARecordedCallIsCarriedWithEveryReplay) {
  Meeting meeting(2);
  Process one(0, 2, meeting, 1), two(1, 2, meeting, 1);
  std::vector<std::vector<float>> got(2, std::vector<float>(kColumns));
  {
    std::vector<std::jthread> threads;
    for (Process* process : {&one, &two})
      threads.emplace_back([&, process] {
        const int rank = process == &one ? 0 : 1;
        kernels::Machine& machine = *process->machine;
        kernels::Arena arena(machine.memory());
        auto* x = arena.upload(std::vector<float>(kColumns, 1.0f), "x");
        auto* part = arena.upload(std::vector<float>(kColumns), "part");
        const auto recording = machine.record([&] { process->exchange->launch(rank, x, part, 1); });
        EXPECT_FALSE(process->exchange->meet(rank).has_value());
        for (int call = 0; call < 3; ++call) {
          const std::vector<float> mine(kColumns, static_cast<float>(rank + 1));
          machine.memory().write(part, mine.data(), mine.size() * 4);
          process->exchange->begin_work();
          machine.replay(*recording);
          machine.memory().wait();
          process->exchange->end_work();
        }
        machine.memory().read(got[static_cast<std::size_t>(rank)].data(), x, kColumns * 4);
        process->exchange->require_answers(rank);
      });
  }
  EXPECT_EQ(got[0], std::vector<float>(kColumns, 10.0f));
  EXPECT_EQ(got[1], got[0]);
}

// A rank that does not come: the kernels that wait end, what Carry threw is thrown, and the same machine goes
// on when all are there again.
TEST(BridgedExchange, ALostRankEndsTheCallAndTheGroupBeginsAnew) {
  Meeting meeting(2);
  Process one(0, 2, meeting, 1), two(1, 2, meeting, 1);
  std::jthread waits([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    meeting.give_up("rank 1 was switched off");
  });
  try {
    run_rank(0, 2, *one.exchange, *one.machine, 1, false);
    FAIL() << "nobody was missed";
  } catch (const std::exception&) {  // the simulator also refuses to read what nobody has written
  }
  try {
    one.exchange->rethrow_failure();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::device_lost);
    EXPECT_STREQ(error.what(), "rank 1 was switched off");
  }
  EXPECT_TRUE(one.exchange->has_failed());
  EXPECT_FALSE(two.exchange->has_failed()) << "it had nothing to do";
  waits.join();
  meeting.mend();
  one.machine->memory().wait();
  one.exchange->begin_anew();
  EXPECT_FALSE(one.exchange->has_failed());
  const auto got = on_all(2, [&](int rank) {
    Process& mine = rank == 0 ? one : two;
    return run_rank(rank, 2, *mine.exchange, *mine.machine, 1, true);
  });
  EXPECT_EQ(got[0], got[1]);
}

// Without anybody who carries, the kernels' own patience ends the wait and names a rank.
TEST(BridgedExchange, WhoeverNeverComesIsNamed) {
  Meeting meeting(2);
  sim::Device device({.memory_bytes = 1 << 22, .peers = std::make_shared<sim::PeerMemory>(2), .rank = 0});
  const auto machine = kernels::make_sim_machine(device);
  BridgedExchange exchange({.ranks = 2, .rank = 0, .blocks = 1, .wait_seconds = 0.01},
                           [](std::string_view, std::span<const float>, std::span<float>) {
                             std::this_thread::sleep_for(std::chrono::milliseconds(200));
                             fail(Code::device_lost, "too late");
                           });
  exchange.join(0, *machine, kColumns, 1, kGathered);
  kernels::Arena arena(machine->memory());
  auto* x = arena.upload(std::vector<float>(kColumns), "x");
  auto* part = arena.upload(std::vector<float>(kColumns), "part");
  exchange.begin_work();
  exchange.launch(0, x, part, 1, 7);
  machine->memory().wait();
  const auto lost = exchange.unanswered(0);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->source, 1);
  EXPECT_EQ(lost->place, 7);
  EXPECT_TRUE(exchange.has_failed());
}

}  // namespace
}  // namespace fourfold::all_reduce
