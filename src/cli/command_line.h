// The command line as options: those of every command, and which command was named.
#pragma once

#include <functional>
#include <string>

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
#include "cli/health_command.h"
#include "cli/hub_commands.h"
#include "cli/inspect_command.h"
#include "cli/make_model_command.h"
#include "cli/perplexity_command.h"
#include "cli/plan_command.h"
#include "cli/plan_model_command.h"
#include "cli/quantize_command.h"
#include "cli/rank_command.h"
#include "cli/report_options.h"
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
  RankCommandOptions rank;
  PullOptions pull;
  ListOptions list;
  RemoveOptions remove;
  CompareOptions compare;
  PerplexityOptions perplexity;
  DoctorOptions doctor;
  EnvOptions env;
  HealthOptions health;
  InspectOptions inspect;
  QuantizeOptions quantize;
  ReportOptions report;
  MakeModelOptions make_model;
  TuneCommandOptions tune;
  DiffBackendsOptions diff_backends;
  std::string shell;  // of completion
  std::function<int(const Console&)> run;
  std::function<int(const Console&)> alone;  // without a command, at a terminal; none: help
};

// Those the program has: all_commands.cpp, or chat_commands.cpp for fourfold-chat.
void add_commands(CLI::App& app, CommandLine& line);

// What a MODEL is, where there is a default and where there is none.
inline constexpr const char* kModelHelp =
    "A folder, a hub name in the local cache, or storyteller, which comes with the program";
inline constexpr const char* kModelOrDefaultHelp =
    "A folder, or a hub name in the local cache; without one: storyteller, which comes with the program";
// Of the commands that fetch.
inline constexpr const char* kFetchedModelHelp =
    "A folder, or a hub name, fetched when it is not in the local cache; without one: storyteller, which "
    "comes with the "
    "program";

// Where and how a MODEL runs; command_line_talk.cpp, with run and chat.
void add_backend(CLI::App& command, library::BackendOptions& options);
void add_loading(CLI::App& command, std::string& dense, std::string& cache, bool& rebuild_cache);
void add_ranks(CLI::App& command, int& tp, std::string& experts);
void add_run(CLI::App& app, CommandLine& line);
void add_chat(CLI::App& app, CommandLine& line);
// command_line_serve.cpp.
void add_serve(CLI::App& app, CommandLine& line);
void add_rank(CLI::App& app, CommandLine& line);
void add_serve_options(CLI::App& command, ServeOptions& options);
// Options of serve that the command line does not name, from the environment or else from the file `config`
// (or FOURFOLD_SERVE_CONFIG). Throws Error; command_line_config.cpp.
void take_serve_settings(CLI::App& command, CLI::App& root, const std::string& config);
void add_config(CLI::App& app, CommandLine& line);
// Models by name; command_line_hub.cpp.
void add_pull(CLI::App& app, CommandLine& line);
void add_list(CLI::App& app, CommandLine& line);
void add_remove(CLI::App& app, CommandLine& line);
// What can be known without a model; command_line_plan.cpp.
void add_plan(CLI::App& app, CommandLine& line);
void add_verify(CLI::App& app, CommandLine& line);

// About checkpoints and machines; command_line_checkpoint.cpp.
void add_compare(CLI::App& app, CommandLine& line);
void add_perplexity(CLI::App& app, CommandLine& line);
void add_inspect(CLI::App& app, CommandLine& line);
void add_doctor(CLI::App& app, CommandLine& line);
void add_env(CLI::App& app, CommandLine& line);
void add_health(CLI::App& app, CommandLine& line);
void add_quantize(CLI::App& app, CommandLine& line);
void add_make_model(CLI::App& app, CommandLine& line);

// Commands that measure; command_line_measure.cpp.
void add_bench_all_reduce(CLI::App& bench, CommandLine& line);
void add_bench_load(CLI::App& bench, CommandLine& line);
void add_bench_model(CLI::App& bench, CommandLine& line);
void add_bench_moe(CLI::App& bench, CommandLine& line);
void add_bench_pack(CLI::App& bench, CommandLine& line);
void add_bench_serve(CLI::App& bench, CommandLine& line);
void add_bench_diff(CLI::App& bench, CommandLine& line);
void add_report(CLI::App& app, CommandLine& line);
void add_tune(CLI::App& app, CommandLine& line);
void add_diff_backends(CLI::App& app, CommandLine& line);

}  // namespace fourfold::cli
