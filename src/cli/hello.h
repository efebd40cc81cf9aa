// What `fourfold` alone says at a terminal: what it can do here, and the next three commands. Ten lines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/console.h"

namespace fourfold::cli {

struct HelloFacts {
  std::string version;
  struct Gpu {
    std::string name;
    double bytes = 0;
  };
  std::vector<Gpu> gpus;
  bool has_cuda = false;  // this program has kernels for GPUs
  int cores = 0;
  std::string cpu_kernels;          // "avx512"
  double memory_bytes = 0;          // 0: not known
  std::vector<std::string> models;  // of the hub cache, those that are whole
};

std::string hello_text(const HelloFacts& facts);

int run_hello(const Console& console);

}  // namespace fourfold::cli
