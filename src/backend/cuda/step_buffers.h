// How large a step's buffers are for a model's layers.
#pragma once

#include "backend/cuda/buffers.h"

namespace fourfold::backend::cuda {

Buffers make_buffers(const DeviceModel& model, kernels::Machine& machine, kernels::Arena& arena,
                     const Capacity& capacity);

}  // namespace fourfold::backend::cuda
