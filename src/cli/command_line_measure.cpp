// The command lines of commands that measure: benches, tuning, backends against each other.
#include <CLI/CLI.hpp>

#include "cli/command_line.h"

namespace fourfold::cli {

void add_bench_model(CLI::App& bench, CommandLine& line) {
  CLI::App* command =
      bench.add_subcommand("model", "Time prompts and decoding at a model's layer shapes, random weights");
  BenchModelOptions& o = line.bench_model;
  command->add_option("--backend", o.backend, "cpu or cuda")->capture_default_str();
  command->add_option("--shape", o.shape, "35b, 122b, 397b or another that make-model knows")
      ->capture_default_str();
  command->add_option("--layers", o.layers,
                      "How many are run (cpu: 4, and the rest is extrapolated; cuda: all)");
  command->add_option("--threads", o.threads, "0: one per core")->capture_default_str();
  command->add_option("--prompt", o.prompt, "Tokens of the prompt")->capture_default_str();
  command->add_option("--tokens", o.tokens, "Decoded tokens")->capture_default_str();
  command
      ->add_option("--dense", o.dense,
                   "All but the routed experts: nvfp4, fp8, or bf16 (keep: as releases have them)")
      ->capture_default_str();
  command->add_option("--activations", o.activations, "w4a16 or w4a4")->capture_default_str();
  command->add_option("--isa", o.isa, "plain, avx2, avx512, amx or neon; else the best this CPU has");
  command->add_flag("--tile-codes", o.tile_codes, "NVFP4 weights on AMX's tile unit: faster prompts");
  command->add_option("--users", o.users, "cuda: sequences decoded at once: 1,8,64")->capture_default_str();
  command->add_option("--context", o.contexts, "cuda: their lengths: 0,4k,32k")->capture_default_str();
  command
      ->add_option("--mtp", o.mtp, "cuda: drafts a step, 0..5 or 0,1,3: where they pay, instead of prompts")
      ->capture_default_str();
  command->add_option("--chunk", o.chunk, "cuda: rows of a prompt at a time")->capture_default_str();
  command->add_option("--gpu", o.gpu, "cuda: which GPU")->capture_default_str();
  command->add_flag("!--no-graphs", o.graphs, "cuda: launch every kernel by itself");
  command->add_flag("--stages", o.stages, "cuda: where a step's time goes, each stage timed alone");
  command->add_option("--kv", o.kv, "cuda: keys and values, bf16 or fp8")->capture_default_str();
  command->add_option("--memory-fraction", o.memory_fraction,
                      "cuda: of the GPU's memory, what may be used (0.95)");
  command->add_flag("--explain", o.explain, "cuda: which kernels a step of each new shape runs with");
  command->add_option("--csv", o.csv, "cuda: also write the table to this file");
  command->add_option("--tuned", o.tuned, "cuda: this tuning file, or none");
  command->final_callback([&line] {
    line.has_strict = false;
    line.run = [&line](const Console& console) { return run_bench_model(line.bench_model, console); };
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

void add_tune(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("tune", "Which kernels of equal bits are fastest on this GPU, measured and kept");
  TuneCommandOptions& o = line.tune;
  command->add_option("MODEL", o.model, "A folder, or a hub name in the local cache; or --shape");
  command->add_option("--shape", o.shape,
                      "Random weights: 35b, 122b, 397b-tp4 or another that make-model knows");
  command->add_option("--backend", o.backend, "cuda, or sim: bits are compared, nothing is timed")
      ->capture_default_str();
  command->add_option("--out", o.out, "The tuning file (the chip's own in the user's config folder)");
  command->add_option("--ops", o.ops, "Only ops that match: 'matrix*', 'experts'")->capture_default_str();
  command->add_option("--users", o.users, "Sequences decoded at once")->capture_default_str();
  command->add_option("--prompt", o.prompts, "Rows of a prompt at once")->capture_default_str();
  command->add_option("--context", o.context, "Positions of a sequence before the step")
      ->capture_default_str();
  command->add_option("--dense", o.dense, "Of a shape, all but the routed experts: bf16, fp8 or nvfp4")
      ->capture_default_str();
  command->add_option("--layers", o.layers, "Of a shape, how many (all)");
  command->add_option("--rounds", o.rounds, "Timed rounds of each candidate")->capture_default_str();
  command->add_option("--seconds", o.seconds, "Measure no longer; what is left is listed as not timed")
      ->capture_default_str();
  command->add_option("--gpu", o.gpu, "Which GPU")->capture_default_str();
  command->final_callback([&line] {
    line.has_strict = false;
    line.run = [&line](const Console& console) { return run_tune(line.tune, console); };
  });
}

void add_diff_backends(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("diff-backends", "A model's layers on several backends, on the same inputs");
  DiffBackendsOptions& o = line.diff_backends;
  command->add_option("MODEL", o.model, "A folder, or a hub name in the local cache")->required();
  command->add_option("--backends", o.backends, "cpu, sim, reference, cuda; all are held against the first")
      ->capture_default_str();
  command->add_option("--prompt-ids", o.prompt_ids, "The tokens, 1,2,3; else random ones");
  command->add_option("--seed", o.seed, "Of the random tokens")->capture_default_str();
  command->add_option("--tokens", o.tokens, "How many random tokens")->capture_default_str();
  command->add_option("--generated", o.generated, "The last so many run one by one, as generated rows")
      ->capture_default_str();
  command->add_option("--activations", o.activations, "w4a16, f32, w4a4 or auto")->capture_default_str();
  command->add_option("--threads", o.threads, "cpu: 0 is one per core")->capture_default_str();
  command->add_flag("--by-op", o.by_op,
                    "Also the values inside the layers that both backends keep: cpu, reference");
  command->add_flag("--json", o.json, "JSON instead of text");
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.diff_backends.strict = line.strict;
      return run_diff_backends(line.diff_backends, console);
    };
  });
}

}  // namespace fourfold::cli
