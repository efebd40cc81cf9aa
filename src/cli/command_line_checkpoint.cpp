// The command lines of commands about checkpoints and machines: inspect, compare, quantize, doctor ...
#include <CLI/CLI.hpp>

#include "cli/command_line.h"
#include "cli/command_line_seed.h"

namespace fourfold::cli {

void add_compare(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("compare", "A model on a backend against another implementation's numbers");
  CompareOptions& o = line.compare;
  command->add_option("MODEL", o.model, kModelHelp)->required();
  command->add_option("REFERENCE", o.reference, "A safetensors file of reference outputs")->required();
  command->add_option("--backend", o.backend, "cpu, cuda, sim (the simulated GPU) or reference")
      ->capture_default_str();
  command->add_option("--activations", o.activations, "f32, w4a16, w4a4-prefill, w4a4, w8a8, auto or all")
      ->capture_default_str();
  command->add_option("--kv", o.kv, "Keys and values: bf16, fp8 (cuda, sim, reference) or auto")
      ->capture_default_str();
  command->add_option("--step-rows", o.step_rows, "Run prompts in pieces of so many tokens; 0: whole")
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
  command->add_option("MODEL", o.model, kModelHelp)->required();
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
  command->add_option("MODEL", o.model, kModelOrDefaultHelp);
  command->add_option("--context", o.context, "Positions a token attends to")->capture_default_str();
  command->add_flag_callback(
      "--no-measure", [&o] { o.measure = false; }, "Do not measure this machine's memory");
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
  command->add_option("--model", o.model, kModelHelp);
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

void add_health(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("health", "Whether a server is well, as an exit code: 0, or 1");
  HealthOptions& o = line.health;
  command->add_option("URL", o.url, "Where it is")->capture_default_str();
  command->add_flag("--ready", o.ready, "Also whether it takes requests now");
  command->add_option("--api-key-file", o.api_key_file,
                      "A server with keys tells --ready to those who have one");
  command->add_option("--timeout", o.seconds, "Seconds to wait")->capture_default_str();
  command->final_callback([&line] {
    line.has_strict = false;
    line.run = [&line](const Console& console) { return run_health(line.health, console); };
  });
}

void add_quantize(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("quantize", "A 16-bit checkpoint to NVFP4");
  QuantizeOptions& o = line.quantize;
  command->add_option("IN", o.in, kModelHelp)->required();
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
  command->add_option("--shape", o.shape, shape_names())->capture_default_str();
  command
      ->add_option("--format", o.format, "bf16, modelopt, modelopt-mixed, compressed-tensors, nvfp4 or mxfp4")
      ->capture_default_str();
  add_seed(*command, o.seed, "The same seed gives the same bytes")->capture_default_str();
  command->add_option("--layers", o.layers, "So many layers instead of the shape's");
  command->add_flag("--sparse", o.sparse, "Leave matrices as holes: true sizes, hardly any disk");
  CLI::Option* script = command->add_option(
      "--script", o.script,
      "A file with answers: a model that says these, whatever it is asked (docs/models.md)");
  for (const char* other : {"--shape", "--format", "--seed", "--layers", "--sparse"})
    script->excludes(command->get_option(other));
  command->add_option("--text-of", o.text_of, "With --script: the MODEL whose tokenizer and template it uses")
      ->needs(script);
  command->final_callback([&line] {
    line.has_strict = false;
    line.run = [&line](const Console& console) { return run_make_model(line.make_model, console); };
  });
}

}  // namespace fourfold::cli
