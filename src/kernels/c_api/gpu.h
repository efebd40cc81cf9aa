// The few things the C API needs of a GPU beyond Machine. gpu_cuda.cpp has them with CUDA, gpu_none.cpp
// refuses without.
#pragma once

#include <memory>

#include "kernels/launch/machine.h"

namespace fourfold::c_api {

// Throws unsupported_device when there is no such device or it has no kernels. Leaves the current device
// alone.
std::unique_ptr<kernels::Machine> open_gpu(int index, void* stream);
void set_gpu_stream(kernels::Machine& machine, void* stream);
void synchronize_gpu(void* stream);

// Returns the device to restore, or -1 when it already was current.
int make_gpu_current(int index);
void restore_gpu(int index) noexcept;

}  // namespace fourfold::c_api
