// What a program will take of a machine's memory, known before a byte is loaded.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda.h"
#include "kernels/launch/machine.h"

namespace fourfold::backend::cuda {

// Weights, KV pages, recurrent states, in bytes; then what a step needs, as far as the program tells: rows of
// activations for the capacity's row_count, workspaces, logits.
std::vector<MemoryUse> plan_memory(const Program& program, const Capacity& capacity,
                                   DenseWeights dense = DenseWeights::keep);

// Throws out_of_memory with every line of the plan when the machine has less free than it needs.
void require_memory(const std::vector<MemoryUse>& plan, kernels::Memory& memory);

}  // namespace fourfold::backend::cuda
