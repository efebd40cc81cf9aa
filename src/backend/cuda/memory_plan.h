// What a program will take of a machine's memory, known before a byte is loaded. It is found by preparing the
// program on a machine that only counts (kernels/launch/counting_machine.h), so it cannot differ from what is
// allocated.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda.h"
#include "kernels/launch/machine.h"

namespace fourfold::backend::cuda {

// Throws out_of_memory, with every line of the plan, the memory that may be used and the longest context that
// would fit, when the machine has less than the plan needs.
void require_memory(const std::vector<MemoryUse>& plan, const Program& program, const Capacity& capacity,
                    kernels::Machine& machine, const GpuOptions& options);

}  // namespace fourfold::backend::cuda
