#include "cli/serve_model.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <limits>

#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "cli/answer.h"
#include "cli/rank_machines.h"
#include "engine/anchor_room.h"
#include "engine/engine.h"
#include "model/qwen35/forward.h"
#include "server/api/form_cache.h"
#include "server/api/response_store.h"
#include "text/tokenizer_info.h"

namespace fourfold::cli {
namespace {

// When nobody says.
constexpr std::int64_t kSequencesCpu = 16, kSequencesGpu = 64;
constexpr std::int64_t kRowsCpu = 256, kRowsGpu = 2048;
constexpr std::int64_t kContextCpu = 32768;
// The simulated GPU takes seconds for a token: enough to see that everything works.
constexpr std::int64_t kSequencesSim = 2, kRowsSim = 64, kContextSim = 4096;
constexpr double kCpuMemoryShare = 0.25;  // of the machine's, for keys and values
constexpr std::int64_t kSequencesMax = 1024;

std::int64_t page_bytes(const backend::Program& program, std::int64_t page_tokens) {
  std::int64_t bytes = 0;
  for (const backend::KvCache& cache : program.kv_caches)
    bytes += 2 * cache.columns() * element_bytes(cache.format) * page_tokens;
  return std::max<std::int64_t>(bytes, 1);
}

// What the rank with least may plan for. Ranks have equal parts, so that what fits there fits everywhere.
std::int64_t usable_on_gpu(kernels::Machine& machine, const BackendOptions& options) {
  const double fraction = options.memory_fraction ? parse_memory_fraction(*options.memory_fraction)
                                                  : backend::GpuOptions{}.memory_fraction;
  const auto ask = [&](int device) {
    if (options.backend == "cuda") return gpu_memory(device);
    return GpuMemory{machine.memory().free_bytes(), machine.memory().total_bytes()};
  };
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const backend::MemoryRoom& room :
       rank_rooms(devices_of_ranks(options.backend, options.tp), fraction, ask))
    least = std::min(least, room.usable);
  return least;
}

// The most pages up to those wanted that fit beside everything else on the GPU.
std::int64_t pages_on_gpu(const backend::Program& program, backend::Capacity capacity,
                          const BackendOptions& options) {
  const std::shared_ptr<kernels::Machine> machine = open_machine(options.backend, 0);
  const std::int64_t usable = usable_on_gpu(*machine, options);
  const backend::DenseWeights dense = parse_dense_weights(options.dense);
  std::int64_t low = 0, high = capacity.page_count;
  while (low < high) {
    capacity.page_count = (low + high + 1) / 2;
    std::int64_t needed = 0;
    for (const backend::MemoryUse& use : plan_memory(program, capacity, *machine, dense)) needed += use.bytes;
    if (needed <= usable)
      low = capacity.page_count;
    else
      high = capacity.page_count - 1;
  }
  return low;
}

// Ranks that share a KV head keep it once each.
std::int64_t pages_in_memory(const backend::Program& program, const backend::Capacity& capacity) {
  const std::int64_t memory = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const auto share = static_cast<std::int64_t>(kCpuMemoryShare * static_cast<double>(memory));
  return std::min(capacity.page_count,
                  share / (program.part.count * page_bytes(program, capacity.page_tokens)));
}

std::int64_t chosen_context(const ServeOptions& options, const OpenModel& model) {
  const std::int64_t most = model.config.position_limit;
  const std::int64_t context =
      options.max_context.value_or(options.backend.backend == "cuda"  ? most
                                   : options.backend.backend == "sim" ? std::min(most, kContextSim)
                                                                      : std::min(most, kContextCpu));
  if (context < 2 || context > most)
    fail(Code::invalid_request, "--max-context {}: at least 2 and at most the model's {} positions", context,
         most);
  return context;
}

std::string name_of(const ServeOptions& options, const OpenModel& model) {
  // A folder's name says less than a hub's, but more than its whole path.
  const bool is_hub_name = !options.model.empty() && options.model.find('/') != std::string::npos &&
                           !std::filesystem::exists(options.model);
  if (is_hub_name) return options.model;
  const std::filesystem::path folder = std::filesystem::weakly_canonical(model.folder);
  return folder.filename().empty() ? "model" : folder.filename().string();
}

}  // namespace

ServeRoom room_for_many(const ServeOptions& options, const OpenModel& model) {
  const bool gpu = on_machine(options.backend.backend), sim = options.backend.backend == "sim";
  ServeRoom room;
  room.context = chosen_context(options, model);
  room.sequences = options.max_sequences != 0 ? options.max_sequences
                   : sim                      ? kSequencesSim
                   : gpu                      ? kSequencesGpu
                                              : kSequencesCpu;
  if (room.sequences < 1 || room.sequences > kSequencesMax)
    fail(Code::invalid_request, "--max-sequences {}: 1 to {}", room.sequences, kSequencesMax);
  backend::Capacity& capacity = room.capacity;
  capacity.state_slot_count = room.sequences;
  const std::int64_t least_rows = room.sequences * (engine::kDraftCountMax + 1);
  if (options.step_rows != 0 && (options.step_rows < 64 || options.step_rows > 65536))
    fail(Code::invalid_request, "--step-rows {}: 64 to 65536", options.step_rows);
  capacity.row_count = std::max(options.step_rows != 0 ? options.step_rows
                                : sim                  ? kRowsSim
                                : gpu                  ? kRowsGpu
                                                       : kRowsCpu,
                                least_rows);
  const auto pages = [&](std::int64_t tokens) {
    return (tokens + capacity.page_tokens - 1) / capacity.page_tokens;
  };
  capacity.page_count = options.kv_tokens ? pages(*options.kv_tokens) : pages(room.context) * room.sequences;
  const RankProgram first = rank_program(model, options.backend, 0, chosen_activations(options.backend));
  const backend::Program& program = first.program;
  capacity.anchor_count = engine::anchor_room(
      program, capacity,
      options.prefix_cache_mb < 0 ? -1 : options.prefix_cache_mb * 1'000'000 / program.part.count);
  if (options.kv_tokens) {
    if (*options.kv_tokens < room.context)
      fail(Code::invalid_request, "--kv-tokens {}: at least the {} tokens of one request (--max-context)",
           *options.kv_tokens, room.context);
    return room;
  }
  const std::int64_t fitting =
      gpu ? pages_on_gpu(program, capacity, options.backend) : pages_in_memory(program, capacity);
  if (fitting < pages(room.context))
    fail_with_hint(
        Code::out_of_memory,
        fourfold::format("Lower --max-context to {}, or --max-sequences; fourfold plan --model says more.",
                         fitting * capacity.page_tokens),
        "one request of {} tokens needs {} pages of keys and values; there is memory for {}", room.context,
        pages(room.context), fitting);
  capacity.page_count = std::min(capacity.page_count, fitting);
  return room;
}

server::ServedModel served_model(const ServeOptions& options, const OpenModel& model, const ServeRoom& room) {
  text::Tokenizer tokenizer = load_tokenizer(model.folder);
  const engine::Request request = make_request({}, model, &tokenizer);
  server::ServedModel out{.names = options.served_names,
                          .created = std::time(nullptr),
                          .tokenizer = std::move(tokenizer),
                          .chat_template = text::ChatTemplate::load(model.folder),
                          .limits = limits_of(model),
                          .defaults = request.params,
                          .stop_ids = request.stop_ids,
                          .token_limit = request.token_limit};
  if (out.names.empty()) out.names.push_back(name_of(options, model));
  out.limits.position_limit = room.context;
  out.context_most = model.config.position_limit;
  out.strict = options.backend.strict;
  const std::string_view eos =
      out.stop_ids.empty() ? "" : std::string_view(out.tokenizer.token_bytes(out.stop_ids.front()));
  out.tokenizer_info = text::tokenizer_info(model.folder, out.chat_template, eos);
  server::api::prepare_forms(out);
  if (options.store_responses_mb > 0)
    out.responses = std::make_shared<server::api::ResponseStore>(
        static_cast<std::size_t>(options.store_responses_mb) << 20);
  return out;
}

int parse_mtp(const std::string& text, bool model_drafts) {
  if (text == "auto") return model_drafts ? engine::EngineOptions::kMtpAuto : 0;
  int count = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (status != std::errc{} || end != text.data() + text.size() || count < 0 ||
      count > engine::kDraftCountMax)
    fail(Code::invalid_request, "--mtp {}: 0 to {}, or auto", text, engine::kDraftCountMax);
  if (count > 0 && !model_drafts)
    fail(Code::invalid_request, "--mtp {}: this checkpoint has no MTP layer", count);
  return count;
}

}  // namespace fourfold::cli
