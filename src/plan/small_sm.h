// What SMs that hold the blocks of one kernel cost: the H200's times were measured where a block of the next
// kernel fits an SM beside one that still runs.
#pragma once

#include <array>
#include <span>
#include <string>

#include "plan/arch.h"

namespace fourfold::plan {

// Boundaries of a step that are left without that on `arch`: neighbours whose shared memory fits an SM of the
// H200 together, and not one of this.
int boundaries_apart(const ArchFacts& arch, std::span<const int> shared_memory_bytes);

// How much longer a step took on an H200 with SMs made as small as SM120's, as a share of it: the most of all
// runs with so many rows and so many tokens of context, or the next more that were measured
// (bench/results/small-sm-h200.txt, 35B; a test holds these against it). More than 32,768 tokens were not.
struct SmallSmLoss {
  int rows;
  int context;
  double share;
};
inline constexpr std::array<SmallSmLoss, 9> kSmallSmLoss{{{1, 0, 0.019},
                                                          {1, 4'096, 0},
                                                          {1, 32'768, 0},
                                                          {8, 0, 0.006},
                                                          {8, 4'096, 0.035},
                                                          {8, 32'768, 0.242},
                                                          {64, 0, 0.100},
                                                          {64, 4'096, 0.168},
                                                          {64, 32'768, 0.389}}};
inline constexpr int kSmallSmContextMost = 32'768;
double small_sm_share(int rows, double context);

}  // namespace fourfold::plan
