// The program: reads the command line into the options of one command, runs it, turns errors into a message
// and an exit code. This and the files command_line_*.cpp know CLI11,
// nothing else does.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <string>

#include "base/error.h"
#include "cli/build_info.h"
#include "cli/command_line.h"
#include "cli/console.h"

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

constexpr const char* kModelOrDefault =
    "A folder, or a hub name in the local cache; without one: storyteller, which comes with the program";

void add_plan_step(CLI::App& command, PlanModelOptions& m, CLI::Option* model, CLI::Option* gpu) {
  command.add_option("--tp", m.ranks, "Of --model: GPUs that share it")->capture_default_str()->needs(model);
  command.add_option("--experts", m.experts, "Of --tp: a part of each (tp), some of them (ep), or auto")
      ->capture_default_str()
      ->needs(model);
  command.add_option("--link", m.link, "Of --gpu: pcie5 or pcie4 between the GPUs")
      ->capture_default_str()
      ->needs(gpu);
  command.add_option("--users", m.users, "Of --gpu: sequences in the predicted step")
      ->capture_default_str()
      ->needs(gpu);
  command.add_option("--context", m.context, "Of --gpu: tokens of each before it")
      ->capture_default_str()
      ->needs(gpu);
  command.add_option("--mtp", m.drafts, "Of --gpu: drafts a step")->capture_default_str()->needs(gpu);
  command.add_option("--acceptance", m.acceptance, "Of --mtp: chance that a draft stands")
      ->capture_default_str()
      ->needs(gpu);
}

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
  PlanModelOptions& m = line.plan_model;
  CLI::Option* model =
      command->add_option("--model", m.model,
                          "What this model (or 397b, 122b, 35b) takes of a GPU's memory, and "
                          "what fits");
  for (const char* other : {"--explain", "--choose", "--picture", "--shape", "--tokens"})
    model->excludes(other);
  CLI::Option* gpu = command
                         ->add_option("--gpu", m.gpu,
                                      "Of --model: a card that need not be here (rtx-pro-6000); also what a "
                                      "step would take there")
                         ->needs(model);
  add_plan_step(*command, m, model, gpu);
  command->add_option("--kv", m.kv, "Of --model: keys and values in bf16, fp8 or auto")
      ->capture_default_str()
      ->needs(model);
  command->add_option("--dense", m.dense, "Of --model: 16-bit matrices as keep, fp8 or nvfp4")
      ->capture_default_str()
      ->needs(model);
  command->add_option("--max-context", m.max_context, "Of --model: tokens of a sequence (the model's limit)")
      ->needs(model);
  command->add_option("--max-sequences", m.max_sequences, "Of --model: sequences at once")
      ->capture_default_str()
      ->needs(model);
  command
      ->add_option("--memory-fraction", m.memory_fraction,
                   "Of --model: of the GPU's memory, what may be used (0.95)")
      ->needs(model);
  command
      ->add_option("--memory-gb", m.memory_gb, "Of --model: memory of a GPU that is not here, in 10^9 bytes")
      ->needs(model);
  command->final_callback([&line, command] {
    line.run = [&line, command](const Console& console) {
      line.plan.strict = line.plan_model.strict = line.strict;
      if (line.plan_model.model.empty()) return run_plan(line.plan, console);
      line.plan_model.json = line.plan.json;
      if (command->count("--arch") > 0) line.plan_model.arch = line.plan.archs;
      return run_plan_model(line.plan_model, console);
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
                  "Ranks that hold a part of the model each (cpu, reference)")
      ->capture_default_str();
  command.add_option("--experts", experts, "Of several ranks: tp (a part of each), ep (some, whole) or auto")
      ->capture_default_str();
}

}  // namespace

void add_backend(CLI::App& command, BackendOptions& o) {
  command.add_option("--backend", o.backend, "cpu, cuda, sim (the simulated GPU) or reference")
      ->capture_default_str();
  command.add_option("--activations", o.activations, "auto (as the checkpoint was made), w4a16, w4a4 or f32")
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

void add_bench_load(CLI::App& bench, CommandLine& line) {
  CLI::App* command =
      bench.add_subcommand("load", "Time how a MODEL gets onto a GPU, beside what disk and bus can carry");
  BenchLoadOptions& o = line.bench_load;
  command->add_option("MODEL", o.model, "A folder, or a hub name in the local cache")->required();
  command->add_option("--backend", o.backend.backend, "cuda or sim (the simulated GPU)")
      ->capture_default_str();
  add_loading(*command, o.backend.dense, o.backend.cache, o.backend.rebuild_cache);
  command->add_flag("--cold", o.cold, "Ask the kernel to forget the files before they are read");
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.bench_load.backend.strict = line.strict;
      return run_bench_load(line.bench_load, console);
    };
  });
}

void add_generation(CLI::App& command, GenerationOptions& o) {
  command.add_option("--system", o.system, "What the system message says");
  CLI::Option* thinking =
      command.add_flag("--thinking", o.thinking, "Ask the chat template for an answer with thinking");
  command.add_flag("--no-thinking", o.no_thinking, "Ask the chat template for an answer without thinking")
      ->excludes(thinking);
  command.add_option("--max-tokens", o.max_tokens,
                     "The answer's longest length (4096, or what there is room for)");
  command.add_option("--temperature", o.temperature, "0: always the most probable token");
  command.add_option("--top-k", o.top_k, "Only the K most probable tokens; 0: all");
  command.add_option("--top-p", o.top_p, "Only the most probable tokens that reach P together");
  command.add_option("--min-p", o.min_p, "Only tokens with P of the best one's probability");
  command.add_option("--repetition-penalty", o.repetition_penalty,
                     "For tokens of prompt and answer; 1: none");
  command.add_option("--presence-penalty", o.presence_penalty, "For tokens of the answer; 0: none");
  command.add_option("--frequency-penalty", o.frequency_penalty, "For each time they occurred; 0: none");
  command.add_option("--logit-bias", o.logit_bias, "ID=BIAS, commas between: 50=-100,7=1.5");
  command.add_option("--seed", o.seed, "The same seed gives the same answer");
  command.add_option("--stop", o.stops, "End the answer before this text; may be given again")
      ->allow_extra_args(false);
  command.add_option("--mtp", o.mtp, "Drafts a step, 0 to 5, by the model's MTP layer")
      ->capture_default_str();
  command.add_option("--drafts", o.drafts, "chosen (the answer is the same without) or drawn")
      ->capture_default_str();
  add_backend(command, o.backend);
}

void add_run(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("run", "One answer of a model, on stdout");
  RunOptions& o = line.answer;
  command->add_option("MODEL", o.model, kModelOrDefault);
  command->add_option("-p,--prompt", o.prompt, "One chat turn; - reads it from stdin");
  command->add_flag("--raw", o.raw, "Continue the prompt instead of answering it");
  command->add_option("--ids", o.ids, "The prompt as token ids, 1,2,3; the answer is ids, too");
  command->add_option("--max-context", o.max_context,
                      "Tokens of prompt and answer to make room for (what they can need)");
  add_generation(*command, o.generation);
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.answer.generation.backend.strict = line.strict;
      return run_run(line.answer, console);
    };
  });
}

void add_chat(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("chat", "Talk with a model, line by line");
  ChatOptions& o = line.chat;
  command->add_option("MODEL", o.model, kModelOrDefault);
  command->add_option("--context,--max-context", o.context,
                      "Tokens of conversation to make room for (16384, or the model's)");
  command->add_flag("--fast", o.fast,
                    "On a GPU keep the turns as they were generated: sooner answers, perhaps other ones");
  add_generation(*command, o.generation);
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.chat.generation.backend.strict = line.strict;
      return run_chat(line.chat, STDIN_FILENO, console);
    };
  });
}

void add_compare(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("compare", "A model on a backend against another implementation's numbers");
  CompareOptions& o = line.compare;
  command->add_option("MODEL", o.model, "A folder, or a hub name in the local cache")->required();
  command->add_option("REFERENCE", o.reference, "A safetensors file of reference outputs")->required();
  command->add_option("--backend", o.backend, "cpu, cuda, sim (the simulated GPU) or reference")
      ->capture_default_str();
  command->add_option("--activations", o.activations, "f32, w4a16, w4a4, auto or all")->capture_default_str();
  command->add_option("--kv", o.kv, "Keys and values: bf16, fp8 (cuda, sim, reference) or auto")
      ->capture_default_str();
  command->add_option("--threads", o.threads, "0: one per core")->capture_default_str();
  add_ranks(*command, o.tp, o.experts);
  add_loading(*command, o.dense, o.cache, o.rebuild_cache);
  command->add_option("--tuned", o.tuned, "cuda: run by this tuning file, or by none (the chip's own files)");
  command->add_flag("--json", o.json, "JSON instead of text");
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.compare.strict = line.strict;
      return run_compare(line.compare, console);
    };
  });
}

void add_perplexity(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("perplexity", "How well a model knows a text");
  PerplexityOptions& o = line.perplexity;
  command->add_option("MODEL", o.model, "A folder, or a hub name in the local cache")->required();
  command->add_option("FILE", o.file, "A text file, UTF-8")->required();
  command->add_option("--window", o.window, "Tokens after which the model starts anew")
      ->capture_default_str();
  command->add_option("--tokens", o.tokens_max, "Score so many tokens; 0: all")->capture_default_str();
  command->add_flag("--json", o.json, "JSON instead of text");
  add_backend(*command, o.backend);
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.perplexity.backend.strict = line.strict;
      return run_perplexity(line.perplexity, console);
    };
  });
}

void add_inspect(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("inspect", "What a checkpoint holds, and how fast it can be decoded at best");
  InspectOptions& o = line.inspect;
  command->add_option("MODEL", o.model, "A folder, or a hub name in the local cache")->required();
  command->add_option("--context", o.context, "Positions a token attends to")->capture_default_str();
  command->add_flag("!--no-measure", o.measure, "Do not measure this machine's memory");
  command->add_flag("--json", o.json, "JSON instead of text");
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.inspect.strict = line.strict;
      return run_inspect(line.inspect, console);
    };
  });
}

void add_doctor(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("doctor", "Why this machine is slow, and what to do");
  DoctorOptions& o = line.doctor;
  command->add_option("--log", o.log, "A log of vLLM, SGLang, TensorRT-LLM or llama.cpp; - is stdin");
  command->add_option("--scan", o.scans, "A folder with shared objects or a JIT cache; may be given again")
      ->allow_extra_args(false);
  command->add_option("--model", o.model, "A folder, or a hub name in the local cache");
  command->add_option("--measured", o.measured, "Your own tok/s with that model, one user");
  command->add_option("--url", o.urls, "Measure a server, http://HOST:PORT; twice compares two")
      ->allow_extra_args(false);
  command->add_option("--root", o.root, "Judge a recorded machine instead of this one");
  command->add_option("--record", o.record, "Keep what was found in this folder, names and serials removed");
  command->add_flag("--quick", o.quick, "Measure nothing on the GPU");
  command->add_flag("--json", o.json, "JSON instead of text");
  command->add_flag("--markdown", o.markdown, "Markdown, to paste into a forum");
  command->add_flag("--rules", o.rules, "Print every rule with its evidence (docs/doctor.md)");
  command->final_callback([&line] {
    line.has_strict = false;
    line.run = [&line](const Console& console) { return run_doctor(line.doctor, console); };
  });
}

void add_env(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("env", "The environment and launch line for this machine, with reasons");
  EnvOptions& o = line.env;
  command->add_option("--gpus", o.gpus, "How many to use (all)");
  command->add_option("--for", o.purpose, "vllm, docker or fourfold")->capture_default_str();
  command->add_option("--root", o.root, "For a recorded machine instead of this one");
  command->final_callback([&line] {
    line.has_strict = false;
    line.run = [&line](const Console& console) { return run_env(line.env, console); };
  });
}

void add_quantize(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("quantize", "A 16-bit checkpoint to NVFP4");
  QuantizeOptions& o = line.quantize;
  command->add_option("IN", o.in, "A folder, or a hub name in the local cache")->required();
  command->add_option("OUT", o.out, "A folder that does not exist yet")->required();
  command->add_option("--format", o.format, "modelopt or compressed-tensors")->capture_default_str();
  command->add_option("--dense", o.dense, "Matrices that are no routed experts: keep, fp8 or nvfp4")
      ->capture_default_str();
  command->add_option("--report", o.report, "Also write the error of every matrix to this file, as JSON");
  command->add_flag("--json", o.json, "JSON instead of text");
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.quantize.strict = line.strict;
      return run_quantize(line.quantize, console);
    };
  });
}

void add_make_model(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("make-model", "A valid checkpoint of random numbers, for tests and benches");
  MakeModelOptions& o = line.make_model;
  command->add_option("OUT", o.out, "A folder that does not exist yet")->required();
  command
      ->add_option("--shape", o.shape,
                   "tiny, tiny-dense, tiny-next, tiny-qwen3-moe, small, 35b, 122b, 397b, next-80b, qwen3-30b")
      ->capture_default_str();
  command->add_option("--format", o.format, "bf16, modelopt, modelopt-mixed, compressed-tensors or nvfp4")
      ->capture_default_str();
  command->add_option("--seed", o.seed, "The same seed gives the same bytes")->capture_default_str();
  command->add_option("--layers", o.layers, "So many layers instead of the shape's");
  command->add_flag("--sparse", o.sparse, "Leave matrices as holes: true sizes, hardly any disk");
  CLI::Option* script = command->add_option(
      "--script", o.script,
      "A file with answers: a model that says these, whatever it is asked (docs/models.md)");
  for (const char* other : {"--shape", "--format", "--seed", "--layers", "--sparse"})
    script->excludes(command->get_option(other));
  command
      ->add_option("--text-of", o.text_of, "With --script: the folder whose tokenizer and template it uses")
      ->needs(script);
  command->final_callback([&line] {
    line.has_strict = false;
    line.run = [&line](const Console& console) { return run_make_model(line.make_model, console); };
  });
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

int run(int count, char** words, const Console& console) {
  CLI::App app("Fourfold: NVFP4 mixture-of-experts models on CPUs and on GPUs with little shared memory",
               "fourfold");
  CommandLine line;
  app.set_version_flag("--version",
                       "fourfold " + version() + (commit().empty() ? "" : " (" + commit() + ")"));
  app.add_flag("--strict", line.strict,
               "Nothing other than asked: degradations and notices are errors (serve: of requests, too)");
  app.fallthrough();
  app.require_subcommand(0, 1);
  add_plan(app, line);
  add_verify(app, line);
  add_run(app, line);
  add_chat(app, line);
  add_serve(app, line);
  add_compare(app, line);
  add_perplexity(app, line);
  add_doctor(app, line);
  add_env(app, line);
  add_inspect(app, line);
  add_quantize(app, line);
  add_make_model(app, line);
  add_tune(app, line);
  add_diff_backends(app, line);
  CLI::App* bench = app.add_subcommand("bench", "Measure");
  bench->require_subcommand(1);
  add_bench_model(*bench, line);
  add_bench_load(*bench, line);
  add_bench_moe(*bench, line);
  add_bench_pack(*bench, line);
  add_bench_all_reduce(*bench, line);
  add_bench_serve(*bench, line);
  add_bench_diff(*bench, line);
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
  line.bench_all_reduce.command = line.bench_moe.command = line.bench_serve.command = typed(count, words);
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
  const Console console{std::cout, std::cerr, isatty(STDOUT_FILENO) != 0, isatty(STDERR_FILENO) != 0,
                        locale_is_utf8()};
  return finish(run(count, words, console), console);
}
