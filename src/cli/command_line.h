// The command line as options: those of every command, and which command was named.
#pragma once

#include <functional>

#include "cli/bench_all_reduce_command.h"
#include "cli/bench_load_command.h"
#include "cli/bench_model_command.h"
#include "cli/bench_moe_command.h"
#include "cli/bench_pack_command.h"
#include "cli/bench_serve_command.h"
#include "cli/chat_command.h"
#include "cli/compare_command.h"
#include "cli/console.h"
#include "cli/diff_backends_command.h"
#include "cli/doctor_command.h"
#include "cli/inspect_command.h"
#include "cli/make_model_command.h"
#include "cli/perplexity_command.h"
#include "cli/plan_command.h"
#include "cli/plan_model_command.h"
#include "cli/quantize_command.h"
#include "cli/run_command.h"
#include "cli/serve_command.h"
#include "cli/tune_command.h"
#include "cli/verify_command.h"

namespace CLI {
class App;
}

namespace fourfold::cli {

struct CommandLine {
  bool strict = false;
  bool has_strict = true;  // the command named has something that --strict forbids
  PlanOptions plan;
  PlanModelOptions plan_model;
  VerifyOptions verify;
  BenchAllReduceOptions bench_all_reduce;
  BenchLoadOptions bench_load;
  BenchModelOptions bench_model;
  BenchMoeOptions bench_moe;
  BenchPackOptions bench_pack;
  BenchServeOptions bench_serve;
  BenchDiffOptions bench_diff;
  RunOptions answer;
  ChatOptions chat;
  ServeOptions serve;
  CompareOptions compare;
  PerplexityOptions perplexity;
  DoctorOptions doctor;
  EnvOptions env;
  InspectOptions inspect;
  QuantizeOptions quantize;
  MakeModelOptions make_model;
  TuneCommandOptions tune;
  DiffBackendsOptions diff_backends;
  std::function<int(const Console&)> run;
};

// Where and how a MODEL runs; main.cpp.
void add_backend(CLI::App& command, BackendOptions& options);
// command_line_serve.cpp.
void add_serve(CLI::App& app, CommandLine& line);

// Commands that measure; command_line_measure.cpp.
void add_bench_all_reduce(CLI::App& bench, CommandLine& line);
void add_bench_model(CLI::App& bench, CommandLine& line);
void add_bench_moe(CLI::App& bench, CommandLine& line);
void add_bench_pack(CLI::App& bench, CommandLine& line);
void add_bench_serve(CLI::App& bench, CommandLine& line);
void add_bench_diff(CLI::App& bench, CommandLine& line);
void add_tune(CLI::App& app, CommandLine& line);
void add_diff_backends(CLI::App& app, CommandLine& line);

}  // namespace fourfold::cli
