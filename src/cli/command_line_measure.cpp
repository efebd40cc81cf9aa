// The command lines of commands that measure: benches, tuning, backends against each other.
#include <CLI/CLI.hpp>

#include "cli/command_line.h"
#include "cli/command_line_seed.h"

namespace fourfold::cli {

void add_bench_load(CLI::App& bench, CommandLine& line) {
  CLI::App* command =
      bench.add_subcommand("load", "Time how a MODEL gets onto a GPU, beside what disk and bus can carry");
  BenchLoadOptions& o = line.bench_load;
  command->add_option("MODEL", o.model, kModelOrDefaultHelp);
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
  command->add_option("--activations", o.activations, "auto, w4a16, w4a4; cuda: also w4a4-prefill, w8a8")
      ->capture_default_str();
  command->add_option("--isa", o.isa, "plain, avx2, avx512, amx or neon; else the best this CPU has");
  command->add_flag("--tile-codes", o.tile_codes, "NVFP4 weights on AMX's tile unit: faster prompts");
  command->add_option("--tp", o.tp, "cpu: ranks that hold a part of the model each")->capture_default_str();
  command
      ->add_option("--experts", o.experts, "Of several ranks: tp (a part of each), ep (some, whole) or auto")
      ->capture_default_str();
  command->add_option("--users", o.users, "cuda: sequences decoded at once: 1,8,64")->capture_default_str();
  command->add_option("--context", o.contexts, "cuda: their lengths: 0,4k,32k")->capture_default_str();
  command
      ->add_option("--mtp", o.mtp, "cuda: drafts a step, 0..5 or 0,1,3: where they pay, instead of prompts")
      ->capture_default_str();
  command->add_option("--chunk", o.chunk, "cuda: rows of a prompt at a time")->capture_default_str();
  command->add_option("--gpu", o.gpu, "cuda: which GPU")->capture_default_str();
  command->add_flag_callback(
      "--no-graphs", [&o] { o.graphs = false; }, "cuda: launch every kernel by itself");
  command->add_flag("--stages", o.stages, "cuda: where a step's time goes, each stage timed alone");
  command->add_option("--kv", o.kv, "cuda: keys and values, bf16 or fp8")->capture_default_str();
  command->add_option("--memory-fraction", o.memory_fraction,
                      "cuda: of the GPU's memory, what may be used (0.95)");
  command->add_flag("--explain", o.explain, "cuda: which kernels a step of each new shape runs with");
  command->add_option(
      "--ways", o.ways,
      "cuda: ways through a step that are on, to compare them, with commas between and no spaces: "
      "grids_by_context, sums_norm, pairs_many, combines_norm, many_tables, joins_latent; or none");
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

void add_bench_all_reduce(CLI::App& bench, CommandLine& line) {
  CLI::App* command = bench.add_subcommand(
      "all-reduce", "Latency of each way to sum rows over ranks, beside a model of PCIe 4 and 5");
  BenchAllReduceOptions& o = line.bench_all_reduce;
  command->add_option("--ranks", o.ranks, "2 to 8")->capture_default_str();
  command->add_option("--rows", o.rows, "Rows of a call, several separated by commas")->delimiter(',');
  command->add_option("--columns", o.columns, "Columns of a row")->capture_default_str();
  command->add_option("--blocks", o.blocks, "Blocks of a rank's kernel, 1 to 16")->capture_default_str();
  command->add_option("--rounds", o.rounds, "Timed replays of a graph of 100 calls")->capture_default_str();
  command->add_option("--gpu", o.gpu, "Index of the GPU")->capture_default_str();
  command->add_flag("--each-gpu", o.each_gpu, "A GPU for each rank, not streams of one");
  command->add_option("--nccl", o.nccl, "NCCL beside it: libnccl.so.2, or its path; wants --each-gpu");
  command->add_flag("--sim", o.sim, "On simulated devices: shows that it runs, not how fast");
  command->add_option("--json", o.json, "Write the results to this file");
  command->callback([&line] {
    line.run = [&line](const Console& console) {
      return run_bench_all_reduce(line.bench_all_reduce, console);
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

// What load is sent.
void add_load(CLI::App& command, BenchServeOptions& o) {
  command.add_option("--preset", o.preset, "field: the tables owners of these cards compare");
  command.add_option("--scale", o.scale, "Of --preset field: lengths times this")->capture_default_str();
  command.add_option("--users", o.users, "At once: 1,2,4")->capture_default_str();
  command.add_option("--context", o.contexts, "Prompt tokens: 128,1k (0: the prompts as they are)")
      ->capture_default_str();
  command.add_option("--output", o.outputs, "Tokens of an answer: 128,1k")->capture_default_str();
  command.add_option("--prompts", o.prompts, "natural (code, prose, translation, JSON), random or short")
      ->capture_default_str();
  command.add_option("--thinking", o.thinking, "on or off (off)");
  command.add_option("--rounds", o.rounds, "Requests of each user")->capture_default_str();
  command.add_option("--request-rate", o.request_rates,
                     "Instead of users, requests a second whether or not others are answered: 1,2,inf");
  command.add_option("--requests", o.requests, "Of each --request-rate: how many")->capture_default_str();
  command
      .add_option("--burstiness", o.burstiness, "Of --request-rate: 1 is a Poisson process, less is bursts")
      ->capture_default_str();
  command.add_option("--concurrency", o.concurrency, "Of --request-rate: at most so many at once");
  command.add_option("--warmup", o.warmup, "Requests before each cell, not measured")->capture_default_str();
  command.add_option("--repeat", o.repeat, "Measure each cell so often; gives the variation")
      ->capture_default_str();
  add_seed(command, o.seed, "Of prompts, arrivals and answers")->capture_default_str();
  command.add_option("--temperature", o.temperature, "Of the answers")->capture_default_str();
  command.add_option("--timeout", o.timeout_s, "Seconds for one request")->capture_default_str();
  command.add_option("--max-users", o.max_users, "Skip cells with more, and say so");
  command.add_option("--max-context", o.max_context, "Skip cells with longer prompts, and say so");
  command.add_option("--max-output", o.max_output, "Skip cells with longer answers, and say so");
  command.add_option("--max-positions", o.max_positions,
                     "Skip cells whose prompt and answer are longer together (what the server says)");
  command.add_option("--time-limit", o.time_limit_s, "Seconds after which no cell is begun");
}

void add_bench_serve(CLI::App& bench, CommandLine& line) {
  CLI::App* command = bench.add_subcommand(
      "serve", "Load for an OpenAI-compatible server: latencies, tok/s, plots (docs/bench.md)");
  BenchServeOptions& o = line.bench_serve;
  command->add_option("URL", o.url, "The server; plain http")->capture_default_str();
  command->add_option("--api-key", o.api_key, "Sent as a bearer token (FOURFOLD_API_KEY)");
  command->add_option("--served-model", o.served_model, "Which of its models (the first it lists)");
  command->add_option("--api", o.api, "chat or completions")->capture_default_str();
  add_load(*command, o);
  command->add_option("--goodput", o.goodput, "Limits of a good request in ms: ttft:500,tpot:30,e2el:10000");
  command->add_option("--model", o.floor_model,
                      "Share of the floor: the served MODEL, for the bytes of a step");
  command->add_option("--bandwidth", o.bandwidth, "Share of the floor: GB/s of the server's memory");
  command->add_flag("--cost", o.cost, "Time, energy and hardware price of a million output tokens");
  command->add_option("--power", o.power_w, "Of --cost: watts of the server under load");
  command->add_option("--tariff", o.tariff, "Of --cost: price of a kWh");
  command->add_option("--price", o.price, "Of --cost: what the hardware was bought for");
  command->add_option("--life", o.life_years, "Of --cost: years it runs, day and night");
  command->add_option("--label", o.label, "What the report calls this run");
  command->add_option("--json", o.json, "Write the results to this file; bench diff reads it");
  command->add_option("--csv", o.csv, "Write the table to this file");
  command->add_option("--html", o.html, "Write a page with plots to this file");
  command->final_callback([&line] {
    line.has_strict = false;
    line.run = [&line](const Console& console) { return run_bench_serve(line.bench_serve, console); };
  });
}

void add_bench_diff(CLI::App& bench, CommandLine& line) {
  CLI::App* command = bench.add_subcommand(
      "diff", "Two results of bench serve: faster, slower or within noise; 1 when anything is slower");
  command->add_option("A", line.bench_diff.a, "JSON of the run before, or of their server")->required();
  command->add_option("B", line.bench_diff.b, "JSON of the run after, or of ours")->required();
  command->final_callback([&line] {
    line.has_strict = false;
    line.run = [&line](const Console& console) { return run_bench_diff(line.bench_diff, console); };
  });
}

void add_tune(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("tune", "Which kernels of equal bits are fastest on this GPU, measured and kept");
  TuneCommandOptions& o = line.tune;
  command->add_option("MODEL", o.model,
                      "A folder, a hub name in the local cache, or storyteller; or --shape");
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

void add_report(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand(
      "report", "One file to send: this machine verified, measured and recorded, names removed");
  ReportOptions& o = line.report;
  command->add_option("--out", o.out, "The file (fourfold-report-CARD.json in this folder)");
  command->add_flag("--force", o.force, "Replace a file that is there");
  command->add_option("--device", o.device, "cuda, or sim: the simulated GPU and this CPU")
      ->capture_default_str();
  command->add_flag("--quick", o.quick,
                    "Fewer proofs, one MoE layer, one model; the file says what was left out");
  command->add_option("--tune-out", o.tune_out,
                      "A file or folder for which kernels are fastest here (beside the report)");
  command->add_flag_callback(
      "--no-tune", [&o] { o.tune = false; }, "Do not measure that");
  command->add_option("--results", o.results, "Also write each part's own file into this folder");
  command->add_option("--rows", o.rows, "Of verify: only rows or kernels that match: 'moe_stream*w4a4*'");
  command->add_option("--part-minutes", o.part_minutes,
                      "Stop a part that takes longer (ten times its estimate, 15 at least)");
  command->add_option("--gpu", o.gpu, "Which GPU")->capture_default_str();
  command->final_callback([&line] {
    line.has_strict = false;
    line.run = [&line](const Console& console) { return run_report(line.report, console); };
  });
}

void add_diff_backends(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("diff-backends", "A model's layers on several backends, on the same inputs");
  DiffBackendsOptions& o = line.diff_backends;
  command->add_option("MODEL", o.model, kModelOrDefaultHelp);
  command->add_option("--backends", o.backends, "cpu, sim, reference, cuda; all are held against the first")
      ->capture_default_str();
  command->add_option("--prompt-ids", o.prompt_ids, "The tokens, 1,2,3; else random ones");
  add_seed(*command, o.seed, "Of the random tokens")->capture_default_str();
  command->add_option("--tokens", o.tokens, "How many random tokens")->capture_default_str();
  command->add_option("--generated", o.generated, "The last so many run one by one, as generated rows")
      ->capture_default_str();
  command->add_option("--activations", o.activations, "w4a16, f32, w4a4-prefill, w4a4, w8a8 or auto")
      ->capture_default_str();
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
