// The program: reads the command line into the options of one command, runs it, turns errors into a message
// and an exit code. The only file that knows CLI11.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <string>

#include "base/error.h"
#include "cli/bench_moe_command.h"
#include "cli/bench_pack_command.h"
#include "cli/build_info.h"
#include "cli/console.h"
#include "cli/plan_command.h"
#include "cli/verify_command.h"

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

std::string typed(int count, char** words) {
  std::string line = "fourfold";
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    line += word.find_first_of(" *?'\"") == std::string::npos ? " " + word : " '" + word + "'";
  }
  return line;
}

// Options of all commands and which command was named.
struct CommandLine {
  bool strict = false;
  PlanOptions plan;
  VerifyOptions verify;
  BenchMoeOptions bench_moe;
  BenchPackOptions bench_pack;
  std::function<int(const Console&)> run;
};

void add_plan(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("plan", "Rows and their bytes; one tile explained; which rows a layer runs with");
  PlanOptions& o = line.plan;
  command->add_option("--arch", o.archs, "Architectures, commas between them")->capture_default_str();
  command->add_flag("--json", o.json, "JSON instead of text");
  command->add_option("--explain", o.explain, "Walk the bytes of one tile, MxNxK in elements: 256x128x128");
  command->add_flag("--picture", o.picture, "Also draw the best known overflow");
  command->add_flag("--choose", o.choose, "Which rows a layer runs with; needs --shape and --tokens");
  command->add_option("--shape", o.shape, "35b, 122b, 397b, 397b-tp4 or H,I,E,k");
  command->add_option("--tokens", o.tokens, "Token counts, commas between them");
  command->add_option("--activations", o.activations, "w4a16 or w4a4")->capture_default_str();
  command->add_option("--format", o.format, "nvfp4 or mxfp4")->capture_default_str();
  command->add_option("--role", o.role, "decode, prefill or both")->capture_default_str();
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.plan.strict = line.strict;
      return run_plan(line.plan, console);
    };
  });
}

void add_verify(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("verify", "Prove every row of every kernel against the scalar reference");
  VerifyOptions& o = line.verify;
  command->add_option("--device", o.device, "sim, cuda or all")->capture_default_str();
  command->add_flag("--quick", o.quick, "One operation a row, one seed");
  command->add_flag("--json", o.json, "JSON instead of the table");
  command->add_option("--report", o.report, "Also write the JSON to this file");
  command->add_option("--seeds", o.seeds, "Proofs of each row and operation (4)");
  command->add_option("--seed", o.seed, "Repeat the run that printed this seed");
  command->add_option("--rows", o.rows, "Only rows or kernels that match: 'moe_stream*w4a4*'");
  command->add_option("--gpu", o.gpu, "Which GPU")->capture_default_str();
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.verify.strict = line.strict;
      return run_verify(line.verify, console);
    };
  });
}

void add_bench_moe(CLI::App& bench, CommandLine& line) {
  CLI::App* command = bench.add_subcommand("moe", "Time the whole MoE layer on a GPU");
  BenchMoeOptions& o = line.bench_moe;
  command->add_option("--shape", o.shape, "35b, 122b, 397b, 397b-tp4 or H,I,E,k")->capture_default_str();
  command->add_option("--tokens", o.tokens, "Token counts, commas between them")->capture_default_str();
  command->add_option("--rows", o.rows, "Time these rows instead of the chosen ones: a glob, or all");
  command->add_option("--routing", o.routing, "uniform, zipf, same or all")->capture_default_str();
  command->add_option("--format", o.format, "nvfp4 or mxfp4")->capture_default_str();
  command->add_option("--activations", o.activations, "w4a16 or w4a4")->capture_default_str();
  command->add_option("--prefill-from", o.prefill_from, "Time token counts from here on as prompts")
      ->capture_default_str();
  command->add_flag("--parts", o.parts, "Also time each kernel of the layer alone");
  command->add_option("--csv", o.csv, "Write the results to this file");
  command->add_option("--device", o.gpu, "Which GPU")->capture_default_str();
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.bench_moe.strict = line.strict;
      return run_bench_moe(line.bench_moe, console);
    };
  });
}

void add_bench_pack(CLI::App& bench, CommandLine& line) {
  CLI::App* command =
      bench.add_subcommand("pack", "Time the packing of checkpoint matrices, on the host and on a GPU");
  BenchPackOptions& o = line.bench_pack;
  command->add_option("--shape", o.shape, "35b, 122b, 397b, 397b-tp4 or H,I,E,k")->capture_default_str();
  command->add_option("--experts", o.experts, "How many experts")->capture_default_str();
  command->add_option("--format", o.format, "nvfp4 or mxfp4")->capture_default_str();
  command->add_option("--rounds", o.rounds, "The best of this many")->capture_default_str();
  command->add_option("--device", o.gpu, "Which GPU")->capture_default_str();
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.bench_pack.strict = line.strict;
      return run_bench_pack(line.bench_pack, console);
    };
  });
}

int report(const Console& console, const Error& error) {
  console.err << "fourfold: " << error.what() << "\n";
  if (!error.hint().empty()) console.err << "  " << error.hint() << "\n";
  return kFailed;
}

int run(int count, char** words, const Console& console) {
  CLI::App app("Fourfold: NVFP4 mixture-of-experts kernels for GPUs with little shared memory", "fourfold");
  CommandLine line;
  app.set_version_flag("--version",
                       "fourfold " + version() + (commit().empty() ? "" : " (" + commit() + ")"));
  app.add_flag("--strict", line.strict, "Make every degradation an error");
  app.fallthrough();
  app.require_subcommand(0, 1);
  add_plan(app, line);
  add_verify(app, line);
  CLI::App* bench = app.add_subcommand("bench", "Measure");
  bench->require_subcommand(1);
  add_bench_moe(*bench, line);
  add_bench_pack(*bench, line);
  try {
    app.parse(count, words);
  } catch (const CLI::Success& asked) {  // --help and --version
    return app.exit(asked, console.out, console.err);
  } catch (const CLI::ParseError& error) {
    console.err << "fourfold: " << error.what() << "\n  Run fourfold --help, or fourfold COMMAND --help.\n";
    return kUsage;
  }
  if (!line.run) {
    console.out << app.help();
    return kFine;
  }
  line.bench_moe.command = typed(count, words);
  try {
    return line.run(console);
  } catch (const Error& error) {
    return report(console, error);
  } catch (const std::exception& error) {
    console.err << "fourfold: " << error.what() << "\n";
    return kFailed;
  }
}

}  // namespace
}  // namespace fourfold::cli

int main(int count, char** words) {
  using namespace fourfold::cli;
  const Console console{std::cout, std::cerr, isatty(STDOUT_FILENO) != 0, isatty(STDERR_FILENO) != 0,
                        locale_is_utf8()};
  return run(count, words, console);
}
