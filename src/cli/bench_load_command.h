// `fourfold bench load`: how fast a MODEL gets onto a GPU, beside what its two roads can carry in the same
// run: reading the files, and copying from the host to the device.
#pragma once

#include <string>

#include "cli/console.h"
#include "library/backend_options.h"

namespace fourfold::cli {

struct BenchLoadOptions {
  std::string model;
  library::BackendOptions backend{.backend = "cuda"};  // or sim
  bool cold = false;                                   // files leave the page cache before they are read
};

int run_bench_load(const BenchLoadOptions& options, const Console& console);

}  // namespace fourfold::cli
