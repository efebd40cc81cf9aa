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
inline constexpr std::array<SmallSmLoss, 9> kSmallSmLoss{{{1, 0, 0.061},
                                                          {1, 4'096, 0.035},
                                                          {1, 32'768, 0.026},
                                                          {8, 0, 0.002},
                                                          {8, 4'096, 0.026},
                                                          {8, 32'768, 0.225},
                                                          {64, 0, 0.084},
                                                          {64, 4'096, 0.175},
                                                          {64, 32'768, 0.376}}};
inline constexpr int kSmallSmContextMost = 32'768;
double small_sm_share(int rows, double context);

}  // namespace fourfold::plan
