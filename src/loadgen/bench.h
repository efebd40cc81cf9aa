// Runs a grid against a server: prompts made, warm-up, load, measures.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "loadgen/driver.h"
#include "loadgen/report.h"
#include "loadgen/target.h"

namespace fourfold::loadgen {

struct BenchOptions {
  std::vector<Cell> cells;
  Bounds bounds;
  Limits limits;
  double burstiness = 1;  // of cells with a rate
  std::uint64_t seed = 1;
  std::int64_t warmup = 1;  // requests before each cell, of its prompts and few tokens
  std::int64_t repeat = 1;
  std::optional<double> time_limit_s;  // cells that have not begun by then are skipped
  std::optional<CostInputs> cost;
  // Output tokens a second that memory allows for so many users at this context; empty: not known.
  std::function<double(std::int64_t users, double context)> floor = {};
  std::function<bool()> stop = {};
};

// How far a run is.
struct BenchProgress {
  std::size_t cell_index = 0, cell_count = 0;
  std::string cell;
  std::int64_t repeat = 0;
  std::string stage;  // "prompts", "warm-up", "load"
  Progress load;
  double seconds = 0;  // of this load
};

// Rows, what was skipped, notes; the header is the caller's.
Report run_bench(const Target& target, const BenchOptions& options,
                 const std::function<void(const BenchProgress&)>& show);

}  // namespace fourfold::loadgen
