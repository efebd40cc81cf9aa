#include "cli/bench_gpu_model.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "backend/cost.h"
#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "base/token_grain.h"
#include "cli/bench_model_weights.h"
#include "cli/bench_mtp.h"
#include "cli/bench_users.h"
#include "cli/build_info.h"
#include "cli/figures.h"
#include "cli/load_model.h"
#include "cli/parse.h"
#include "kernels/gpu/gpu.h"
#include "library/activations.h"
#include "library/tuned.h"
#include "model/forward.h"

namespace fourfold::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kWarmSteps = 6;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Line {
  std::string what;
  int users;
  std::int64_t context;
  double tokens_per_second;
  double milliseconds;  // a step
  double floor_share;   // of the byte floor; 0: not held against it
  double experts = 0;   // different ones that a layer's rows used, on average; 0: it has none, or not counted
};

// "246 kernels a step: 6 in each of 30 layers, 8 in each of 10 layers"
std::string kernel_line(const backend::StepDecision& decision) {
  std::string text = fourfold::format("{} kernels a step", decision.kernel_count);
  const char* before = ":";
  for (const backend::StepPart& part : decision.parts) {
    if (part.layer_count == 0) continue;
    text += fourfold::format("{} {} in each of {} layers", before, part.kernels.size(), part.layer_count);
    before = ",";
  }
  return text;
}

void print_stages(backend::Prepared& prepared, const Console& console) {
  char text[120];
  std::snprintf(text, sizeof text, "      %-16s %12s %12s\n", "stage", "alone, us", "so far, us");
  console.out << text;
  for (const backend::StageTime& time : time_stages(prepared, 20)) {
    std::snprintf(text, sizeof text, "      %-16s %12.1f %12.1f\n", time.stage.c_str(), time.alone,
                  time.so_far);
    console.out << text;
  }
}

// One line of decoding.
struct Decoding {
  int users;
  int context;
};

std::int64_t pages_of(std::int64_t positions) { return (positions + kTokenGrain - 1) / kTokenGrain; }

// A bench's lists, read and checked.
struct Plan {
  std::vector<int> users, contexts, drafts;
  std::vector<Decoding> lines;  // every context with every number of users, but for those left out
  int prompt = 0;
  std::int64_t steps = 0;  // positions that the steps of a line take

  // Contexts up to the model's last position are cut to what leaves room for the steps; the table says how
  // long they were.
  Plan(const BenchModelOptions& options, std::int64_t position_limit)
      : users(parse_counts(options.users, "--users", 1, 1024)),
        contexts(parse_counts(options.contexts, "--context", 0, 1 << 20)),
        drafts(parse_drafts(options.mtp)),
        prompt(options.prompt) {
    steps = step_rows() * (options.tokens + kWarmSteps + 1);
    for (int& context : contexts) {
      if (context > position_limit)
        fail(Code::invalid_request, "--context {}: the model's limit is {}", context, position_limit);
      context = static_cast<int>(
          std::min<std::int64_t>(context, std::max<std::int64_t>(0, position_limit - steps)));
      for (const int count : users) lines.push_back({count, context});
    }
  }
  // Rows of a user in one step, at most.
  int step_rows() const { return *std::max_element(drafts.begin(), drafts.end()) + 1; }
  bool has_drafts() const { return step_rows() > 1; }
  // Positions of a sequence that begins so long.
  std::int64_t room(std::int64_t context) const { return context + steps + kTokenGrain; }
  std::int64_t longest_room() const { return room(*std::max_element(contexts.begin(), contexts.end())); }

  // What the lines need, one at a time, and the prompt, which is one sequence's.
  backend::Capacity capacity(int chunk, std::span<const Decoding> of) const {
    backend::Capacity out{.page_count = prompt > 0 ? pages_of(room(prompt)) : 0,
                          .page_tokens = kTokenGrain,
                          .state_slot_count = 1,
                          .row_count = chunk};
    for (const Decoding& line : of) {
      out.page_count = std::max(out.page_count, line.users * pages_of(room(line.context)));
      out.state_slot_count = std::max<std::int64_t>(out.state_slot_count, line.users);
      out.row_count = std::max<std::int64_t>(out.row_count, line.users * step_rows());
    }
    return out;
  }
  backend::Capacity capacity(int chunk) const { return capacity(chunk, lines); }

  // Leaves out lines that do not fit so much memory, and says which. A bench of which nothing fits, or whose
  // lines are compared with each other, stays as it is and is refused when it is loaded.
  std::string leave_out(const backend::Program& program, const kernels::Machine& machine, int chunk,
                        std::int64_t usable) {
    if (has_drafts() || bytes_of(program, machine, capacity(chunk)) <= usable) return {};
    if (bytes_of(program, machine, capacity(chunk, {&least_line(), 1})) > usable) return {};
    std::vector<Decoding> fitting;
    std::string text;
    for (const Decoding& line : lines) {  // each beside those before it: they share one memory
      fitting.push_back(line);
      const std::int64_t bytes = bytes_of(program, machine, capacity(chunk, fitting));
      if (bytes <= usable) continue;
      fitting.pop_back();
      text += fourfold::format("{}{} with {} of context ({} are needed)", text.empty() ? "" : ", ",
                               counted(line.users, "user"), counted(line.context, "token"),
                               as_bytes(static_cast<double>(bytes)));
    }
    lines = std::move(fitting);
    return text;
  }
  const Decoding& least_line() const {
    return *std::ranges::min_element(
        lines, {}, [this](const Decoding& line) { return line.users * pages_of(room(line.context)); });
  }

  static std::int64_t bytes_of(const backend::Program& program, const kernels::Machine& machine,
                               const backend::Capacity& capacity) {
    std::int64_t bytes = 0;
    for (const backend::MemoryUse& use : plan_memory(program, capacity, machine)) bytes += use.bytes;
    return bytes;
  }
};

// The table, as it grows.
class Table {
 public:
  explicit Table(const Console& console) : console_(console) {
    print("  %-8s %6s %8s %12s %10s %12s %10s\n", "what", "users", "context", "tok/s", "ms", "of floor",
          "experts");
  }
  void add(const Line& line) {
    lines_.push_back(line);
    print("  %-8s %6d %8lld %12.1f %10.3f", line.what.c_str(), line.users,
          static_cast<long long>(line.context), line.tokens_per_second, line.milliseconds);
    if (line.floor_share > 0) print(" %11.1f%%", 100 * line.floor_share);
    if (line.experts > 0) print(" %10.1f", line.experts);
    print("%s", "\n");
  }
  void write(const std::string& file_name, const std::string& comment, const std::string& left_out) const {
    std::ofstream file(file_name);
    if (!file) fail(Code::io, "{}: cannot be written", file_name);
    file << "# " << comment << "\n" << csv_origin();
    if (!left_out.empty()) file << "# left out, for want of memory: " << left_out << "\n";
    file << "what,users,context,tokens_per_s,ms,floor_share,experts\n";
    for (const Line& line : lines_)
      file << line.what << ',' << line.users << ',' << line.context << ',' << line.tokens_per_second << ','
           << line.milliseconds << ',' << line.floor_share << ',' << line.experts << '\n';
  }

 private:
  template <class... Args>
  void print(const char* pattern, const Args&... args) {
    char text[200];
    std::snprintf(text, sizeof text, pattern, args...);
    console_.out << text << std::flush;
  }
  const Console& console_;
  std::vector<Line> lines_;
};

double decode_seconds(backend::Prepared& prepared, const Decoding& line, const Plan& plan, int tokens) {
  Users all(prepared, line.users, line.context, plan.room(line.context));
  for (int step = 0; step < kWarmSteps; ++step) all.decode();
  std::vector<double> times;
  for (int step = 0; step < tokens; ++step) times.push_back(all.decode());
  return median(times);
}

double prompt_seconds(backend::Prepared& prepared, const Plan& plan, int chunk) {
  Users one(prepared, 1, 0, plan.room(plan.prompt));
  std::vector<double> times;
  for (int round = 0; round < 5; ++round) times.push_back(one.prompt(plan.prompt, chunk));
  return median({times[2], times[3], times[4]});  // the first two warm up
}

// A layer's, in the last step; 0: there are none, or more users than run together.
double mean_experts(backend::Prepared& prepared, int users) {
  const std::vector<int> counts = distinct_experts(prepared, users);
  if (counts.empty()) return 0;
  return std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
}

// What the lines are timed with.
struct Timed {
  backend::Prepared& prepared;
  const Plan& plan;
  const BenchModelOptions& options;
  double ceiling;        // bytes/s
  std::string& kernels;  // of the newest shape of a step; shown once
};

void time_decoding(const Timed& timed, Table& table, const Console& console) {
  for (const Decoding& line : timed.plan.lines) {
    const double seconds = decode_seconds(timed.prepared, line, timed.plan, timed.options.tokens);
    const double experts = mean_experts(timed.prepared, line.users);
    const backend::Cost cost =
        cost_of(timed.prepared.program(), backend::Pass::main,
                {line.users, line.users, line.users, static_cast<double>(line.context), experts});
    table.add({"decode", line.users, line.context, line.users / seconds, 1e3 * seconds,
               (cost.weight_bytes + cost.state_bytes) / timed.ceiling / seconds, experts});
    if (!timed.kernels.empty()) console.out << "    " << std::exchange(timed.kernels, {}) << "\n";
    if (timed.options.stages) print_stages(timed.prepared, console);
  }
}

void time_prompt(const Timed& timed, Table& table, const Console& console) {
  const int prompt = timed.plan.prompt;
  const double seconds = prompt_seconds(timed.prepared, timed.plan, timed.options.chunk);
  table.add({"prompt", 1, prompt, prompt / seconds, 1e3 * seconds, 0});
  if (timed.options.stages) print_stages(timed.prepared, console);
}

// Behind the experts' format, where their activations are not 16-bit.
std::string note_of(const library::ChosenActivations& chosen) {
  if (chosen.activations == model::Activations::w4a16) return {};
  return fourfold::format(" ({}{})", library::activations_name(chosen.activations),
                          chosen.emulated ? ", emulated: times say nothing" : "");
}

}  // namespace

BenchFit fit_bench_gpu_model(const BenchModelOptions& options, const kernels::Machine& machine,
                             std::int64_t usable) {
  const checkpoint::ModelShape shape = bench_shape(options.shape);
  Plan plan(options, shape.positions);
  const checkpoint::ModelConfig config = config_of(shape, options.layers > 0 ? options.layers : shape.layers);
  const RandomWeights random(config, parse_random_dense(options.dense), plan.has_drafts());
  backend::Program program =
      model::build_program(config, random.weights(), library::served_activations(machine.arch()));
  library::store_kv(program, options.kv);
  BenchFit fit;
  fit.left_out = plan.leave_out(program, machine, options.chunk, usable);
  fit.bytes = Plan::bytes_of(program, machine, plan.capacity(options.chunk));
  for (const int users : plan.users) {
    const auto same = [&](const Decoding& line) { return line.users == users; };
    if (std::ranges::count_if(plan.lines, same) == std::ssize(plan.contexts)) fit.users.push_back(users);
  }
  return fit;
}

int run_bench_gpu_model(const BenchModelOptions& options, const Console& console) {
  const checkpoint::ModelShape shape = bench_shape(options.shape);
  const int layers = options.layers > 0 ? options.layers : static_cast<int>(shape.layers);
  if (layers > shape.layers)
    fail(Code::invalid_request, "--layers is {}; 1 to {} are possible", layers, shape.layers);
  if (options.tokens < 1 || options.chunk < 1 || options.prompt < 0)
    fail(Code::invalid_request, "--tokens {}, --chunk {}, --prompt {}: 1, 1 and 0 at least", options.tokens,
         options.chunk, options.prompt);
  const backend::cuda::StepWays usual,
      ways = options.ways.empty() ? usual : backend::cuda::parse_ways(options.ways);
  Plan plan(options, shape.positions);
  if (plan.has_drafts() && !shape.mtp)
    fail(Code::invalid_request, "--mtp {}: the shape {} has no MTP layer", options.mtp, shape.name);
  const auto gpu = kernels::open_gpu(options.gpu);
  const checkpoint::ModelConfig config = config_of(shape, layers);
  const RandomWeights random(config, parse_random_dense(options.dense), plan.has_drafts());
  const double ceiling = gpu->read_gb_per_s() * 1e9;
  const auto start = Clock::now();
  const library::Listener listener{
      .on_fact = [&](const std::string& text) { console.err << "fourfold: " << text << "\n"; }};
  backend::GpuOptions how{.graphs = options.graphs,
                          .ways = ways,
                          .tuning = library::find_tuning(gpu->machine(), options.tuned, listener)};
  if (options.memory_fraction) how.memory_fraction = library::parse_memory_fraction(*options.memory_fraction);
  std::string kernels;  // of the newest shape
  how.on_new_shape = [&](const backend::StepDecision& decision) {
    kernels = kernel_line(decision);
    if (options.explain) console.out << "  step of " << decision.text() << std::flush;
  };
  const library::ChosenActivations activations = library::choose_activations(
      {.backend = "cuda", .activations = options.activations, .allow_emulated = true},
      library::fp4_chip(gpu->machine(), false));
  if (!activations.notice.empty()) console.err << "fourfold: " << activations.notice << "\n";
  backend::Program program = model::build_program(config, random.weights(), activations.activations);
  library::take_fp8_rows(program, {.dense = "keep"}, activations.activations);  // random ones are stored so
  library::store_kv(program, options.kv);
  kernels::Memory& memory = gpu->machine().memory();
  const std::string left_out = plan.leave_out(
      program, gpu->machine(), options.chunk,
      backend::memory_room(memory.free_bytes(), memory.total_bytes(), how.memory_fraction).usable);
  if (!left_out.empty()) console.err << "fourfold: left out, for want of memory: " << left_out << "\n";
  const auto prepared = backend::make_gpu_backend(gpu->machine(), std::move(how))
                            ->prepare(std::move(program), plan.capacity(options.chunk));
  const kernels::GpuState state = gpu->state();
  const std::string comment = fourfold::format(
      "{}: {} of {} layers, random weights, experts {}{}, dense {}, keys and values {}{}{}; {}, {}; memory "
      "ceiling in this run {} "
      "GB/s",
      shape.what, layers, shape.layers, format_name(random.expert_format()), note_of(activations),
      options.dense, options.kv, plan.has_drafts() ? ", MTP layer bf16" : "",
      ways == usual ? "" : ", ways " + to_text(ways), state.name, state.driver, ceiling / 1e9);
  console.out << comment << fourfold::format("; loaded in {} s\n", seconds_since(start));
  if (plan.has_drafts()) {
    bench_mtp(*prepared,
              {plan.users, plan.drafts, plan.contexts, options.tokens, plan.longest_room(), ceiling},
              options.csv, comment, console);
    return kFine;
  }
  Table table(console);
  const Timed timed{*prepared, plan, options, ceiling, kernels};
  time_decoding(timed, table, console);
  if (options.prompt > 0) time_prompt(timed, table, console);
  if (!options.csv.empty()) table.write(options.csv, comment, left_out);
  return kFine;
}

}  // namespace fourfold::cli
