// A rank on a machine, a GPU or the simulated one: how a backend is made of it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backend/cuda/cuda.h"
#include "library/prepare_model.h"
#include "library/rank_machines.h"

namespace fourfold::library {

backend::GpuOptions gpu_options(const BackendOptions& options, const OpenModel& model,
                                checkpoint::LoadProgress& progress, const Listener& listener,
                                const kernels::Machine& machine);

// What hands the decisions for new shapes to whoever asked for kernels, and says whose they are (empty: all
// that there is); null where nobody asked.
std::function<void(const backend::StepDecision&)> tell_kernels(const BackendOptions& options,
                                                               const std::string& whose);

// The rank with this one of the machines, and their exchange. Prepared in the rank's thread, which is then on
// its device.
std::shared_ptr<backend::Backend> make_machine_rank(std::shared_ptr<RankMachines> all, std::size_t index,
                                                    backend::GpuOptions gpu);

}  // namespace fourfold::library
