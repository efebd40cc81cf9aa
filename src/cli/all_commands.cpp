// The commands of the program `fourfold`.
#include <CLI/CLI.hpp>

#include "cli/command_line.h"
#include "cli/hello.h"

namespace fourfold::cli {

void add_commands(CLI::App& app, CommandLine& line) {
  line.alone = run_hello;
  add_run(app, line);
  add_chat(app, line);
  add_serve(app, line);
  add_rank(app, line);
  add_config(app, line);
  add_pull(app, line);
  add_list(app, line);
  add_remove(app, line);
  add_inspect(app, line);
  add_plan(app, line);
  add_doctor(app, line);
  add_env(app, line);
  add_health(app, line);
  add_quantize(app, line);
  add_make_model(app, line);
  add_compare(app, line);
  add_diff_backends(app, line);
  add_perplexity(app, line);
  add_verify(app, line);
  add_tune(app, line);
  add_report(app, line);
  CLI::App* bench = app.add_subcommand("bench", "Measure");
  bench->require_subcommand(1);
  add_bench_model(*bench, line);
  add_bench_load(*bench, line);
  add_bench_moe(*bench, line);
  add_bench_pack(*bench, line);
  add_bench_all_reduce(*bench, line);
  add_bench_serve(*bench, line);
  add_bench_diff(*bench, line);
}

}  // namespace fourfold::cli
