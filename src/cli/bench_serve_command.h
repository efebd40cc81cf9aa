// `fourfold bench serve`: load for ours or any OpenAI-compatible server, measured as users measure.
// `fourfold bench diff`: two of its results against each other. docs/bench.md has the definitions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct BenchServeOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string api_key;  // empty: FOURFOLD_API_KEY of the environment
  std::string served_model;
  std::string api = "chat";  // or completions
  std::string preset;        // field
  std::string users = "1";
  std::string contexts = "0";
  std::string outputs = "128";
  std::string prompts = "natural";
  std::string thinking;  // on, off; empty: off for chat
  std::int64_t rounds = 2;
  std::string request_rates;   // 1,2,inf
  std::int64_t requests = 64;  // of each rate
  double burstiness = 1;
  std::optional<std::int64_t> concurrency;
  std::int64_t warmup = 1;
  std::int64_t repeat = 1;
  std::uint64_t seed = 1;
  double temperature = 0;
  double timeout_s = 600;
  double scale = 1;
  std::optional<std::int64_t> max_users, max_context, max_output, max_positions;
  std::optional<double> time_limit_s;
  std::string goodput;              // ttft:500,tpot:30,e2el:10000
  std::string floor_model;          // a folder: its bytes a step
  std::optional<double> bandwidth;  // GB/s of the server's memory
  bool cost = false;
  double power_w = 0, tariff = 0, price = 0, life_years = 0;
  std::string label;  // what the header calls this run
  std::string json, csv, html;
  std::string command;  // as typed
};

// 0; 1 when requests failed; 2 for an error.
int run_bench_serve(const BenchServeOptions& options, const Console& console);

struct BenchDiffOptions {
  std::string a, b;
};

// 0 when no row is slower beyond the noise, 1 when one is or was not compared because requests failed, 2 for
// an error.
int run_bench_diff(const BenchDiffOptions& options, const Console& console);

}  // namespace fourfold::cli
