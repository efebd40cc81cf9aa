// `fourfold compare`: a model on a backend against the numbers another implementation computed from it.
#pragma once

#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct CompareOptions {
  std::string model;
  std::string reference;  // a safetensors file of reference outputs
  std::string backend = "cpu";
  std::string activations = "all";  // or auto, f32, w4a16, w4a4
  std::string kv = "auto";          // or bf16, fp8
  int threads = 0;
  int step_rows = 0;           // the most rows of a step; 0: a whole prompt
  std::string dense = "keep";  // these four: see library::BackendOptions
  std::string cache = {};
  bool rebuild_cache = false;
  std::string tuned = {};
  int tp = 1;  // these two, too
  std::string experts = "auto";
  bool json = false;
  bool strict = false;  // notices are errors
};

int run_compare(const CompareOptions& options, const Console& console);

}  // namespace fourfold::cli
