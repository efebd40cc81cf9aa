// `fourfold bench moe`: the whole layer on a GPU, timed.
#pragma once

#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct BenchMoeOptions {
  std::string shape = "35b";
  std::string tokens = "1,4,16,64,1024,8192";
  std::string rows;                 // glob, or all; empty: the rows a layer would choose
  std::string routing = "uniform";  // uniform, zipf, same, all
  std::string format = "nvfp4";
  std::string activations = "w4a16";
  int prefill_from = 256;  // token counts from here on are timed as prompts
  bool parts = false;      // also each kernel of the layer alone
  std::string csv;
  int gpu = 0;
  std::string command;  // as typed, for the CSV
  bool strict = false;
};

int run_bench_moe(const BenchMoeOptions& options, const Console& console);

}  // namespace fourfold::cli
