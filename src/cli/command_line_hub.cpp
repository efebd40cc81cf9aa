// The command lines of `fourfold pull`, `list` and `rm`.
#include <CLI/CLI.hpp>

#include "cli/command_line.h"

namespace fourfold::cli {

void add_pull(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("pull", "Fetch a model of the hub into the local cache");
  command->add_option("MODEL", line.pull.model, "ORG/NAME, or ORG/NAME@REVISION")->required();
  command->add_option("--revision", line.pull.revision, "A branch, tag or commit (main)");
  command->add_flag("--cached", line.pull.cached,
                    "Ask the hub only for what is not in the cache whole, as run, chat and serve do");
  command->final_callback([&line] {
    line.has_strict = false;
    line.run = [&line](const Console& console) { return run_pull(line.pull, console); };
  });
}

void add_list(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("list", "The models here: storyteller, and those in the local cache");
  command->add_flag("--json", line.list.json, "For programs");
  command->final_callback([&line] {
    line.has_strict = false;
    line.run = [&line](const Console& console) { return run_list(line.list, console); };
  });
}

void add_remove(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("rm", "Remove a model from the local cache");
  command->add_option("MODEL", line.remove.model, "ORG/NAME, or ORG/NAME@REVISION for that one alone")
      ->required();
  command->final_callback([&line] {
    line.has_strict = false;
    line.run = [&line](const Console& console) { return run_remove(line.remove, console); };
  });
}

}  // namespace fourfold::cli
