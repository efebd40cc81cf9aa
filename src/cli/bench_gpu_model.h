// `fourfold bench model --backend cuda`: decoding and prompts of a whole model on a GPU, random weights at
// the true shapes.
#pragma once

#include "cli/bench_model_command.h"

namespace fourfold::cli {

int run_bench_gpu_model(const BenchModelOptions& options, const Console& console);

}  // namespace fourfold::cli
