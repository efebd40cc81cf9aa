#include "backend/cuda/memory_plan.h"

#include <algorithm>

#include "backend/cuda/load/device_layers.h"
#include "backend/cuda/load/weights.h"
#include "backend/cuda/step/anchors.h"
#include "backend/cuda/step/buffers.h"
#include "backend/cuda/step/draft_chain.h"
#include "backend/cuda/step/step_buffers.h"
#include "backend/window_pages.h"
#include "base/error.h"
#include "base/format.h"
#include "base/largest.h"
#include "kernels/all_reduce/exchange.h"
#include "kernels/launch/counting_machine.h"
#include "kernels/step/step_tables.h"

namespace fourfold::backend {
namespace cuda {
namespace {

std::int64_t total_of(const std::vector<MemoryUse>& plan) {
  std::int64_t bytes = 0;
  for (const MemoryUse& use : plan) bytes += use.bytes;
  return bytes;
}

std::string hint_of(std::int64_t context, std::int64_t sequences, const Program& program) {
  const bool has_kv = !program.kv_caches.empty();
  const bool is_wide = has_kv && program.kv_caches.front().format != KvFormat::fp8;
  std::string text =
      context > 0
          ? format("{} tokens for each of {} sequences fit: --max-context {} (bench: --context, --users).",
                   context, sequences, context)
          : std::string(
                "No context fits: fewer sequences (--max-sequences), weights in fewer bits, or a "
                "GPU with more memory.");
  if (is_wide) text += " --kv fp8 halves the KV pages.";
  return text;
}

}  // namespace

void require_memory(const std::vector<MemoryUse>& plan, const Program& program, const Capacity& capacity,
                    kernels::Machine& machine, const GpuOptions& options) {
  kernels::Memory& memory = machine.memory();
  const MemoryRoom room =
      options.room.value_or(memory_room(memory.free_bytes(), memory.total_bytes(), options.memory_fraction));
  const std::int64_t needed = total_of(plan);
  if (needed <= room.usable) return;
  std::string lines;
  for (const MemoryUse& use : plan)
    lines += format("{}{} {}", lines.empty() ? "" : ", ", use.what, with_commas(use.bytes));
  const std::int64_t context =
      largest_context(program, capacity, machine, room.usable, options.load.dense, options.tuning,
                      options.exchange != nullptr ? options.exchange->meets() : all_reduce::Meets::here);
  fail_with_hint(Code::out_of_memory, hint_of(context, capacity.state_slot_count, program),
                 "{} bytes are needed ({}); {} may be used: {} are free, and --memory-fraction {} of {}{}",
                 with_commas(needed), lines, with_commas(room.usable), with_commas(room.free), room.fraction,
                 with_commas(room.total),
                 room.sharers > 1 ? format(", for {} ranks on this GPU", room.sharers) : "");
}

}  // namespace cuda

MemoryRoom memory_room(std::int64_t free, std::int64_t total, double fraction, int sharers) {
  const std::int64_t all =
      fraction >= 1 ? free : std::min(free, static_cast<std::int64_t>(fraction * static_cast<double>(total)));
  return {all / sharers, free, total, fraction, sharers};
}

std::vector<MemoryUse> plan_weights(const Program& program, const Capacity& capacity,
                                    const kernels::Machine& machine, DenseWeights dense) {
  kernels::CountingMachine counting(machine);
  kernels::CountingMemory& memory = counting.memory();
  kernels::Arena arena(memory);
  std::vector<std::string> notices;
  const LoadOptions options{.dense = dense};
  cuda::WeightLoader loader(counting, arena, program, options, notices, /*sizes_alone=*/true);
  std::vector<MemoryUse> kinds;
  std::int64_t before = 0;
  cuda::load_model(
      cuda::read_layers(program), program, capacity, loader, arena, memory, [&](std::string_view kind) {
        const std::int64_t now = memory.total() - memory.bytes("KV pages") -
                                 memory.bytes("KV pages of windows") - memory.bytes("delta state");
        auto found = std::find_if(kinds.begin(), kinds.end(), [&](auto& use) { return use.what == kind; });
        if (found == kinds.end()) found = kinds.insert(kinds.end(), {std::string(kind), 0});
        found->bytes += now - before;
        before = now;
      });
  return kinds;
}

std::vector<MemoryUse> plan_memory(const Program& program, const Capacity& capacity,
                                   const kernels::Machine& machine, DenseWeights dense,
                                   const std::shared_ptr<const cuda::Tuning>& tuning,
                                   all_reduce::Meets meets) {
  kernels::CountingMachine counting(machine);
  kernels::CountingMemory& memory = counting.memory();
  kernels::Arena arena(memory);
  std::vector<std::string> notices;
  const LoadOptions options{.dense = dense};
  cuda::WeightLoader loader(counting, arena, program, options, notices, /*sizes_alone=*/true);
  const cuda::DeviceModel model =
      cuda::load_model(cuda::read_layers(program), program, capacity, loader, arena, memory);
  const std::int64_t pages = memory.bytes("KV pages"), windows = memory.bytes("KV pages of windows"),
                     states = memory.bytes("delta state"), loaded = memory.total();
  const cuda::AnchorPool anchors(memory, arena, model, capacity,
                                 WindowPages::seen_count(program, capacity.page_tokens));
  const std::int64_t kept = memory.bytes("kept states");
  const cuda::BatchTables tables(memory, arena, program, capacity);
  cuda::KernelSelector selector(counting, tuning);
  cuda::make_buffers(model, selector, arena, capacity);
  const cuda::DeviceSampler sampler(counting, arena, capacity, model.head.vocab, cuda::kLogitsRows);
  const cuda::DraftChain chain(counting, arena, program, capacity);
  const std::int64_t workspace = memory.bytes("workspace");
  std::vector<MemoryUse> plan{{"weights", loaded - pages - windows - states},
                              {"KV pages", pages},
                              {"recurrent states", states},
                              {"workspace", workspace},
                              {"rows of a step", memory.total() - loaded - kept - workspace}};
  if (program.part.count > 1)
    plan.push_back(
        {"exchange of ranks", all_reduce::meeting_bytes(meets, {.ranks = program.part.count,
                                                                .columns = model.hidden,
                                                                .rows = static_cast<int>(capacity.row_count),
                                                                .gathered = model.head.matrix.width})});
  if (windows > 0) {
    plan.emplace_back().bytes = windows;
    plan.back().what = "KV pages of windows";
  }
  if (kept > 0) {
    plan.emplace_back().bytes = kept;  // in two steps: g++ 12 warns of an overlap that is none
    plan.back().what = "kept states (prefix cache)";
  }
  return plan;
}

std::int64_t largest_context(const Program& program, Capacity capacity, const kernels::Machine& machine,
                             std::int64_t bytes, DenseWeights dense,
                             const std::shared_ptr<const cuda::Tuning>& tuning, all_reduce::Meets meets) {
  const std::int64_t sequences = std::max<std::int64_t>(capacity.state_slot_count, 1);
  const auto fits = [&](std::int64_t pages) {  // of a sequence
    capacity.page_count = sequences * pages;
    return cuda::total_of(plan_memory(program, capacity, machine, dense, tuning, meets)) <= bytes;
  };
  const std::int64_t most = (program.position_limit + step::kPageTokens - 1) / step::kPageTokens;
  return std::min(largest(0, most, fits) * step::kPageTokens, program.position_limit);
}

}  // namespace fourfold::backend
