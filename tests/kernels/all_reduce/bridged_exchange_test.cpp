// Ranks whose kernels meet through a thread of the host: each has a simulated GPU and memory of its own, as
// processes have, and what one sends reaches the other through Carry alone.
#include "kernels/all_reduce/bridged_exchange.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::all_reduce {
namespace {

constexpr int kColumns = 64, kGathered = 24;

// What stands for the network: everybody's part, when all have come. A rank that gives up ends it for all.
class Meeting {
 public:
  explicit Meeting(int ranks) : parts_(static_cast<std::size_t>(ranks)) {}
  void carry(int rank, std::string_view where, std::span<const float> part, std::span<float> all) {
    std::unique_lock lock(mutex_);
    wheres_.emplace_back(where);
    parts_[static_cast<std::size_t>(rank)].assign(part.begin(), part.end());
    const int call = call_;
    if (++came_ == static_cast<int>(parts_.size())) {
      came_ = 0;
      ++call_;
      together_.clear();
      for (const auto& one : parts_) together_.insert(together_.end(), one.begin(), one.end());
    }
    news_.notify_all();
    news_.wait(lock, [&] { return call_ != call || !why_.empty(); });
    if (call_ == call) fail(Code::device_lost, "{}", why_);
    ASSERT_EQ(all.size(), together_.size()) << "all ranks send as much";
    std::ranges::copy(together_, all.begin());
  }
  void give_up(const std::string& why) {
    const std::lock_guard lock(mutex_);
    why_ = why;
    news_.notify_all();
  }
  void mend() {
    const std::lock_guard lock(mutex_);
    why_.clear();
    came_ = 0;
  }
  std::vector<std::string> wheres() const {
    const std::lock_guard lock(mutex_);
    return wheres_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::vector<std::vector<float>> parts_;
  std::vector<float> together_;
  std::vector<std::string> wheres_;
  std::string why_;
  int came_ = 0, call_ = 0;
};

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

// Of very different sizes: another order of additions gives other bits.
std::vector<float> numbers(std::size_t count, unsigned seed, int rank) {
  std::mt19937 random(100 * seed + static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& number : out) number = normal(random) * (rank == 1 ? 1e6f : rank == 2 ? 1e-3f : 1.0f);
  return out;
}

struct Results {
  std::vector<float> x, gathered;
  std::vector<std::uint16_t> normed;
  bool operator==(const Results&) const = default;
};

// Sums of one piece and of several, one with the norm behind it, and gathered columns: by any exchange.
Results run_rank(int rank, int ranks, Exchange& exchange, kernels::Machine& machine, int rows, bool norms) {
  kernels::Arena arena(machine.memory());
  const std::size_t count = static_cast<std::size_t>(rows) * kColumns;
  auto* x = arena.upload(numbers(count, 1, 0), "x");
  auto* part = arena.upload(numbers(count, 2, rank), "part");
  auto* columns = arena.upload(numbers(static_cast<std::size_t>(rows) * kGathered, 3, rank), "columns");
  auto* all = arena.take<float>(static_cast<std::size_t>(rows * ranks) * kGathered, "all");
  auto* weight = arena.upload(numbers(kColumns, 4, 0), "weight");
  auto* normed = arena.take<std::uint16_t>(count, "normed");
  exchange.begin_work();
  exchange.launch(rank, x, part, rows, 0);
  if (norms) {
    const auto more = numbers(count, 5, rank);
    machine.memory().write(part, more.data(), count * 4);
    exchange.launch_norm(rank, x, part, rows, {weight, 1e-6f, normed}, 1);
  }
  exchange.gather(rank, rows, {columns, kGathered, kGathered - 4, all, ranks * (kGathered - 4)}, 2);
  Results out{std::vector<float>(count),
              std::vector<float>(static_cast<std::size_t>(rows * ranks) * (kGathered - 4)),
              {}};
  machine.memory().read(out.x.data(), x, count * 4);
  machine.memory().read(out.gathered.data(), all, out.gathered.size() * 4);
  if (norms) {
    out.normed.resize(count);
    machine.memory().read(out.normed.data(), normed, count * 2);
  }
  exchange.end_work();
  exchange.rethrow_failure();
  exchange.require_answers(rank);
  return out;
}

template <class Run>
std::vector<Results> on_all(int ranks, const Run& run) {
  std::vector<Results> out(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { out[static_cast<std::size_t>(rank)] = run(rank); });
  threads.clear();
  return out;
}

TEST(BridgedExchange, TheBitsOfRanksInOneProcess) {
  constexpr int kRanks = 3;
  for (const int rows : {1, 2, 300}) {  // more than 256 go in pieces
    const bool norms = rows <= 2;
    const auto peers = std::make_shared<sim::PeerMemory>(kRanks);
    std::vector<std::unique_ptr<sim::Device>> devices;
    std::vector<std::unique_ptr<kernels::Machine>> machines;
    Exchange together({.ranks = kRanks, .way = Way::one_shot, .blocks = 2, .wait_seconds = 600});
    for (int rank = 0; rank < kRanks; ++rank) {
      devices.push_back(std::make_unique<sim::Device>(
          sim::DeviceOptions{.memory_bytes = 1 << 24, .peers = peers, .rank = rank}));
      machines.push_back(kernels::make_sim_machine(*devices.back()));
      together.join(rank, *machines.back(), kColumns, rows, kGathered);
    }
    const auto wanted = on_all(kRanks, [&](int rank) {
      return run_rank(rank, kRanks, together, *machines[static_cast<std::size_t>(rank)], rows, norms);
    });
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
