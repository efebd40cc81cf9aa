// `fourfold bench model`: prompts and decoding at the layer shapes of a published model, with random weights
// made in memory. As many layers as asked are run; what the whole model would do is computed from them and
// said to be.
#pragma once

#include <optional>
#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct BenchModelOptions {
  std::string backend = "cpu";
  std::string shape = "35b";
  int layers = 0;   // 0: 4 on the CPU, all on a GPU
  int threads = 0;  // 0: one per core
  int prompt = 256;
  int tokens = 32;
  std::string dense = "nvfp4";       // what is not a routed expert: nvfp4, fp8 or bf16
  std::string activations = "auto";  // w4a16, w4a4; auto: on a GPU as a model is served, on the CPU w4a16
  std::string isa;                   // empty: the best this CPU has
  bool tile_codes = false;           // NVFP4 weights on AMX's tile unit
  int tp = 1;                        // ranks, and how they share the experts: see BackendOptions
  std::string experts = "auto";
  // GPU alone.
  std::string users = "1";
  std::string contexts = "0";
  std::string mtp = "0";  // drafts a step: 0..5, or 0,1,3
  int chunk = 2048;       // rows of a prompt at a time
  int gpu = 0;
  bool graphs = true;
  bool stages = false;      // time the stages of a step apart
  std::string kv = "bf16";  // or fp8
  std::optional<double> memory_fraction;
  bool explain = false;  // say which kernels a step of each new shape runs with
  std::string ways;      // through a step, those that are on; empty: the usual ones
  std::string csv;
  std::string tuned;  // a tuning file, or none; empty: those of the program and of the user
};

int run_bench_model(const BenchModelOptions& options, const Console& console);

}  // namespace fourfold::cli
