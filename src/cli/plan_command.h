// `fourfold plan`: rows and their bytes, the walk through one tile, and which rows a layer would run with.
#pragma once

#include <string>
#include <vector>

#include "cli/console.h"

namespace fourfold::cli {

struct PlanOptions {
  std::string archs = "sm120";  // comma separated
  bool json = false;
  std::string explain;   // a tile, "256x128x128"
  bool picture = false;  // the best known overflow as a picture
  bool choose = false;
  std::string shape;                 // 35b, 122b, 397b, 397b-tp4 or H,I,E,k
  int matrix = 0;                    // columns of a dense matrix with FP4 inputs, in place of a shape
  std::string tokens;                // comma separated
  std::string activations = "auto";  // w4a16, w4a4; auto: FP4 prompts where the chip has the instruction
  std::string format = "nvfp4";
  std::string role = "both";
  bool strict = false;
};

// Throws Error for what it cannot read.
int run_plan(const PlanOptions& options, const Console& console);

}  // namespace fourfold::cli
