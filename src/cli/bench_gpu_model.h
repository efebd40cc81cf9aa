// `fourfold bench model --backend cuda`: decoding and prompts of a whole model on a GPU, random weights at
// the true shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench_model_command.h"
#include "kernels/launch/machine.h"

namespace fourfold::cli {

// What of a bench a GPU with so much memory has room for, with this machine's kernels; nothing is allocated.
struct BenchFit {
  std::int64_t bytes = 0;  // of the lines that fit; more than there is where none does
  std::vector<int> users;  // that fit with every context
  std::string left_out;    // the other lines, with what they need; empty: none, or all
};
BenchFit fit_bench_gpu_model(const BenchModelOptions& options, const kernels::Machine& machine,
                             std::int64_t usable);

int run_bench_gpu_model(const BenchModelOptions& options, const Console& console);

}  // namespace fourfold::cli
