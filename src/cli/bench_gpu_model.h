// `fourfold bench model --backend cuda`: decoding and prompts of a whole model on a GPU, random weights at
// the true shapes.
#pragma once

#include <cstdint>

#include "cli/bench_model_command.h"
#include "kernels/launch/machine.h"

namespace fourfold::cli {

// What it would take of a GPU's memory with this machine's kernels; nothing is allocated on it.
std::int64_t bench_gpu_model_bytes(const BenchModelOptions& options, const kernels::Machine& machine);

int run_bench_gpu_model(const BenchModelOptions& options, const Console& console);

}  // namespace fourfold::cli
