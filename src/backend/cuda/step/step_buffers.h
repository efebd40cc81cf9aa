// How large a step's buffers are for a model's layers.
#pragma once

#include "backend/cuda/step/buffers.h"
#include "backend/cuda/tune/kernel_selector.h"

namespace fourfold::backend::cuda {

Buffers make_buffers(const DeviceModel& model, KernelSelector& selector, kernels::Arena& arena,
                     const Capacity& capacity);

// As if nothing had been written to what a pass writes before it reads it.
void forget_buffers(const Buffers& buffers, const DeviceModel& model, const Capacity& capacity,
                    kernels::Memory& memory);

}  // namespace fourfold::backend::cuda
