#include "cli/bench_model_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "backend/cost.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/pool.h"
#include "backend/ranks/host_collective.h"
#include "backend/ranks/ranks.h"
#include "base/error.h"
#include "base/random.h"
#include "base/read_speed.h"
#include "base/token_grain.h"
#include "cli/bench_gpu_model.h"
#include "cli/bench_model_weights.h"
#include "cli/figures.h"
#include "cli/load_model.h"
#include "cli/progress.h"
#include "kernels/cpu/isa.h"
#include "model/forward.h"

namespace fourfold::cli {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

constexpr std::int32_t kChunk = 512;  // rows of a prompt at a time

// One sequence on a prepared program.
class Sequence {
 public:
  Sequence(backend::Prepared& prepared, std::int32_t page_count) : prepared_(prepared) {
    for (std::int32_t page = 0; page < page_count; ++page) pages_.push_back(page);
    logits_.resize(static_cast<std::size_t>(prepared.program().vocab_size));
  }

  // Seconds for `count` tokens from the current position on.
  double advance(std::int32_t count, bool wants_logits) {
    tokens_.resize(static_cast<std::size_t>(count));
    for (auto& token : tokens_)
      token = static_cast<std::int32_t>(
          random_.below(static_cast<std::uint64_t>(prepared_.program().vocab_size)));
    const backend::SequenceRows rows{
        count, position_, 0, 0, static_cast<std::int32_t>(pages_.size()), backend::Role::prefill, 0};
    const std::int32_t last = count - 1;
    backend::Batch batch;
    batch.tokens = tokens_;
    batch.sequences = {&rows, 1};
    batch.pages = pages_;
    if (wants_logits) batch.logits_rows = {&last, 1};
    const auto start = Clock::now();
    prepared_.run(backend::Pass::main, batch, std::span(logits_).first(wants_logits ? logits_.size() : 0));
    position_ += count;
    return seconds_since(start);
  }
  void restart() { position_ = 0; }

 private:
  backend::Prepared& prepared_;
  Random random_{1};
  std::int64_t position_ = 0;
  std::vector<std::int32_t> pages_, tokens_;
  std::vector<float> logits_;
};

model::Activations parse_formats(const std::string& text) {
  if (text == "w4a16") return model::Activations::w4a16;
  if (text == "w4a4") return model::Activations::w4a4;
  fail(Code::invalid_request, "--activations is '{}'; with --backend cpu w4a16 and w4a4 are possible", text);
}

void require_in_range(const char* name, int value, int most) {
  if (value < 1 || value > most)
    fail(Code::invalid_request, "{} is {}; 1 to {} are possible", name, value, most);
}

std::string row(const char* what, double measured, double whole, const std::string& rest) {
  char text[160];
  std::snprintf(text, sizeof text, "  %-18s %10.2f tok/s   %10.2f tok/s", what, measured, whole);
  return text + rest + "\n";
}

struct Times {
  double prefill = 0;  // seconds a token, layers alone
  double decode = 0;   // seconds a token, layers alone
  double head = 0;     // seconds of the head over one row
};

Times measure(backend::Prepared& prepared, const BenchModelOptions& options, const Console& console) {
  Sequence sequence(prepared, static_cast<std::int32_t>(prepared.capacity().page_count));
  const auto prompt = [&] {
    sequence.restart();
    double seconds = 0;
    for (int done = 0; done < options.prompt; done += kChunk)
      seconds += sequence.advance(std::min(kChunk, options.prompt - done), false);
    return seconds;
  };
  Times times;
  constexpr int rounds = 4;
  std::vector<double> prompts;
  ProgressLine reading(console, "prompts");
  for (int i = 0; i < rounds; ++i) {
    const double seconds = prompt();
    if (i > 0) prompts.push_back(seconds);  // the first touches every page and grows every buffer
    reading.update(i + 1, rounds, (i + 1.0) / rounds);
  }
  reading.clear();
  times.prefill = median(prompts) / options.prompt;
  std::vector<double> with, without;
  ProgressLine decoding(console, "decoding");
  for (int i = 0; i < options.tokens; ++i) {
    decoding.update(i, options.tokens, static_cast<double>(i) / options.tokens);
    without.push_back(sequence.advance(1, false));
    with.push_back(sequence.advance(1, true));
  }
  times.decode = median(without);
  times.head = std::max(0.0, median(with) - times.decode);
  return times;
}

// Options of the other backend are refused, not ignored.
void require_own_options(const BenchModelOptions& options) {
  const BenchModelOptions none;
  const bool is_cuda = options.backend == "cuda";
  const auto refuse = [&](bool given, const char* option) {
    if (given) fail(Code::invalid_request, "{} is for --backend {}", option, is_cuda ? "cpu" : "cuda");
  };
  if (is_cuda) {
    refuse(options.threads != none.threads, "--threads");
    refuse(!options.isa.empty(), "--isa");
    refuse(options.tile_codes, "--tile-codes");
    refuse(options.tp != none.tp, "--tp");
    return;
  }
  refuse(options.users != none.users, "--users");
  refuse(options.contexts != none.contexts, "--context");
  refuse(options.mtp != none.mtp, "--mtp");
  refuse(options.chunk != none.chunk, "--chunk");
  refuse(options.gpu != none.gpu, "--gpu");
  refuse(!options.graphs, "--no-graphs");
  refuse(options.stages, "--stages");
  refuse(options.kv != none.kv, "--kv");
  refuse(options.memory_fraction.has_value(), "--memory-fraction");
  refuse(options.explain, "--explain");
  refuse(!options.ways.empty(), "--ways");
  refuse(!options.csv.empty(), "--csv");
}

struct Made {
  std::unique_ptr<backend::Prepared> prepared;
  backend::Cost cost;  // of one token, on all ranks together: they share one memory
};

Made make_one(const BenchModelOptions& options, const checkpoint::ModelConfig& config,
              const checkpoint::ModelWeights& weights, const backend::Capacity& capacity,
              const backend::StepShape& one_token) {
  Made made;
  backend::Program program = model::build_program(config, weights, parse_formats(options.activations));
  made.cost = cost_of(program, backend::Pass::main, one_token);
  made.prepared = backend::make_cpu_backend(
                      {.threads = options.threads, .isa = options.isa, .tile_codes = options.tile_codes})
                      ->prepare(std::move(program), capacity);
  return made;
}

Made make_ranks(const BenchModelOptions& options, const checkpoint::ModelConfig& config,
                const checkpoint::ModelWeights& weights, const backend::Capacity& capacity,
                const backend::StepShape& one_token) {
  const auto all =
      options.threads != 0 ? options.threads : static_cast<int>(backend::cpu::allowed_cpus().size());
  const int each = std::max(all / options.tp, 1);
  backend::RankOptions rank_options;
  const auto collective = backend::make_host_collective(options.tp, rank_options.patience);
  rank_options.give_up = [collective](int rank, const std::string& why) { collective->give_up(rank, why); };
  Made made;
  std::vector<backend::Rank> ranks;
  for (int rank = 0; rank < options.tp; ++rank) {
    auto part = std::make_shared<const model::ModelShard>(model::shard_model(
        config, weights, {rank, options.tp}, library::parse_expert_sharding(options.experts)));
    backend::Program program = model::build_program(*part, parse_formats(options.activations));
    made.cost += cost_of(program, backend::Pass::main, one_token);
    ranks.push_back({backend::make_cpu_backend({.threads = each,
                                                .isa = options.isa,
                                                .tile_codes = options.tile_codes,
                                                .collective = collective,
                                                .first_cpu = rank * each}),
                     std::move(program), std::move(part)});
  }
  made.prepared = backend::prepare_ranks(std::move(ranks), capacity, std::move(rank_options));
  return made;
}

}  // namespace

int run_bench_model(const BenchModelOptions& asked, const Console& console) {
  require_own_options(asked);
  if (asked.backend == "cuda") return run_bench_gpu_model(asked, console);
  if (asked.backend != "cpu")
    fail(Code::invalid_request, "--backend is '{}'; cpu and cuda are possible", asked.backend);
  BenchModelOptions options = asked;
  const checkpoint::ModelShape& shape = checkpoint::find_shape(options.shape);
  if (options.layers == 0) options.layers = static_cast<int>(std::min<std::int64_t>(4, shape.layers));
  if (options.activations == "auto") options.activations = "w4a16";
  require_in_range("--layers", options.layers, static_cast<int>(shape.layers));
  require_in_range("--prompt", options.prompt, 65536);
  require_in_range("--tokens", options.tokens, 4096);
  const std::int64_t positions = options.prompt + 2 * options.tokens;
  checkpoint::ModelConfig config = config_of(shape, options.layers);
  config.position_limit = std::max(config.position_limit, positions);  // a time depends on no model's limit
  const RandomWeights random(config, parse_random_dense(options.dense));
  require_in_range("--tp", options.tp, library::kRanksMax);
  const backend::StepShape one_token{1, 1, 1, static_cast<double>(options.prompt + options.tokens)};

  const backend::Capacity capacity{.page_count = (positions + kTokenGrain - 1) / kTokenGrain,
                                   .page_tokens = kTokenGrain,
                                   .state_slot_count = 1,
                                   .row_count = std::min(kChunk, options.prompt)};
  console.err << fourfold::format("fourfold: making random weights of {}\n",
                                  counted(options.layers, "layer"));
  const auto start = Clock::now();
  const Made made =
      (options.tp > 1 ? make_ranks : make_one)(options, config, random.weights(), capacity, one_token);
  console.out << fourfold::format(
      "{}: {} of {} layers, random weights, experts {}, dense {}, {}; cpu with {}{}; made in {} s\n",
      shape.what, options.layers, shape.layers, format_name(random.expert_format()), options.dense,
      options.activations, cpu::isa_name(cpu::choose_isa(options.isa)),
      options.tp > 1 ? fourfold::format(", {} ranks", options.tp) : "", rounded(seconds_since(start)));

  const double before = measure_read_gb_per_s();
  const Times times = measure(*made.prepared, options, console);
  const double ceiling = std::max(before, measure_read_gb_per_s());
  const double bytes = made.cost.weight_bytes + made.cost.state_bytes;
  const double rate = bytes / (times.decode + times.head) / 1e9;
  const double factor = static_cast<double>(shape.layers) / options.layers;
  console.out << fourfold::format("  memory ceiling: {} GB/s, all cores reading, in this run\n",
                                  rounded(ceiling));
  console.out << fourfold::format("                         these {} layers    extrapolated to {}\n",
                                  options.layers, shape.layers);
  console.out << row("prefill", 1 / times.prefill, 1 / (times.prefill * factor),
                     fourfold::format("   ({} tokens, no head)", options.prompt));
  console.out << row(
      "decode", 1 / (times.decode + times.head), 1 / (times.decode * factor + times.head),
      fourfold::format("   ({} GB/s, {} % of the ceiling)", rounded(rate), rounded(100 * rate / ceiling)));
  console.out << fourfold::format(
      "  a decoded token: {} ms of layers, {} ms of head; {} MB; medians of {} steps at positions {} to {}\n",
      rounded(1e3 * times.decode), rounded(1e3 * times.head), rounded(bytes / 1e6), options.tokens,
      options.prompt, positions);
  return kFine;
}

}  // namespace fourfold::cli
