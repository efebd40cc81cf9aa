// NCCL's sums beside ours: the same numbers within rounding, and their latency.
#pragma once

#include <functional>
#include <vector>

#include "kernels/all_reduce/nccl.h"
#include "kernels/bench/all_reduce_bench.h"

namespace fourfold::bench {

struct NcclTime {
  int rows = 0;
  double median_us = 0;  // of a call, launched one by one
  double best_us = 0;
  double worst_us = 0;
  double difference = 0;  // from sums in the order of ranks, at most: of what another order may make it
};

// nccl is connected, a rank for each machine. Throws device_lost where a sum is no sum of the parts in any
// order.
std::vector<NcclTime> bench_nccl(all_reduce::Nccl& nccl, const std::vector<kernels::Machine*>& machines,
                                 const std::vector<void*>& streams, const AllReduceBenchOptions& options,
                                 const std::function<void(int rank)>& enter);

}  // namespace fourfold::bench
