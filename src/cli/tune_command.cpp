#include "cli/tune_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <vector>

#include "backend/cuda/cuda.h"
#include "backend/cuda/tune/tune.h"
#include "backend/cuda/tune/tuning_file.h"
#include "base/error.h"
#include "base/token_grain.h"
#include "cli/bench_model_weights.h"
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

namespace fs = std::filesystem;
using backend::cuda::Measured;
using backend::cuda::MeasuredOp;
using backend::cuda::TuneResult;
using backend::cuda::Tuning;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The program that is tuned and what it stands on.
struct Subject {
  std::unique_ptr<OpenModel> model;
  std::optional<checkpoint::ModelConfig> config;
  std::optional<RandomWeights> random;
  std::string what;
  PreparedModel prepared;
};

// What is measured: batches of users with a past, and prompts.
struct Plan {
  std::vector<int> users, prompts;
  std::int64_t context;

  explicit Plan(const TuneCommandOptions& options) : context(options.context) {
    if (!options.users.empty()) users = parse_counts(options.users, "--users", 1, 128);
    if (!options.prompts.empty()) prompts = parse_counts(options.prompts, "--prompt", 1, 1 << 16);
    if (users.empty() && prompts.empty())
      fail(Code::invalid_request, "no --users and no --prompt: nothing to tune");
    if (options.context < 0) fail(Code::invalid_request, "--context is {}; 0 at least", options.context);
    std::sort(users.begin(), users.end());
    std::sort(prompts.begin(), prompts.end());
  }
  std::int64_t most_users() const { return users.empty() ? 1 : users.back(); }
  std::int64_t most_rows() const {
    return std::max<std::int64_t>(most_users(), prompts.empty() ? 0 : prompts.back());
  }
  // Pages of a user; a prompt takes those of all.
  std::int64_t pages() const { return context / kTokenGrain + 1; }
  backend::Capacity capacity() const {
    const std::int64_t prompt_pages = prompts.empty() ? 0 : (prompts.back() + kTokenGrain - 1) / kTokenGrain;
    return {.page_count = std::max(most_users() * pages(), prompt_pages),
            .page_tokens = kTokenGrain,
            .state_slot_count = most_users(),
            .row_count = most_rows()};
  }
};

// One step; the pass that is tuned next.
void run_step(backend::Prepared& prepared, const Plan& plan, int count, backend::Role role) {
  if (role == backend::Role::prefill)
    Users(prepared, 1, 0, count).prompt(count, count);
  else
    Users(prepared, count, plan.context, plan.context + 1).decode();
}

WeightFormat parse_dense(const std::string& text) {
  if (text == "nvfp4") return WeightFormat::nvfp4;
  if (text == "fp8") return WeightFormat::fp8;
  if (text == "bf16") return WeightFormat::bf16;
  fail(Code::invalid_request, "--dense is '{}'; nvfp4, fp8 and bf16 are possible", text);
}

void open_shape(Subject& subject, const TuneCommandOptions& options, const Plan& plan) {
  const checkpoint::ModelShape shape = bench_shape(options.shape);
  const auto layers = options.layers > 0 ? options.layers : static_cast<int>(shape.layers);
  if (layers > shape.layers)
    fail(Code::invalid_request, "--layers is {}; 1 to {} are possible", layers, shape.layers);
  subject.config = config_of(shape, layers);
  subject.random.emplace(*subject.config, parse_dense(options.dense));
  subject.prepared.machine = library::open_machine(options.backend, options.gpu);
  const library::ChosenActivations activations = library::choose_activations(
      {.backend = options.backend}, library::fp4_chip(*subject.prepared.machine, options.backend == "sim"));
  subject.what =
      fourfold::format("{}: {} of {} layers, random weights, experts {} ({}), dense {}", shape.what, layers,
                       shape.layers, format_name(subject.random->expert_format()),
                       library::activations_name(activations.activations), options.dense);
  subject.prepared.backend = backend::make_gpu_backend(*subject.prepared.machine, {});
  subject.prepared.prepared = subject.prepared.backend->prepare(
      model::build_program(*subject.config, subject.random->weights(), activations.activations),
      plan.capacity());
}

void open_subject(Subject& subject, const TuneCommandOptions& options, const Plan& plan,
                  const Console& console) {
  if (options.model.empty() == options.shape.empty())
    fail(Code::invalid_request, "tune takes a MODEL or a --shape, one of them");
  if (!on_machine(options.backend))
    fail(Code::invalid_request, "--backend is '{}'; cuda and sim have rows to choose from", options.backend);
  if (options.model.empty()) return open_shape(subject, options, plan);
  subject.model = open_model(options.model, console);
  subject.what = subject.model->folder.string();
  subject.prepared =
      prepare_model(*subject.model, {.backend = options.backend, .tuned = "none"}, plan.capacity(), console);
}

// A kernel with one row for the model, in one line.
void print_only(const Console& console, const MeasuredOp& op) {
  console.out << fourfold::format("\n  {}: the one form", op.shape);
  for (std::size_t i = 1; i < op.candidates.size(); ++i)
    console.out << (i == 1 ? "; refused: " : ", ") << op.candidates[i].form.row;
  if (op.candidates.size() > 1) console.out << " (" << op.candidates.back().refusal << ")";
  console.out << "\n";
}

void print(const Console& console, const MeasuredOp& op) {
  if (op.op == "only") return print_only(console, op);
  console.out << fourfold::format("\n  {} {}, {} {}\n", op.op, op.shape, op.tokens,
                                  op.tokens == 1 ? "token" : "tokens");
  for (std::size_t i = 0; i < op.candidates.size(); ++i) {
    const Measured& candidate = op.candidates[i];
    char time[40];
    std::snprintf(time, sizeof time, "%10.1f us +-%4.1f%%", candidate.microseconds, 50 * candidate.spread);
    std::string line = fourfold::format("    {}", to_text(candidate.form));
    line.resize(std::max<std::size_t>(line.size(), 76), ' ');
    line += candidate.microseconds > 0                   ? time
            : candidate.refusal.empty()                  ? "  not timed"
            : candidate.refusal.starts_with("not timed") ? ""
                                                         : "  refused:";
    if (i == 0) line += "  default";
    if (op.is_tuned() && i == op.chosen)
      line += fourfold::format("  chosen: the step {} -> {} us", std::llround(op.step_before),
                               std::llround(op.step_after));
    if (!candidate.refusal.empty()) line += "  " + candidate.refusal;
    console.out << line << "\n";
  }
  console.out << std::flush;
}

// Tunes one pass after another. Whole passes are timed again at the end, with everything that was chosen.
void tune_all(backend::Prepared& prepared, const Plan& plan, const TuneCommandOptions& options,
              TuneResult& result, const Console& console) {
  const auto start = Clock::now();
  backend::cuda::TuneOptions how;
  how.ops = options.ops;
  how.rounds = options.rounds;
  how.times = options.backend == "cuda";
  how.is_over = [&] { return seconds_since(start) > options.seconds; };
  how.show = [&](const MeasuredOp& op) { print(console, op); };
  const auto tune_passes = [&](const std::vector<int>& counts, backend::Role role, const char* what) {
    int from = 1;
    for (const int count : counts) {
      console.out << fourfold::format("\n{}: {}\n", what, count);
      run_step(prepared, plan, count, role);
      backend::cuda::tune(prepared, from, how, result);
      if (how.times) {
        const auto times =
            backend::cuda::time_passes(prepared, {Tuning{}, result.tuning}, 2 * options.rounds);
        console.out << fourfold::format("\n  the whole step: {} us by default, {} us tuned\n",
                                        std::llround(times[0]), std::llround(times[1]));
      }
      from = count + 1;
    }
  };
  tune_passes(plan.users, backend::Role::decode, "users");
  tune_passes(plan.prompts, backend::Role::prefill, "rows of a prompt");
}

// Where the choices go; empty: no file is written, since nothing will be timed and none was asked for.
fs::path file_path(const TuneCommandOptions& options, const kernels::Machine& machine) {
  if (!options.out.empty()) return options.out;
  if (options.backend != "cuda") return {};
  const fs::path folder = library::user_tuned_folder();
  if (folder.empty()) fail_with_hint(Code::io, "Give --out FILE.", "neither XDG_CONFIG_HOME nor HOME is set");
  fs::create_directories(folder);
  return folder / library::tuned_file_name(machine.description());
}

// What the file has so far; read before anything is measured, so that one that cannot be kept costs no time.
Tuning choices_before(const fs::path& path, const kernels::Machine& machine) {
  std::error_code none;
  const fs::path folder = path.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, none))
    fail_with_hint(Code::io, fourfold::format("mkdir -p {}", shell_word(folder.string())),
                   "--out {}: there is no folder {}", path.string(), folder.string());
  if (!fs::exists(path, none)) return {};
  const backend::cuda::TuningFile before = backend::cuda::read_tuning(path);
  require_for(before, machine, path.string());
  return before.tuning;
}

// Choices of other shapes that the file had stay; those measured now take the place of theirs.
void keep_others(const Tuning& before, const TuneResult& result, backend::cuda::TuningFile& file) {
  for (const auto& choice : before.choices()) {
    const bool is_measured = std::any_of(result.ops.begin(), result.ops.end(), [&](const MeasuredOp& op) {
      return op.op == choice.op && op.shape == choice.shape;
    });
    if (!is_measured) file.tuning.add(choice);
  }
}

void write_result(const TuneResult& result, const Tuning& before, const fs::path& path,
                  const kernels::Machine& machine, const TuneCommandOptions& options,
                  const Console& console) {
  const bool timed = std::any_of(result.ops.begin(), result.ops.end(),
                                 [](const MeasuredOp& op) { return op.candidates.front().microseconds > 0; });
  if (!timed && options.out.empty()) {
    console.out << "\nnothing was timed: no file is written (--out FILE writes one without choices)\n";
    return;
  }
  backend::cuda::TuningFile file{
      .chip = machine.description(),
      .sm_count = machine.sm_count(),
      .driver = options.backend == "cuda" ? kernels::open_gpu(options.gpu)->state().driver : "none",
      .commit = commit(),
      .date = utc_date(),
      .tuning = {}};
  keep_others(before, result, file);
  for (const auto& choice : result.tuning.choices()) file.tuning.add(choice);
  write_file(path.string(), to_json(file));
  // As the next run will: a file that it would refuse is noticed now.
  require_for(backend::cuda::read_tuning(path), machine, path.string());
  console.out << fourfold::format("\n{} choices other than the defaults in {}\n",
                                  file.tuning.choices().size(), path.string());
}

}  // namespace

int run_tune(const TuneCommandOptions& options, const Console& console) {
  if (options.rounds < 1 || options.seconds <= 0)
    fail(Code::invalid_request, "--rounds {}, --seconds {}: both must be positive", options.rounds,
         options.seconds);
  const Plan plan(options);
  const auto start = Clock::now();
  Subject subject;
  open_subject(subject, options, plan, console);
  kernels::Machine& machine = *subject.prepared.machine;
  console.out << fourfold::format("{} on {}, {} SMs, context {}; loaded in {} s\n", subject.what,
                                  machine.description(), machine.sm_count(), options.context,
                                  std::llround(seconds_since(start)));
  console.out << "Microseconds of the op alone in all layers, median of graphs timed in turn; every "
                 "candidate has the "
                 "default's bits.\n";
  if (options.backend == "sim")
    console.out << "The simulator has no time of its own: bits are compared, nothing is timed.\n";
  const fs::path path = file_path(options, machine);
  const Tuning before = path.empty() ? Tuning{} : choices_before(path, machine);
  TuneResult result;
  tune_all(*subject.prepared, plan, options, result, console);
  if (result.ops.empty()) fail(Code::invalid_request, "--ops '{}' matches no op of this model", options.ops);
  write_result(result, before, path, machine, options, console);
  console.out << fourfold::format("{} s in all\n", std::llround(seconds_since(start)));
  return kFine;
}

}  // namespace fourfold::cli
