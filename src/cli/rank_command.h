// `fourfold rank`: one rank of a model that `fourfold serve --nodes` serves from another machine.
#pragma once

#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct RankCommandOptions {
  std::string model;  // empty: what the leader calls it
  std::string join;   // HOST:PORT
  std::string token_file;
  int rank = -1;  // any
  int threads = 0;
  int first_cpu = 0;
  int gpu = 0;
  double wait = 600;  // seconds
  bool strict = false;
};

// kFine: the leader has ended.
int run_rank(const RankCommandOptions& options, const Console& console);

}  // namespace fourfold::cli
