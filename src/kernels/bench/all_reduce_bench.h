// Latency of the all-reduce with its ranks on machines at hand: several streams of one GPU, or a GPU each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/all_reduce/ways.h"
#include "kernels/launch/machine.h"

namespace fourfold::bench {

struct AllReduceBenchOptions {
  std::vector<int> rows = {1, 2, 4, 8, 16, 32, 64};
  int columns = 4096;
  int blocks = 8;   // of a rank
  int calls = 100;  // in a graph
  int rounds = 7;   // replays that are timed
};

struct AllReduceTime {
  all_reduce::Way way{};
  bool norms = false;  // with the norm behind it
  int rows = 0;
  double median_us = 0;  // of a call, on the slowest rank
  double best_us = 0;
  double worst_us = 0;
};

// enter(rank) is called once in the rank's thread: selects its device.
std::vector<AllReduceTime> bench_all_reduce(const std::vector<kernels::Machine*>& machines,
                                            const AllReduceBenchOptions& options,
                                            const std::function<void(int rank)>& enter);

}  // namespace fourfold::bench
