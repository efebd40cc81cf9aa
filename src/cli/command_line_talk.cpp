// The command lines of `fourfold run` and `fourfold chat`, and what every command that runs a MODEL has.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "base/format.h"
#include "cli/command_line.h"
#include "cli/command_line_seed.h"

namespace fourfold::cli {

// How a MODEL gets onto a GPU.
void add_loading(CLI::App& command, std::string& dense, std::string& cache, bool& rebuild_cache) {
  command.add_option("--dense", dense, "GPU: 16-bit matrices that are no routed experts: keep, fp8 or nvfp4")
      ->capture_default_str();
  command.add_option("--cache", cache, "GPU: keep a packed copy in this folder, and load from it");
  command.add_flag("--rebuild-cache", rebuild_cache, "GPU: make the packed copy anew");
}

void add_ranks(CLI::App& command, int& tp, std::string& experts) {
  command
      .add_option("--tp,--tensor-parallel-size", tp,
                  "Ranks that hold a part of the model each: a GPU each with cuda, else in this process")
      ->capture_default_str();
  command.add_option("--experts", experts, "Of several ranks: tp (a part of each), ep (some, whole) or auto")
      ->capture_default_str();
}

void add_backend(CLI::App& command, library::BackendOptions& o) {
  command.add_option("--backend", o.backend, "cpu, cuda, sim (the simulated GPU) or reference")
      ->capture_default_str();
  command
      .add_option("--activations", o.activations,
                  "auto (as checkpoint and chip are made), w4a16, w4a4-prefill, w4a4, w8a8 or f32")
      ->capture_default_str();
  command.add_option("--kv", o.kv, "Keys and values: bf16, fp8 (cuda, sim, reference) or auto")
      ->capture_default_str();
  command.add_option("--threads", o.threads, "0: one per core")->capture_default_str();
  add_ranks(command, o.tp, o.experts);
  add_loading(command, o.dense, o.cache, o.rebuild_cache);
  command.add_option("--tuned", o.tuned, "cuda: run by this tuning file, or by none (the chip's own files)");
  command.add_option("--memory-fraction", o.memory_fraction,
                     "cuda: of the GPU's memory, what may be used (0.95)");
  command.add_flag("--explain", o.explain, "cuda, sim: which kernels a step of each new shape runs with");
}

namespace {

void add_generation(CLI::App& command, GenerationOptions& o) {
  command.add_option("--system", o.system, "What the system message says");
  CLI::Option* thinking =
      command.add_flag("--thinking", o.thinking, "Ask the chat template for an answer with thinking");
  command.add_flag("--no-thinking", o.no_thinking, "Ask the chat template for an answer without thinking")
      ->excludes(thinking);
  command.add_option(
      "--max-tokens", o.max_tokens,
      fourfold::format("The answer's longest length ({}, or what there is room for)", kMaxTokens));
  command.add_option("--temperature", o.temperature, "0: always the most probable token");
  command.add_option("--top-k", o.top_k, "Only the K most probable tokens; 0: all");
  command.add_option("--top-p", o.top_p, "Only the most probable tokens that reach P together");
  command.add_option("--min-p", o.min_p, "Only tokens with P of the best one's probability");
  command.add_option("--repetition-penalty", o.repetition_penalty,
                     "For tokens of prompt and answer; 1: none");
  command.add_option("--presence-penalty", o.presence_penalty, "For tokens of the answer; 0: none");
  command.add_option("--frequency-penalty", o.frequency_penalty, "For each time they occurred; 0: none");
  command.add_option("--logit-bias", o.logit_bias, "ID=BIAS, commas between: 50=-100,7=1.5");
  add_seed(command, o.seed, "The same seed gives the same answer");
  command.add_option("--stop", o.stops, "End the answer before this text; may be given again")
      ->allow_extra_args(false);
  command.add_option("--mtp", o.mtp, "Drafts a step, 0 to 5, by the model's MTP layer")
      ->capture_default_str();
  command.add_option("--drafts", o.drafts, "chosen (the answer is the same without) or drawn")
      ->capture_default_str();
  command.add_flag("--no-wrap", o.no_wrap, "At a terminal do not break lines between words");
  add_backend(command, o.backend);
}

}  // namespace

void add_run(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("run", "One answer of a model, on stdout");
  RunOptions& o = line.answer;
  command->add_option("MODEL", o.model, kFetchedModelHelp);
  command->add_option("-p,--prompt", o.prompt, "One chat turn; -, or nothing and a pipe: from stdin");
  command->add_flag("--raw", o.raw, "Continue the prompt instead of answering it");
  command->add_option("--ids", o.ids, "The prompt as token ids, 1,2,3; the answer is ids, too");
  command->add_option("--max-context", o.max_context,
                      "Tokens of prompt and answer to make room for (what they can need)");
  add_generation(*command, o.generation);
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.answer.generation.backend.strict = line.strict;
      line.answer.stdin_may_prompt = ::isatty(STDIN_FILENO) == 0;
      return run_run(line.answer, console);
    };
  });
}

void add_chat(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("chat", "Talk with a model, line by line");
  ChatOptions& o = line.chat;
  command->add_option("MODEL", o.model, kFetchedModelHelp);
  command->add_option("--context,--max-context", o.context,
                      "Tokens of conversation to make room for (16384, or the model's)");
  command->add_flag("--fast", o.fast,
                    "On a GPU keep the turns as they were generated: sooner answers, perhaps other ones");
  command->add_flag("--no-history", o.no_history,
                    "Do not keep what is typed for the next start (FOURFOLD_HISTORY=FILE, or off)");
  add_generation(*command, o.generation);
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.chat.generation.backend.strict = line.strict;
      return run_chat(line.chat, STDIN_FILENO, console);
    };
  });
}

}  // namespace fourfold::cli
