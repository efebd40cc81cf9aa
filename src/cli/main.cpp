// The program: reads the command line into the options of one command, runs it, turns errors into a message
// and an exit code. This, usage.cpp and the files command_line_*.cpp know CLI11, nothing else does.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
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
#include "cli/completion.h"
#include "cli/console.h"
#include "cli/parse.h"
#include "cli/reader_gone.h"
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

// Ends as a program does that never heard of SIGPIPE: quietly, and whoever started it can tell.
int end_without_reader() {
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
  return kFailed;  // it was blocked
}

bool reader_is_gone() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

// What was printed has arrived, or the command has failed: a full disk must not look like success.
int finish(int status, const Console& console) {
  errno = 0;
  console.out.flush();
  if (console.out || status == kFailed) return status;
  if (reader_is_gone()) return end_without_reader();
  show_error(console, fourfold::format("standard output cannot be written: {}",
                                       errno == 0 ? "it is full or closed" : std::strerror(errno)));
  return kFailed;
}

// What describes the program itself. help and version are other words for flags; here so that they are
// listed.
void add_descriptions(CLI::App& app, CommandLine& line) {
  CLI::App* completion = app.add_subcommand("completion", "Completions of commands and options for a shell");
  completion->add_option("SHELL", line.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->final_callback([&app, &line] {
    line.has_strict = false;
    line.run = [&](const Console& console) {
      write_completion(console.out, app, line.shell);
      return kFine;
    };
  });
  app.add_subcommand("man", "The manual page: fourfold man | man -l -")->final_callback([&app, &line] {
    line.has_strict = false;
    line.run = [&](const Console& console) {
      write_manual(console.out, app, version());
      return kFine;
    };
  });
  app.add_subcommand("help", "What a command takes: fourfold help run");
  app.add_subcommand("version", "Which fourfold this is");
}

int run(std::vector<std::string> words, const Console& console) {
  CLI::App app("Fourfold: NVFP4 mixture-of-experts models on CPUs and on GPUs with little shared memory",
               "fourfold");
  CommandLine line;
  app.set_version_flag("--version", version_text());
  app.add_flag("--strict", line.strict,
               "Nothing other than asked: degradations and notices are errors (serve: of requests, too)");
  app.fallthrough();
  app.require_subcommand(0, 1);
  add_commands(app, line);
  add_descriptions(app, line);
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
  } catch (const Error& error) {  // of files and variables that have options
    return report(console, error);
  } catch (const CLI::ParseError& error) {
    const Usage usage = explain_usage(app, error);
    show_error(console, usage.message, usage.hint);
    return kUsage;
  }
  if (!line.run) {
    if (console.out_is_terminal && line.alone) return line.alone(console);
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
  } catch (const ReaderGone&) {
    return end_without_reader();
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
