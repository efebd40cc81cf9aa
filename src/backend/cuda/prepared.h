// A program prepared on a machine; see cuda.h.
#pragma once

#include <memory>

#include "backend/cuda/cuda.h"

namespace fourfold::backend::cuda {

std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity, kernels::Machine& machine,
                                  const GpuOptions& options);

std::vector<StageTime> time_stages(Prepared& prepared, int rounds);
void assume_position(Prepared& prepared, std::int32_t state_slot, std::int64_t position);

}  // namespace fourfold::backend::cuda
