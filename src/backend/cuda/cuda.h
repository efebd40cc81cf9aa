// The GPU backend: a program's layers as launches on a machine. The machine is a GPU, or the simulator, which
// runs the same launches of the same kernels: what is compared there has been executed, not just compiled.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/stream.h"
#include "kernels/launch/machine.h"

namespace fourfold::backend {

struct GpuOptions {
  // value() answers for the layers' outputs after a run. Costs a copy each.
  bool keep_values = false;
  bool graphs = true;  // record a step once and replay it
  const checkpoint::Checkpoint* checkpoint = nullptr;
  checkpoint::LoadProgress* progress = nullptr;
};

// The machine must outlive the backend and what it prepares.
std::unique_ptr<Backend> make_gpu_backend(kernels::Machine& machine, GpuOptions options);

// For benches: the main pass of the last run cut into its stages, each alone over all layers, as a graph of
// its own. Microseconds of a pass; what they write is not to be used.
struct StageTime {
  std::string stage;
  double alone = 0;   // microseconds of a pass
  double so_far = 0;  // together with the stages before it
};
std::vector<StageTime> time_stages(Prepared& prepared, int rounds);

// For benches: the sequence in a state slot is taken to be `position` tokens long, its past whatever the
// memory holds. The prepared program must be this backend's.
void assume_position(Prepared& prepared, std::int32_t state_slot, std::int64_t position);

}  // namespace fourfold::backend
