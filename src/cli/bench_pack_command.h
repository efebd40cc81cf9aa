// `fourfold bench pack`: how fast checkpoint matrices become records, on the host's cores and on the GPU.
#pragma once

#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct BenchPackOptions {
  std::string shape = "35b";  // gate and up of its experts are packed
  int experts = 8;
  std::string format = "nvfp4";
  int rounds = 5;
  int gpu = 0;
  bool strict = false;
};

int run_bench_pack(const BenchPackOptions& options, const Console& console);

}  // namespace fourfold::cli
