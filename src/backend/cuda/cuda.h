// The GPU backend: a program's layers as launches on a machine. The machine is a GPU, or the simulator, which
// runs the same launches of the same kernels: what is compared there has been executed, not just compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/load/load_options.h"
#include "backend/cuda/step/step_decision.h"
#include "backend/cuda/step/ways.h"
#include "backend/cuda/tune/tuning.h"
#include "kernels/all_reduce/meets.h"
#include "kernels/launch/machine.h"

namespace fourfold::all_reduce {
class Exchange;
}
namespace fourfold::plan {
struct KernelWork;
}

namespace fourfold::backend {

// What a plan may take of a device's memory.
struct MemoryRoom {
  std::int64_t usable = 0;           // by one rank
  std::int64_t free = 0, total = 0;  // of the device, when it was asked
  double fraction = 1;               // of the total, that all of them may use
  int sharers = 1;                   // ranks on the device: each plans for as much as the others
};
MemoryRoom memory_room(std::int64_t free, std::int64_t total, double fraction, int sharers = 1);

struct GpuOptions {
  // value() answers for the layers' outputs after a run. Costs a copy each.
  bool keep_values = false;
  bool graphs = true;  // record a step once and replay it
  // Of the device's memory, what the plan may take; never more than is free.
  double memory_fraction = 0.95;
  // Found before any of several ranks loads: those that share a device would count each other's weights as
  // taken or not, as they come. None: asked when a program is prepared.
  std::optional<MemoryRoom> room = {};
  // Told the decisions for every new shape of a step, when it is run for the first time.
  std::function<void(const StepDecision&)> on_new_shape = nullptr;
  LoadOptions load = {};
  cuda::StepWays ways = {};
  std::shared_ptr<const cuda::Tuning> tuning = {};  // null: the tables' defaults
  // Of a program that is one part of several: what its ranks meet in. Outlives what is prepared.
  std::shared_ptr<all_reduce::Exchange> exchange = {};
};

// The machine must outlive the backend and what it prepares.
std::unique_ptr<Backend> make_gpu_backend(kernels::Machine& machine, GpuOptions options);

// What preparing a program takes of a machine's memory, without reading a weight: weights, KV pages,
// recurrent states, workspace, rows of a step; of a part of a program also what its ranks meet in.
std::vector<MemoryUse> plan_memory(const Program& program, const Capacity& capacity,
                                   const kernels::Machine& machine, DenseWeights dense = std::nullopt,
                                   const std::shared_ptr<const cuda::Tuning>& tuning = {},
                                   all_reduce::Meets meets = all_reduce::Meets::here);
// The first line of that plan by kind: attention, routed experts, ... Their sum is that line.
std::vector<MemoryUse> plan_weights(const Program& program, const Capacity& capacity,
                                    const kernels::Machine& machine, DenseWeights dense = std::nullopt);
// Rows of one step, as many for each sequence. Logits: of all generated rows in the main pass, else of each
// sequence's last row.
struct StepRows {
  Pass pass = Pass::main;
  int sequences = 1;
  int sequence_rows = 1;
  Role role = Role::decode;
  double context = 0;  // tokens of each sequence before the step
};
// What each of these steps launches, in numbers for the performance model: tokens chosen on the GPU included,
// sums between ranks not. Found by launching them on a machine that only counts; generated rows beyond what
// runs together go in pieces, as they do on a GPU.
std::vector<std::vector<plan::KernelWork>> step_work(const Program& program, const Capacity& capacity,
                                                     const kernels::Machine& machine,
                                                     std::span<const StepRows> steps,
                                                     DenseWeights dense = std::nullopt,
                                                     const cuda::StepWays& ways = {});
// The most tokens of context, a multiple of a page, that each of the capacity's sequences can have within so
// many bytes; 0 where none fits.
std::int64_t largest_context(const Program& program, Capacity capacity, const kernels::Machine& machine,
                             std::int64_t bytes, DenseWeights dense = std::nullopt,
                             const std::shared_ptr<const cuda::Tuning>& tuning = {},
                             all_reduce::Meets meets = all_reduce::Meets::here);

// For benches: the main pass of the last run cut into its stages, each alone over all layers, as a graph of
// its own. Microseconds of a pass; what they write is not to be used.
struct StageTime {
  std::string stage;
  double alone = 0;   // microseconds of a pass
  double so_far = 0;  // together with the stages before it
};
std::vector<StageTime> time_stages(Prepared& prepared, int rounds);

// For benches: how many different experts the rows of the last main pass, `rows` of them, were sent to, by
// layer that has experts; nothing where they did not run together. Found by running that pass once more; what
// it writes is not to be used.
std::vector<int> distinct_experts(Prepared& prepared, int rows);

// For benches: the sequence in a state slot is taken to be `position` tokens long, its past whatever the
// memory holds. The prepared program must be this backend's.
void assume_position(Prepared& prepared, std::int32_t state_slot, std::int64_t position);

}  // namespace fourfold::backend
