// `fourfold bench all-reduce`: latency of each way, with the ranks as streams of one GPU or with a GPU each,
// and what the model of a PCIe bus says.
#pragma once

#include <string>
#include <vector>

#include "cli/console.h"

namespace fourfold::cli {

struct BenchAllReduceOptions {
  int ranks = 4;
  std::vector<int> rows = {1, 2, 4, 8, 16, 32, 64};
  int columns = 4096;
  int blocks = 8;
  int rounds = 7;
  int gpu = 0;
  bool sim = false;       // on the simulator: executed, its times say nothing
  bool each_gpu = false;  // rank r on GPU gpu + r
  std::string nccl;       // its library's file: its sums beside ours; empty: without
  std::string json;       // a file
  std::string command;    // as typed, for the record
};

int run_bench_all_reduce(const BenchAllReduceOptions& options, const Console& console);

}  // namespace fourfold::cli
