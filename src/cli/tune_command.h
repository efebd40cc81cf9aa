// `fourfold tune`: which rows of equal bits are fastest on this GPU, measured, and kept in a file.
#pragma once

#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct TuneCommandOptions {
  std::string model;  // a checkpoint; or
  std::string shape;  // random weights of a published size
  std::string backend = "cuda";
  std::string out;  // empty: the user's folder
  std::string ops = "all";
  std::string users = "1,2,4,8,16,32,64";
  std::string prompts = "128,2048";
  std::string dense = "bf16";  // of a shape
  int context = 1000;          // no multiple of 64: there a step also writes the recurrent state
  int layers = 0;              // of a shape; 0: all
  int rounds = 9;
  double seconds = 60;  // of measuring, after loading
  int gpu = 0;
};

int run_tune(const TuneCommandOptions& options, const Console& console);

}  // namespace fourfold::cli
