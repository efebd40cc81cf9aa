#include "kernels/bench/all_reduce_bench.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "kernels/all_reduce/exchange.h"
#include "kernels/launch/arena.h"

namespace fourfold::bench {
namespace {

using all_reduce::Exchange;
using all_reduce::Way;
using Clock = std::chrono::steady_clock;

// What one rank measures: seconds of each replay, from the moment when all ranks are ready.
struct RankTimes {
  std::vector<double> seconds;
  std::string failure;
};

class WayBench {
 public:
  WayBench(const std::vector<kernels::Machine*>& machines, const AllReduceBenchOptions& options, Way way,
           bool norms, int rows, const std::function<void(int)>& enter)
      : machines_(machines),
        options_(options),
        norms_(norms),
        rows_(rows),
        exchange_({.ranks = static_cast<int>(machines.size()), .way = way, .blocks = options.blocks}),
        ready_(static_cast<std::ptrdiff_t>(machines.size())) {
    for (std::size_t rank = 0; rank < machines.size(); ++rank) {
      enter(static_cast<int>(rank));
      exchange_.join(static_cast<int>(rank), *machines[rank], options.columns, rows);
    }
  }

  AllReduceTime run(const std::function<void(int)>& enter) {
    std::vector<RankTimes> times(machines_.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < machines_.size(); ++rank)
      threads.emplace_back([&, rank] {
        try {
          enter(static_cast<int>(rank));
          measure(static_cast<int>(rank), times[rank]);
        } catch (const std::exception& error) {
          times[rank].failure = error.what();
          exchange_.stop();
          ready_.arrive_and_drop();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const RankTimes& rank : times)
      if (!rank.failure.empty()) throw Error(Code::device_lost, rank.failure);
    std::vector<double> slowest;
    for (std::size_t round = 0; round < times.front().seconds.size(); ++round) {
      double most = 0;
      for (const RankTimes& rank : times) most = std::max(most, rank.seconds[round]);
      slowest.push_back(1e6 * most / options_.calls);
    }
    std::sort(slowest.begin(), slowest.end());
    return {.norms = norms_,
            .rows = rows_,
            .median_us = slowest[slowest.size() / 2],
            .best_us = slowest.front(),
            .worst_us = slowest.back()};
  }

 private:
  void measure(int rank, RankTimes& times) {
    kernels::Machine& machine = *machines_[static_cast<std::size_t>(rank)];
    kernels::Arena arena(machine.memory());
    const auto count = static_cast<std::size_t>(rows_ * options_.columns);
    auto* x = arena.take<float>(count, "x");
    auto* part = arena.take<float>(count, "part");
    auto* normed = arena.take<std::uint16_t>(count, "normed");
    auto* weight = arena.take<float>(static_cast<std::size_t>(options_.columns), "weight");
    for (auto [start, bytes] : {std::pair<void*, std::size_t>{x, count * 4},
                                {part, count * 4},
                                {weight, static_cast<std::size_t>(options_.columns) * 4}})
      machine.memory().clear(start, bytes);
    const auto recording = machine.record([&] {
      for (int call = 0; call < options_.calls; ++call)
        if (norms_)
          exchange_.launch_norm(rank, x, part, rows_, {weight, 1e-6f, normed});
        else
          exchange_.launch(rank, x, part, rows_);
    });
    for (int round = 0; round < options_.rounds + 1; ++round) {  // the first one warms up
      machine.memory().wait();
      ready_.arrive_and_wait();
      const auto start = Clock::now();
      machine.replay(*recording);
      machine.memory().wait();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      exchange_.require_answers(rank);
      if (round > 0) times.seconds.push_back(seconds);
    }
  }

  const std::vector<kernels::Machine*>& machines_;
  const AllReduceBenchOptions& options_;
  bool norms_;
  int rows_;
  Exchange exchange_;
  std::barrier<> ready_;
};

}  // namespace

std::vector<AllReduceTime> bench_all_reduce(const std::vector<kernels::Machine*>& machines,
                                            const AllReduceBenchOptions& options,
                                            const std::function<void(int)>& enter) {
  std::vector<AllReduceTime> times;
  for (const Way way : {Way::one_shot, Way::two_shot, Way::host})
    for (const bool norms : {false, true}) {
      if (norms && way == Way::two_shot) continue;
      for (const int rows : options.rows) {
        times.push_back(WayBench(machines, options, way, norms, rows, enter).run(enter));
        times.back().way = way;
      }
    }
  return times;
}

}  // namespace fourfold::bench
