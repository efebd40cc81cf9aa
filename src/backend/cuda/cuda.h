// The GPU backend: a program's layers as launches on a machine. The machine is a GPU, or the simulator, which
// runs the same launches of the same kernels: what is compared there has been executed, not just compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/stream.h"
#include "kernels/launch/machine.h"

namespace fourfold::backend {

// What becomes, at load, of the matrices that are no routed experts and are stored in 16 bits.
enum class DenseWeights { keep, fp8, nvfp4 };

// What quantising at load cost, by kind of matrix.
struct DenseError {
  std::string kind;  // "attention"
  std::int64_t matrix_count = 0;
  double relative_rms = 0;  // of the differences, over that of the weights
};

// How loading went.
struct LoadReport {
  std::uint64_t bytes_read = 0;  // of the checkpoint's matrices, or of their packed copy
  double seconds = 0;            // from the first byte asked for until the last record was in its place
  bool from_cache = false;
  std::string cache_file;  // read or written; empty: none
  std::vector<DenseError> dense;
  std::int64_t kept_count = 0;  // --dense asked for these, too, but they were quantised already
};

struct GpuOptions {
  // value() answers for the layers' outputs after a run. Costs a copy each.
  bool keep_values = false;
  bool graphs = true;  // record a step once and replay it
  const checkpoint::Checkpoint* checkpoint = nullptr;
  checkpoint::LoadProgress* progress = nullptr;
  DenseWeights dense = DenseWeights::keep;
  // A folder for packed copies; needs the checkpoint. The copy of this checkpoint is used if it is there, and
  // written otherwise. One that does not fit or is damaged is an error, unless it is to be made anew.
  std::string cache = {};
  bool rebuild_cache = false;
  LoadReport* report = nullptr;
  std::size_t slot_bytes = 0;  // of the page-locked buffers; 0: what is fast. Small ones for tests
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
