// `fourfold inspect`: what a checkpoint holds, which matrix has which format, and how fast a token can be
// decoded at best, on known GPUs and on this machine.
#pragma once

#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct InspectOptions {
  std::string model;
  double context = 0;   // positions a token attends to
  bool measure = true;  // this machine's memory; takes a second
  bool json = false;
  bool strict = false;  // notices are errors
};

int run_inspect(const InspectOptions& options, const Console& console);

}  // namespace fourfold::cli
