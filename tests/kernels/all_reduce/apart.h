// Ranks that share no memory, as those of several processes: what stands for the network between them, and
// the same calls by any exchange, to compare with ranks of one process.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "kernels/all_reduce/exchange.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::all_reduce {

inline constexpr int kColumns = 64, kGathered = 24;

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
  void require_all_there() const {
    const std::lock_guard lock(mutex_);
    if (!why_.empty()) fail(Code::device_lost, "{}", why_);
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

// Of very different sizes: another order of additions gives other bits.
inline std::vector<float> numbers(std::size_t count, unsigned seed, int rank) {
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
inline Results run_rank(int rank, int ranks, Exchange& exchange, kernels::Machine& machine, int rows,
                        bool norms) {
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

inline std::vector<Results> results_of_one_process(int ranks, int rows, bool norms) {
  const auto peers = std::make_shared<sim::PeerMemory>(ranks);
  std::vector<std::unique_ptr<sim::Device>> devices;
  std::vector<std::unique_ptr<kernels::Machine>> machines;
  Exchange together({.ranks = ranks, .way = Way::one_shot, .blocks = 2, .wait_seconds = 600});
  for (int rank = 0; rank < ranks; ++rank) {
    devices.push_back(std::make_unique<sim::Device>(
        sim::DeviceOptions{.memory_bytes = 1 << 24, .peers = peers, .rank = rank}));
    machines.push_back(kernels::make_sim_machine(*devices.back()));
    together.join(rank, *machines.back(), kColumns, rows, kGathered);
  }
  return on_all(ranks, [&](int rank) {
    return run_rank(rank, ranks, together, *machines[static_cast<std::size_t>(rank)], rows, norms);
  });
}

}  // namespace fourfold::all_reduce
