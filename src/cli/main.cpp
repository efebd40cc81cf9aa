// The program: reads the command line into the options of one command, runs it, turns errors into a message
// and an exit code. This, usage.cpp and the files command_line_*.cpp know CLI11, nothing else does.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/build_info.h"
#include "cli/command_line.h"
#include "cli/console.h"
#include "cli/parse.h"
#include "cli/usage.h"

namespace fourfold::cli {
namespace {

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
      const std::string text = value;
      return text.find("UTF-8") != std::string::npos || text.find("utf8") != std::string::npos;
    }
  return false;
}

// Nothing but letters: an editor's shell window, say.
bool terminal_is_dumb() {
  const char* terminal = std::getenv("TERM");
  return terminal == nullptr || std::string_view(terminal) == "dumb";
}

// no-color.org
bool wants_no_color() {
  const char* plain = std::getenv("NO_COLOR");
  return plain != nullptr && *plain != '\0';
}

std::string typed(const std::vector<std::string>& words) {
  std::string line = "fourfold";
  for (const std::string& word : words) line += " " + shell_word(word);
  return line;
}

int report(const Console& console, const Error& error) {
  show_error(console, error.what(), error.hint());
  return kFailed;
}

// What was printed has arrived, or the command has failed: a full disk must not look like success.
int finish(int status, const Console& console) {
  errno = 0;
  console.out.flush();
  if (console.out || status == kFailed) return status;
  show_error(console, fourfold::format("standard output cannot be written: {}",
                                       errno == 0 ? "it is full or closed" : std::strerror(errno)));
  return kFailed;
}

void add_commands(CLI::App& app, CommandLine& line) {
  app.add_flag("--strict", line.strict,
               "Nothing other than asked: degradations and notices are errors (serve: of requests, too)");
  app.fallthrough();
  app.require_subcommand(0, 1);
  add_run(app, line);
  add_chat(app, line);
  add_serve(app, line);
  add_inspect(app, line);
  add_plan(app, line);
  add_doctor(app, line);
  add_env(app, line);
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
  // Both are other words for flags; here so that they are listed.
  app.add_subcommand("help", "What a command takes: fourfold help run");
  app.add_subcommand("version", "Which fourfold this is");
}

int run(std::vector<std::string> words, const Console& console) {
  CLI::App app("Fourfold: NVFP4 mixture-of-experts models on CPUs and on GPUs with little shared memory",
               "fourfold");
  CommandLine line;
  app.set_version_flag("--version",
                       "fourfold " + version() + (commit().empty() ? "" : " (" + commit() + ")"));
  add_commands(app, line);
  const std::string whole = typed(words);
  if (const std::optional<Usage> wrong = replace_help_words(app, words)) {
    show_error(console, wrong->message, wrong->hint);
    return kUsage;
  }
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());  // as CLI11 wants them
    app.parse(reversed);
  } catch (const CLI::Success& asked) {  // --help and --version
    return app.exit(asked, console.out, console.err);
  } catch (const CLI::ParseError& error) {
    const Usage usage = explain_usage(app, error);
    show_error(console, usage.message, usage.hint);
    return kUsage;
  }
  if (!line.run) {
    console.out << app.help();
    return kFine;
  }
  line.bench_all_reduce.command = line.bench_moe.command = line.bench_serve.command = whole;
  if (line.strict && !line.has_strict) {
    console.err
        << "fourfold: --strict: this command takes nothing less than it was asked for; leave it out\n";
    return kUsage;
  }
  try {
    return line.run(console);
  } catch (const Error& error) {
    return report(console, error);
  } catch (const std::exception& error) {
    show_error(console, error.what());
    return kFailed;
  }
}

}  // namespace
}  // namespace fourfold::cli

int main(int count, char** words) {
  using namespace fourfold::cli;
  // Without a stdin the next file opened would take its place, and be read as what the user types.
  if (fcntl(STDIN_FILENO, F_GETFD) == -1) open("/dev/null", O_RDONLY);
  const Console console{std::cout,
                        std::cerr,
                        isatty(STDOUT_FILENO) != 0,
                        isatty(STDERR_FILENO) != 0,
                        locale_is_utf8(),
                        !terminal_is_dumb() && !wants_no_color(),
                        !terminal_is_dumb()};
  if (const char* bytes = std::getenv("FOURFOLD_EMULATE_SM_BYTES"); bytes != nullptr)
    std::cerr << "fourfold: notice: FOURFOLD_EMULATE_SM_BYTES=" << bytes
              << " is for measurements: kernels ask for more shared memory than they need\n";
  return finish(run({words + std::min(count, 1), words + count}, console), console);
}
