#include "cli/bench_gpu_model.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
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

// A bench's lists, read and checked.
struct Plan {
  std::vector<int> users, contexts, drafts;
  int most_users = 0;
  std::int64_t room = 0;  // positions of a sequence

  // Contexts up to the model's last position are cut to what leaves room for the steps; the table says how
  // long they were.
  Plan(const BenchModelOptions& options, std::int64_t position_limit)
      : users(parse_counts(options.users, "--users", 1, 1024)),
        contexts(parse_counts(options.contexts, "--context", 0, 1 << 20)),
        drafts(parse_drafts(options.mtp)) {
    most_users = *std::max_element(users.begin(), users.end());
    const std::int64_t steps = step_rows() * (options.tokens + kWarmSteps + 1);
    for (int& context : contexts) {
      if (context > position_limit)
        fail(Code::invalid_request, "--context {}: the model's limit is {}", context, position_limit);
      context = static_cast<int>(
          std::min<std::int64_t>(context, std::max<std::int64_t>(0, position_limit - steps)));
    }
    const std::int64_t longest =
        std::max<std::int64_t>(*std::max_element(contexts.begin(), contexts.end()), options.prompt);
    room = longest + steps + kTokenGrain;
  }
  // Rows of a user in one step, at most.
  int step_rows() const { return *std::max_element(drafts.begin(), drafts.end()) + 1; }
  bool has_drafts() const { return step_rows() > 1; }
  backend::Capacity capacity(int chunk) const {
    return {.page_count = most_users * ((room + kTokenGrain - 1) / kTokenGrain),
            .page_tokens = kTokenGrain,
            .state_slot_count = most_users,
            .row_count = std::max(chunk, most_users * step_rows())};
  }
};

// The table, as it grows.
class Table {
 public:
  explicit Table(const Console& console) : console_(console) {
    print("  %-8s %6s %8s %12s %10s %12s\n", "what", "users", "context", "tok/s", "ms", "of floor");
  }
  void add(const Line& line) {
    lines_.push_back(line);
    print("  %-8s %6d %8lld %12.1f %10.3f %11.1f%%\n", line.what.c_str(), line.users,
          static_cast<long long>(line.context), line.tokens_per_second, line.milliseconds,
          100 * line.floor_share);
  }
  void write(const std::string& file_name, const std::string& comment) const {
    std::ofstream file(file_name);
    if (!file) fail(Code::io, "{}: cannot be written", file_name);
    file << "# " << comment << "\n" << csv_origin() << "what,users,context,tokens_per_s,ms,floor_share\n";
    for (const Line& line : lines_)
      file << line.what << ',' << line.users << ',' << line.context << ',' << line.tokens_per_second << ','
           << line.milliseconds << ',' << line.floor_share << '\n';
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

double decode_seconds(backend::Prepared& prepared, int users, std::int64_t context, const Plan& plan,
                      int tokens) {
  Users all(prepared, users, context, plan.room);
  for (int step = 0; step < kWarmSteps; ++step) all.decode();
  std::vector<double> times;
  for (int step = 0; step < tokens; ++step) times.push_back(all.decode());
  return median(times);
}

double prompt_seconds(backend::Prepared& prepared, const Plan& plan, int count, int chunk) {
  Users one(prepared, 1, 0, plan.room);
  std::vector<double> times;
  for (int round = 0; round < 5; ++round) times.push_back(one.prompt(count, chunk));
  return median({times[2], times[3], times[4]});  // the first two warm up
}

// Behind the experts' format, where their activations are not 16-bit.
std::string note_of(const library::ChosenActivations& chosen) {
  if (chosen.activations == model::Activations::w4a16) return {};
  return fourfold::format(" ({}{})", library::activations_name(chosen.activations),
                          chosen.emulated ? ", emulated: times say nothing" : "");
}

}  // namespace

std::int64_t bench_gpu_model_bytes(const BenchModelOptions& options, const kernels::Machine& machine) {
  const checkpoint::ModelShape shape = bench_shape(options.shape);
  const Plan plan(options, shape.positions);
  const checkpoint::ModelConfig config = config_of(shape, options.layers > 0 ? options.layers : shape.layers);
  const RandomWeights random(config, parse_random_dense(options.dense), plan.has_drafts());
  backend::Program program =
      model::build_program(config, random.weights(), library::served_activations(machine.arch()));
  library::store_kv(program, options.kv);
  std::int64_t bytes = 0;
  for (const backend::MemoryUse& use : plan_memory(program, plan.capacity(options.chunk), machine))
    bytes += use.bytes;
  return bytes;
}

int run_bench_gpu_model(const BenchModelOptions& options, const Console& console) {
  const checkpoint::ModelShape shape = bench_shape(options.shape);
  const int layers = options.layers > 0 ? options.layers : static_cast<int>(shape.layers);
  if (layers > shape.layers)
    fail(Code::invalid_request, "--layers is {}; 1 to {} are possible", layers, shape.layers);
  if (options.tokens < 1 || options.chunk < 1 || options.prompt < 0)
    fail(Code::invalid_request, "--tokens {}, --chunk {}, --prompt {}: 1, 1 and 0 at least", options.tokens,
         options.chunk, options.prompt);
  const Plan plan(options, shape.positions);
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
  const auto prepared = backend::make_gpu_backend(gpu->machine(), std::move(how))
                            ->prepare(std::move(program), plan.capacity(options.chunk));
  const kernels::GpuState state = gpu->state();
  const std::string comment = fourfold::format(
      "{}: {} of {} layers, random weights, experts nvfp4{}, dense {}, keys and values {}{}; {}, {}; memory "
      "ceiling in this run {} "
      "GB/s",
      shape.what, layers, shape.layers, note_of(activations), options.dense, options.kv,
      plan.has_drafts() ? ", MTP layer bf16" : "", state.name, state.driver, ceiling / 1e9);
  console.out << comment << fourfold::format("; loaded in {} s\n", seconds_since(start));
  if (plan.has_drafts()) {
    bench_mtp(*prepared, {plan.users, plan.drafts, plan.contexts, options.tokens, plan.room, ceiling},
              options.csv, comment, console);
    return kFine;
  }
  Table table(console);
  for (const int context : plan.contexts)
    for (const int users : plan.users) {
      const backend::Cost cost = cost_of(prepared->program(), backend::Pass::main,
                                         {users, users, users, static_cast<double>(context)});
      const double seconds = decode_seconds(*prepared, users, context, plan, options.tokens);
      table.add({"decode", users, context, users / seconds, 1e3 * seconds,
                 (cost.weight_bytes + cost.state_bytes) / ceiling / seconds});
      if (!kernels.empty()) console.out << "    " << std::exchange(kernels, {}) << "\n";
      if (options.stages) print_stages(*prepared, console);
    }
  if (options.prompt > 0) {
    const double seconds = prompt_seconds(*prepared, plan, options.prompt, options.chunk);
    table.add({"prompt", 1, options.prompt, options.prompt / seconds, 1e3 * seconds, 0});
    if (options.stages) print_stages(*prepared, console);
  }
  if (!options.csv.empty()) table.write(options.csv, comment);
  return kFine;
}

}  // namespace fourfold::cli
