#include "cli/plan_model_command.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <vector>

#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "cli/answer.h"
#include "cli/gpu.h"
#include "cli/load_model.h"
#include "cli/parse.h"
#include "kernels/launch/sim_machine.h"
#include "model/qwen35/forward.h"

namespace fourfold::cli {
namespace {

// SMs of a card that is not there: they decide a few megabytes of workspace and nothing else.
constexpr int kAssumedSms = 132;
constexpr std::int64_t kSequencesMax = 1024;

// The GPU that is there, or kernels for one that is not.
struct Target {
  std::unique_ptr<Gpu> gpu;
  sim::Device device;
  std::unique_ptr<kernels::Machine> simulated;
  std::string what;
  std::int64_t free_bytes = 0, total_bytes = 0;  // 0: not known

  explicit Target(const PlanModelOptions& options) {
    if (options.arch.empty() && !options.memory_gb && why_no_gpu().empty()) {
      gpu = open_gpu(0);
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
    if (!options.memory_gb) return;
    if (!(*options.memory_gb > 0))
      fail(Code::invalid_request, "--memory-gb {}: more than 0", *options.memory_gb);
    free_bytes = total_bytes = static_cast<std::int64_t>(*options.memory_gb * 1e9);
  }
  kernels::Machine& machine() const { return gpu ? gpu->machine() : *simulated; }
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
  std::int64_t needed = 0, usable = 0;  // usable 0: not known
  std::int64_t longest = 0, most_sequences = 0;
  bool fits() const { return usable == 0 || needed <= usable; }
};

std::int64_t total(const std::vector<backend::MemoryUse>& uses) {
  std::int64_t bytes = 0;
  for (const backend::MemoryUse& use : uses) bytes += use.bytes;
  return bytes;
}

Planned plan(const PlanModelOptions& options, const backend::Program& program, const Target& target) {
  const backend::DenseWeights dense = parse_dense_weights(options.dense);
  Planned out;
  out.context = options.max_context.value_or(program.position_limit);
  out.sequences = options.max_sequences;
  if (out.context < 2 || out.context > program.position_limit)
    fail(Code::invalid_request, "--max-context {}: at least 2 and at most the model's {} positions",
         out.context, program.position_limit);
  if (out.sequences < 1 || out.sequences > kSequencesMax)
    fail(Code::invalid_request, "--max-sequences {}: 1 to {}", out.sequences, kSequencesMax);
  const auto bytes = [&](std::int64_t sequences) {
    return total(plan_memory(program, capacity_of(out.context, sequences), target.machine(), dense));
  };
  out.uses = plan_memory(program, capacity_of(out.context, out.sequences), target.machine(), dense);
  out.needed = total(out.uses);
  if (target.total_bytes == 0) return out;
  const double fraction = options.memory_fraction ? parse_memory_fraction(*options.memory_fraction)
                                                  : backend::GpuOptions{}.memory_fraction;
  out.usable = backend::usable_bytes(target.free_bytes, target.total_bytes, fraction);
  out.longest =
      largest_context(program, capacity_of(out.context, out.sequences), target.machine(), out.usable, dense);
  std::int64_t low = 0, high = kSequencesMax;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (bytes(middle) <= out.usable)
      low = middle;
    else
      high = middle - 1;
  }
  out.most_sequences = low;
  return out;
}

void print(const Planned& planned, const Target& target, std::string_view kv, const Console& console) {
  console.out << fourfold::format("{} sequence{} of {} tokens, keys and values {}\n", planned.sequences,
                                  planned.sequences == 1 ? "" : "s", with_commas(planned.context), kv);
  const auto line = [&](const std::string& what, std::int64_t bytes) {
    char text[80];
    std::snprintf(text, sizeof text, "  %-18s %20s\n", what.c_str(), with_commas(bytes).c_str());
    console.out << text;
  };
  for (const backend::MemoryUse& use : planned.uses) line(use.what, use.bytes);
  line("together", planned.needed);
  if (planned.usable == 0) {
    console.out << fourfold::format("{}; say with --memory-gb how much memory it has\n", target.what);
    return;
  }
  console.out << fourfold::format("{}: {} bytes, {} free, {} may be used: it {}\n", target.what,
                                  with_commas(target.total_bytes), with_commas(target.free_bytes),
                                  with_commas(planned.usable), planned.fits() ? "fits" : "DOES NOT FIT");
  console.out << fourfold::format(
      "what fits: --max-context {} with {} sequence{}, or --max-sequences {} of {} tokens\n", planned.longest,
      planned.sequences, planned.sequences == 1 ? "" : "s", planned.most_sequences, planned.context);
}

void write(const Planned& planned, const Target& target, std::string_view kv, const Console& console) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("sequences", planned.sequences).member("context", planned.context);
  json.member("kv", std::string(kv)).key("bytes").begin_object();
  for (const backend::MemoryUse& use : planned.uses) json.member(use.what, use.bytes);
  json.end_object().member("needed", planned.needed).member("device", target.what);
  if (planned.usable > 0) {
    json.member("usable", planned.usable).member("fits", planned.fits());
    json.member("largest_context", planned.longest).member("most_sequences", planned.most_sequences);
  }
  console.out << json.end_object().finish() << "\n";
}

}  // namespace

int run_plan_model(const PlanModelOptions& options, const Console& console) {
  const auto model = open_model(options.model, console, options.strict);
  backend::Program program =
      model::build_program(model->config, model->bound.weights, model::Activations::w4a16);
  store_kv(program, options.kv);
  const Target target(options);
  const Planned planned = plan(options, program, target);
  const std::string_view kv =
      program.kv_caches.empty() ? "none" : format_name(program.kv_caches.front().format);
  options.json ? write(planned, target, kv, console) : print(planned, target, kv, console);
  return planned.fits() ? kFine : kMiss;
}

}  // namespace fourfold::cli
