// A program on the CPU: packed weights, caches, memory of the values, and one function an op.
#pragma once

#include <memory>

#include "backend/cpu/cpu.h"
#include "kernels/cpu/kernels.h"

namespace fourfold::backend::cpu {

std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity, const CpuOptions& options,
                                  int thread_count, const fourfold::cpu::Kernels& kernels);

}  // namespace fourfold::backend::cpu
