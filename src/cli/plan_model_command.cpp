#include "cli/plan_model_command.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cuda/cuda.h"
#include "base/check.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "base/largest.h"
#include "base/token_grain.h"
#include "cli/answer.h"
#include "cli/bench_model_weights.h"
#include "cli/figures.h"
#include "cli/load_model.h"
#include "cli/nodes_report.h"
#include "cli/parse.h"
#include "cli/predict_report.h"
#include "cli/step_report.h"
#include "engine/cache_room.h"
#include "engine/sequence.h"
#include "kernels/gpu/gpu.h"
#include "kernels/launch/sim_machine.h"
#include "library/activations.h"
#include "model/forward.h"
#include "model/shard.h"
#include "plan/products.h"

namespace fourfold::cli {
namespace {

using library::StepAnswer;
using library::StepQuestion;

// SMs of a card that is not there: they decide a few megabytes of workspace and nothing else.
constexpr int kAssumedSms = 132;
constexpr std::int64_t kSequencesMax = 1024;
constexpr double kMemoryGbMost = 1'000'000;

// The GPU that is there, or kernels for one that is not.
struct Target {
  std::unique_ptr<kernels::Gpu> gpu;
  sim::Device device;
  std::unique_ptr<kernels::Machine> simulated;
  const plan::Product* product = nullptr;  // of --gpu
  std::string what;
  std::int64_t free_bytes = 0, total_bytes = 0;  // 0: not known

  explicit Target(const PlanModelOptions& options) {
    if (!options.gpu.empty()) {
      take_product(options);
      return;
    }
    if (options.arch.empty() && !options.memory_gb && kernels::why_no_gpu().empty()) {
      gpu = kernels::open_gpu(0);
      what = gpu->machine().description();
      free_bytes = gpu->machine().memory().free_bytes();
      total_bytes = gpu->machine().memory().total_bytes();
      return;
    }
    const auto archs = parse_archs(options.arch.empty() ? "sm120" : options.arch);
    if (archs.size() != 1 || !(archs[0]->cc_major == 9 || archs[0]->cc_major == 12))
      fail(Code::invalid_request, "--arch {}: one of sm90, sm120 and sm121, whose kernels there are",
           options.arch);
    simulated = kernels::make_sim_machine(device, {.arch = archs[0], .persistent_blocks = kAssumedSms});
    what = fourfold::format("a GPU of {}", archs[0]->name);
    if (options.memory_gb) take_memory(*options.memory_gb);
  }
  kernels::Machine& machine() const { return gpu ? gpu->machine() : *simulated; }

 private:
  void take_product(const PlanModelOptions& options) {
    product = plan::find_product(options.gpu);
    std::string names;
    for (const plan::Product& known : plan::kProducts)
      if (known.arch->cc_major == 9 || known.arch->cc_major == 12)
        names += (names.empty() ? "" : ", ") + std::string(known.name);
    if (product == nullptr || !(product->arch->cc_major == 9 || product->arch->cc_major == 12))
      fail_with_hint(Code::invalid_request, fourfold::format("Known: {}.", names),
                     "--gpu {}: there are no kernels for it, or it is not in the table of products",
                     options.gpu);
    if (!options.arch.empty())
      fail(Code::invalid_request, "--arch {}: --gpu {} says it already", options.arch, options.gpu);
    simulated =
        kernels::make_sim_machine(device, {.arch = product->arch, .persistent_blocks = product->sm_count});
    what = std::string(product->name);
    free_bytes = total_bytes = std::int64_t{product->memory_mib} << 20;
    if (options.memory_gb) take_memory(*options.memory_gb);
  }
  void take_memory(double gb) {
    if (!(gb > 0) || gb > kMemoryGbMost)
      fail(Code::invalid_request, "--memory-gb {}: more than 0 and at most {}", gb,
           with_commas(static_cast<long long>(kMemoryGbMost)));
    free_bytes = total_bytes = static_cast<std::int64_t>(plan::bytes_as_sold(gb));
  }
};

// A checkpoint's program, or that of a shape with weights as releases have them; one rank's part of it.
class PlannedModel {
 public:
  PlannedModel(const PlanModelOptions& options, const plan::ArchFacts& arch, const Console& console)
      : dense_(library::parse_dense_weights(options.dense)) {
    if (options.ranks < 1 || options.ranks > library::kRanksMax)
      fail(Code::invalid_request, "--tp {}: 1 to {}", options.ranks, library::kRanksMax);
    const auto shapes = checkpoint::known_shapes();
    const bool is_shape = std::any_of(shapes.begin(), shapes.end(), [&](const checkpoint::ModelShape& shape) {
      return shape.name == options.model;
    });
    if (is_shape && !std::filesystem::exists(options.model)) {
      const checkpoint::ModelShape& shape = checkpoint::find_shape(options.model);
      config_ = config_of(shape, shape.layers);
      const WeightFormat format = dense_.value_or(WeightFormat::bf16);
      dense_ = std::nullopt;  // they are stored so
      random_ = std::make_unique<RandomWeights>(config_, format, shape.mtp);
    } else {
      opened_ = open_model(options.model, console, options.strict);
      config_ = opened_->config;
    }
    rank_ = model::shard_model(config_, random_ ? random_->weights() : opened_->bound.weights,
                               {.rank = 0, .count = options.ranks},
                               library::parse_expert_sharding(options.experts));
    const library::ChosenActivations chosen = library::choose_activations(
        {.backend = "cuda", .activations = options.activations}, library::modelled_chip(arch));
    program = model::build_program(rank_, chosen.activations);
    library::store_kv(program, options.kv);
  }
  backend::DenseWeights dense() const { return dense_; }
  int expert_count() const { return config_.moe ? static_cast<int>(config_.moe->expert_count) : 0; }
  double parts_an_expert() const {
    if (!config_.moe) return 1;
    return static_cast<double>(config_.moe->intermediate_size) /
           static_cast<double>(rank_.config.moe->intermediate_size);
  }

  backend::Program program;

 private:
  backend::DenseWeights dense_;
  checkpoint::ModelConfig config_;  // of the whole
  std::unique_ptr<RandomWeights> random_;
  std::unique_ptr<OpenModel> opened_;
  model::ModelShard rank_;
};

// Rows of a step as for the longest prompt, whatever the context: what fits must not change with the
// question.
backend::Capacity capacity_of(std::int64_t context, std::int64_t sequences) {
  backend::Capacity capacity = room_for(context);
  capacity.page_count *= sequences;
  capacity.state_slot_count = sequences;
  capacity.row_count = std::max(room_for(std::numeric_limits<std::int32_t>::max()).row_count, sequences);
  return capacity;
}

struct Planned {
  std::int64_t context, sequences;
  std::vector<backend::MemoryUse> uses;
  std::vector<backend::MemoryUse> weights;  // the first of the uses by kind
  std::int64_t needed = 0, usable = 0;      // usable 0: not known
  std::int64_t longest = 0, most_sequences = 0;
  bool fits() const { return usable == 0 || needed <= usable; }
};

std::int64_t total(const std::vector<backend::MemoryUse>& uses) {
  std::int64_t bytes = 0;
  for (const backend::MemoryUse& use : uses) bytes += use.bytes;
  return bytes;
}

class MemoryPlanner {
 public:
  MemoryPlanner(const PlanModelOptions& options, const PlannedModel& model, const Target& target)
      : options_(options),
        model_(model),
        target_(target),
        context_(options.max_context.value_or(model.program.position_limit)) {
    if (context_ < 2 || context_ > model.program.position_limit)
      fail(Code::invalid_request, "--max-context {}: at least 2 and at most the model's {} positions",
           context_, model.program.position_limit);
    if (options.max_sequences < 1 || options.max_sequences > kSequencesMax)
      fail(Code::invalid_request, "--max-sequences {}: 1 to {}", options.max_sequences, kSequencesMax);
  }
  backend::Capacity capacity() const { return capacity(context_, options_.max_sequences); }

  // A server keeps states for its prefix cache; with --gpu their share is planned, too.
  backend::Capacity capacity(std::int64_t context, std::int64_t sequences) const {
    backend::Capacity out = capacity_of(context, sequences);
    if (target_.product != nullptr) out.anchor_count = engine::anchor_share(model_.program, out);
    return out;
  }
  std::vector<backend::MemoryUse> uses(const backend::Capacity& room) const {
    return plan_memory(model_.program, room, target_.machine(), model_.dense(), {},
                       options_.nodes > 0 ? all_reduce::Meets::bridged : all_reduce::Meets::here);
  }
  Planned plan() const;

 private:
  const PlanModelOptions& options_;
  const PlannedModel& model_;
  const Target& target_;
  std::int64_t context_;
};

Planned MemoryPlanner::plan() const {
  const backend::Program& program = model_.program;
  Planned out;
  out.context = context_;
  out.sequences = options_.max_sequences;
  if (target_.total_bytes != 0) {
    const double fraction = options_.memory_fraction
                                ? library::parse_memory_fraction(*options_.memory_fraction)
                                : backend::GpuOptions{}.memory_fraction;
    out.usable = backend::memory_room(target_.free_bytes, target_.total_bytes, fraction).usable;
  }
  const auto fits = [&](const backend::Capacity& room) { return total(uses(room)) <= out.usable; };
  backend::Capacity room = capacity();
  // As a server does: states make room for what was asked for.
  if (out.usable != 0 && target_.product != nullptr)
    room = engine::divide_cache(program, {.capacity = room, .least_pages = room.page_count}, fits);
  out.uses = uses(room);
  out.weights = plan_weights(program, room, target_.machine(), model_.dense());
  out.needed = total(out.uses);
  if (out.usable == 0) return out;
  // With their share of states; what was asked for may fit with fewer.
  const std::int64_t blocks_most = (program.position_limit + kTokenGrain - 1) / kTokenGrain;
  const std::int64_t blocks = largest(
      0, blocks_most, [&](std::int64_t count) { return fits(capacity(kTokenGrain * count, out.sequences)); });
  out.longest = std::min(kTokenGrain * blocks, program.position_limit);
  out.most_sequences = largest(
      0, kSequencesMax, [&](std::int64_t sequences) { return fits(capacity(out.context, sequences)); });
  if (!out.fits()) return out;
  out.longest = std::max(out.longest, out.context);
  out.most_sequences = std::max(out.most_sequences, out.sequences);
  return out;
}

void print(const Planned& planned, const Target& target, std::string_view kv, const Console& console) {
  console.out << fourfold::format("{} sequence{} of {} tokens, keys and values {}\n", planned.sequences,
                                  planned.sequences == 1 ? "" : "s", with_commas(planned.context), kv);
  const auto line = [&](const std::string& what, std::int64_t bytes) {
    char text[80];
    std::snprintf(text, sizeof text, "  %-28s %12s\n", what.c_str(),
                  as_bytes(static_cast<double>(bytes)).c_str());
    console.out << text;
  };
  for (const backend::MemoryUse& use : planned.uses) {
    line(use.what, use.bytes);
    if (&use != &planned.uses.front()) continue;
    for (const backend::MemoryUse& kind : planned.weights) line("  " + kind.what, kind.bytes);
  }
  line("together", planned.needed);
  if (planned.usable == 0) {
    console.out << fourfold::format("{}; say with --memory-gb how much memory it has\n", target.what);
    return;
  }
  line("left of what may be used", planned.usable - planned.needed);
  const auto size = [](std::int64_t bytes) { return as_bytes(static_cast<double>(bytes)); };
  console.out << fourfold::format(
      "{}: {} ({} GiB), {} free, {} may be used: it {}\n", target.what, size(target.total_bytes),
      rounded(static_cast<double>(target.total_bytes) / (1 << 30)), size(target.free_bytes),
      size(planned.usable), planned.fits() ? "fits" : "DOES NOT FIT");
  console.out << fourfold::format(
      "what fits: --max-context {} with {} sequence{}, or --max-sequences {} of {} tokens\n", planned.longest,
      planned.sequences, planned.sequences == 1 ? "" : "s", planned.most_sequences, planned.context);
}

void write(const Planned& planned, const Target& target, std::string_view kv, JsonWriter& json) {
  const auto uses = [&](const char* name, const std::vector<backend::MemoryUse>& list) {
    json.key(name).begin_object();
    for (const backend::MemoryUse& use : list) json.member(use.what, use.bytes);
    json.end_object();
  };
  json.member("sequences", planned.sequences).member("context", planned.context);
  json.member("kv", std::string(kv));
  uses("bytes", planned.uses);
  uses("weights", planned.weights);
  json.member("needed", planned.needed).member("device", target.what);
  if (planned.usable > 0) {
    json.member("usable", planned.usable).member("fits", planned.fits());
    json.member("largest_context", planned.longest).member("most_sequences", planned.most_sequences);
  }
}

plan::Link parse_link(const std::string& text) {
  if (text == "pcie5") return plan::Link::pcie5;
  if (text == "pcie4") return plan::Link::pcie4;
  fail(Code::invalid_request, "--link is '{}'; pcie4 and pcie5 are possible", text);
}

StepQuestion question_of(const PlanModelOptions& options, const PlannedModel& model, const Target& target,
                         const backend::Capacity& capacity) {
  if (options.users < 1 || options.context < 0 || options.context > model.program.position_limit)
    fail(Code::invalid_request, "--users {}, --context {}: at least 1, and 0 to the model's {} positions",
         options.users, options.context, model.program.position_limit);
  if (options.drafts < 0 || options.drafts > engine::kDraftCountMax ||
      (options.drafts > 0 && model.program.draft.empty()))
    fail(Code::invalid_request, "--mtp {}: 0 to {}{}", options.drafts, engine::kDraftCountMax,
         model.program.draft.empty() ? "; this model has no MTP layer" : "");
  if (!(options.acceptance >= 0 && options.acceptance <= 1))
    fail(Code::invalid_request, "--acceptance {}: 0 to 1", options.acceptance);
  return {.program = model.program,
          .machine = target.machine(),
          .capacity = capacity,
          .dense = model.dense(),
          .product = *target.product,
          .link = options.nodes > 0 ? plan::Link::pcie5 : parse_link(options.link),  // of nodes: not asked
          .ranks = options.ranks,
          .expert_count = model.expert_count(),
          .parts_an_expert = model.parts_an_expert(),
          .users = options.users,
          .context = static_cast<double>(options.context),
          .drafts = options.drafts,
          .acceptance = options.acceptance,
          .prompt = options.prompt};
}

int run_predict(const PlanModelOptions& options, const StepQuestion& question, const Console& console) {
  const library::Prediction prediction = library::predict(question);
  if (!options.json) {
    print_prediction(question, prediction, console);
    return kFine;
  }
  JsonWriter json(JsonWriter::Style::pretty);
  write_prediction(question, prediction, json);
  console.out << json.finish() << "\n";
  return kFine;
}

}  // namespace

library::StepAnswer predict_model_step(const PlanModelOptions& options, const Console& console) {
  const Target target(options);
  const PlannedModel model(options, target.machine().arch(), console);
  check(target.product != nullptr, "a step is predicted for a product");
  const MemoryPlanner planner(options, model, target);
  return library::answer_step(question_of(options, model, target, planner.capacity()));
}

std::vector<std::vector<plan::KernelWork>> model_step_work(const PlanModelOptions& options,
                                                           std::span<const backend::StepRows> steps,
                                                           const Console& console,
                                                           const backend::cuda::StepWays& ways) {
  const Target target(options);
  const PlannedModel model(options, target.machine().arch(), console);
  const MemoryPlanner planner(options, model, target);
  return step_work(model.program, planner.capacity(), target.machine(), steps, model.dense(), ways);
}

namespace {

// One rank on each machine.
PlanModelOptions with_nodes(PlanModelOptions options) {
  if (options.nodes == 0) {
    if (plan::find_wire(options.link))
      fail(Code::invalid_request, "--link {}: it is between machines, and there is no --nodes", options.link);
    return options;
  }
  if (options.nodes < 2 || options.nodes > library::kRanksMax)
    fail(Code::invalid_request, "--nodes {}: 2 to {}", options.nodes, library::kRanksMax);
  if (options.ranks != 1 && options.ranks != options.nodes)
    fail(Code::invalid_request, "--nodes {} with --tp {}: a machine has one rank here", options.nodes,
         options.ranks);
  parse_wire(options.link);
  if (options.predict)
    fail(Code::invalid_request, "--predict with --nodes: sums between GPUs of one machine are predicted");
  options.ranks = options.nodes;
  return options;
}

}  // namespace

int run_plan_model(const PlanModelOptions& given, const Console& console) {
  const PlanModelOptions options = with_nodes(given);
  if (options.predict && options.gpu.empty())
    fail_with_hint(Code::invalid_request, "For example: fourfold plan --predict --model 35b --gpu h200",
                   "--predict needs --gpu: the card that is asked about");
  const Target target(options);
  const PlannedModel model(options, target.machine().arch(), console);
  const MemoryPlanner planner(options, model, target);
  if (options.predict)
    return run_predict(options, question_of(options, model, target, planner.capacity()), console);
  std::optional<StepQuestion> question;
  std::optional<StepAnswer> answer;
  if (target.product != nullptr) {
    question.emplace(question_of(options, model, target, planner.capacity()));
    answer = library::answer_step(*question);
  }
  const Planned planned = planner.plan();
  const std::string_view kv =
      model.program.kv_caches.empty() ? "none" : format_name(model.program.kv_caches.front().format);
  if (!options.json) {
    print(planned, target, kv, console);
    if (options.nodes > 0)
      print_nodes(model.program, parse_wire(options.link), answer ? &answer->step : nullptr, console);
    else if (question)
      print_step(*question, *answer, console);
    return planned.fits() ? kFine : kMiss;
  }
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("ranks", options.ranks);
  write(planned, target, kv, json);
  if (options.nodes > 0)
    write_nodes(model.program, parse_wire(options.link), answer ? &answer->step : nullptr, json);
  else if (question)
    write_step(*question, *answer, json);
  console.out << json.end_object().finish() << "\n";
  return planned.fits() ? kFine : kMiss;
}

}  // namespace fourfold::cli
