// The commands of fourfold-chat, which ./dev try builds first: those that answer, on a CPU.
#include <CLI/CLI.hpp>

#include "cli/command_line.h"

namespace fourfold::cli {

void add_commands(CLI::App& app, CommandLine& line) {
  app.footer(
      "This is fourfold-chat: it answers on a CPU and does nothing else. ./dev build makes build/fourfold, "
      "which "
      "has every\ncommand.");
  add_run(app, line);
  add_chat(app, line);
  add_serve(app, line);
  add_rank(app, line);
}

}  // namespace fourfold::cli
