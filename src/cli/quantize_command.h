// `fourfold quantize`: a 16-bit checkpoint to NVFP4, with a report of what it cost.
#pragma once

#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct QuantizeOptions {
  std::string in;
  std::string out;
  std::string format = "modelopt";  // or compressed-tensors
  std::string dense = "keep";       // or fp8, nvfp4: attention, DeltaNet, shared experts, dense MLPs
  std::string report;               // a file for the JSON of every matrix
  bool json = false;
  bool strict = false;  // notices are errors
};

int run_quantize(const QuantizeOptions& options, const Console& console);

}  // namespace fourfold::cli
