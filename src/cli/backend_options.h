// Where and how a model runs; what every command that takes a MODEL asks.
#pragma once

#include <string>

namespace fourfold::cli {

struct BackendOptions {
  std::string backend = "cpu";  // cpu, cuda, sim or reference
  std::string activations = "auto";
  int threads = 0;           // 0: one per core
  bool strict = false;       // notices are errors
  bool keep_values = false;  // Prepared::value answers; the reference backend always does
  // cuda and sim.
  std::string dense = "keep";  // fp8, nvfp4: quantise the 16-bit matrices that are no routed experts
  std::string cache = {};      // a folder for packed copies; empty: none
  bool rebuild_cache = false;
};

}  // namespace fourfold::cli
