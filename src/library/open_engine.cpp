#include "library/open_engine.h"
#include "library/activations.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/token_grain.h"
#include "engine/cache_room.h"
#include "kernels/gpu/gpu.h"
#include "library/node_ranks.h"
#include "library/rank_machines.h"

namespace fourfold::library {
namespace {

// When nobody says.
constexpr std::int64_t kSequencesCpu = 16, kSequencesGpu = 64;
constexpr std::int64_t kRowsCpu = 256, kRowsGpu = 2048;
constexpr std::int64_t kContextCpu = 32768;
// The simulated GPU takes seconds for a token: enough to see that everything works.
constexpr std::int64_t kSequencesSim = 2, kRowsSim = 64, kContextSim = 4096;
constexpr double kCpuMemoryShare = 0.25;  // of the machine's, for keys and values
constexpr std::int64_t kSequencesMax = 1024;

// What the rank with least may plan for. Ranks have equal parts, so that what fits there fits everywhere.
std::int64_t usable_on_gpu(kernels::Machine& machine, const BackendOptions& options) {
  const double fraction = options.memory_fraction ? parse_memory_fraction(*options.memory_fraction)
                                                  : backend::GpuOptions{}.memory_fraction;
  const auto ask = [&](int device) {
    if (options.backend == "cuda") return kernels::gpu_memory(device);
    return kernels::GpuMemory{machine.memory().free_bytes(), machine.memory().total_bytes()};
  };
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const backend::MemoryRoom& room :
       rank_rooms(devices_of_ranks(options.backend, ranks_here(options)), fraction, ask))
    least = std::min(least, room.usable);
  return least;
}

std::int64_t pages_for(std::int64_t tokens, const backend::Capacity& capacity) {
  return (tokens + capacity.page_tokens - 1) / capacity.page_tokens;
}

// Whether a capacity fits beside everything else: on the GPU, or in this machine's share of memory. Other
// machines have as much, or say so when they load.
engine::Fits memory_for(const backend::Program& program, const EngineSettings& settings) {
  const BackendOptions& options = settings.backend;
  if (!on_machine(options.backend)) {
    // Ranks that share a KV head keep it once each.
    const std::int64_t memory = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    const auto share = static_cast<std::int64_t>(kCpuMemoryShare * static_cast<double>(memory));
    const auto bytes = [&program](const backend::Capacity& capacity) {
      return capacity.page_count * engine::page_bytes(program, capacity.page_tokens) +
             engine::window_bytes(program, capacity) +
             capacity.anchor_count * backend::anchor_bytes(program, capacity.page_tokens);
    };
    std::int64_t most = share / ranks_here(options);
    if (settings.kv_tokens) {  // whoever says so may have more, and its share of states
      backend::Capacity asked;
      asked.page_count = pages_for(*settings.kv_tokens, asked);
      asked.state_slot_count = settings.max_sequences != 0 ? settings.max_sequences : kSequencesCpu;
      asked.row_count = settings.step_rows != 0 ? settings.step_rows : kRowsCpu;
      asked.anchor_count = engine::anchor_share(program, asked);
      most = std::max(most, bytes(asked));
    }
    return [bytes, most](const backend::Capacity& capacity) { return bytes(capacity) <= most; };
  }
  const std::shared_ptr<kernels::Machine> machine = open_machine(options.backend, 0);
  const std::int64_t usable = usable_on_gpu(*machine, options);
  const auto meets = !options.nodes                        ? all_reduce::Meets::here
                     : options.nodes->collective == "nccl" ? all_reduce::Meets::nccl
                                                           : all_reduce::Meets::bridged;
  return [&program, machine, usable, meets,
          dense = parse_dense_weights(options.dense)](const backend::Capacity& capacity) {
    std::int64_t needed = 0;
    for (const backend::MemoryUse& use : plan_memory(program, capacity, *machine, dense, {}, meets))
      needed += use.bytes;
    return needed <= usable;
  };
}

EngineRoom room_for_many(const OpenModel& model, const EngineSettings& settings) {
  const bool gpu = on_machine(settings.backend.backend), sim = settings.backend.backend == "sim";
  EngineRoom room;
  room.context = context_of(model, settings);
  if (settings.max_sequences < 0 || settings.max_sequences > kSequencesMax)
    fail(Code::invalid_request, "--max-sequences {}: 1 to {}", settings.max_sequences, kSequencesMax);
  if (settings.step_rows != 0 && (settings.step_rows < kTokenGrain || settings.step_rows > 65536))
    fail(Code::invalid_request, "--step-rows {}: {} to 65536", settings.step_rows, kTokenGrain);
  if (settings.kv_tokens && *settings.kv_tokens < room.context)
    fail(Code::invalid_request, "--kv-tokens {}: at least the {} tokens of one request (--max-context)",
         *settings.kv_tokens, room.context);
  const RankProgram first =
      rank_program(model, settings.backend, 0, choose_activations(model, settings.backend).activations);
  const backend::Program& program = first.program;
  backend::Capacity& capacity = room.capacity;
  capacity.row_count = settings.step_rows != 0 ? settings.step_rows
                       : sim                   ? kRowsSim
                       : gpu                   ? kRowsGpu
                                               : kRowsCpu;
  const engine::Fits fits = memory_for(program, settings);
  const std::int64_t context_pages = pages_for(room.context, capacity);
  const std::int64_t asked_pages = settings.kv_tokens ? pages_for(*settings.kv_tokens, capacity) : 0;
  const std::int64_t least_pages = settings.kv_tokens ? asked_pages : context_pages;
  room.sequences = settings.max_sequences;
  if (room.sequences == 0)
    room.sequences =
        sim    ? kSequencesSim
        : !gpu ? kSequencesCpu
               : engine::sequences_with_room(capacity, room.context, least_pages, kSequencesGpu, fits);
  capacity = engine::with_sequences(capacity, room.sequences);
  capacity.page_count = settings.kv_tokens ? asked_pages : context_pages * room.sequences;
  capacity = engine::divide_cache(
      program,
      {.capacity = capacity,
       .least_pages = least_pages,
       .state_bytes =
           settings.prefix_cache_bytes < 0 ? -1 : settings.prefix_cache_bytes / program.part.count},
      fits);
  if (capacity.page_count < context_pages)
    fail_with_hint(
        Code::out_of_memory,
        fourfold::format("Lower --max-context to {}, or --max-sequences; fourfold plan --model says more.",
                         capacity.page_count * capacity.page_tokens),
        "one request of {} tokens needs {} pages of keys and values; there is memory for {}", room.context,
        context_pages, capacity.page_count);
  return room;
}

}  // namespace

std::int64_t context_of(const OpenModel& model, const EngineSettings& settings) {
  const std::int64_t most = model.config.position_limit;
  const std::int64_t context =
      settings.max_context.value_or(settings.backend.backend == "cuda"  ? most
                                    : settings.backend.backend == "sim" ? std::min(most, kContextSim)
                                                                        : std::min(most, kContextCpu));
  if (context < 2 || context > most)
    fail(Code::invalid_request, "--max-context {}: at least 2 and at most the model's {} positions", context,
         most);
  return context;
}

OpenEngine open_engine(const OpenModel& model, const EngineSettings& settings, const Listener& listener,
                       Deliver deliver) {
  require_known(settings.backend);
  if (settings.max_queue < 0) fail(Code::invalid_request, "--max-queue {}: 0 or more", settings.max_queue);
  OpenEngine out;
  const EngineRoom& room = out.room = room_for_many(model, settings);
  if (settings.max_sequences == 0 && settings.backend.backend == "cuda" && room.sequences < kSequencesGpu)
    listener.fact(fourfold::format(
        "{} requests run at once: there is no memory for more beside one of {} tokens; a lower --max-context "
        "makes room (--max-sequences says how many)",
        room.sequences, room.context));
  out.prepared = prepare_model(model, settings.backend, room.capacity, listener);
  out.engine = std::make_unique<engine::Engine>(
      *out.prepared,
      engine::EngineOptions{.max_sequences = room.sequences,
                            .max_queue = settings.max_queue,
                            .step_rows = room.capacity.row_count,
                            .mtp = settings.mtp,
                            .prefix_cache_bytes = settings.prefix_cache_bytes,
                            .on_blocks = settings.on_blocks},
      std::move(deliver));
  return out;
}

}  // namespace fourfold::library
