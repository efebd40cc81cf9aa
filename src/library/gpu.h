// A GPU for the library. gpu_cuda.cpp is built when CUDA is, gpu_none.cpp otherwise.
#pragma once

#include <memory>

#include "kernels/launch/machine.h"

namespace fourfold::library {

// Throws unsupported_device with the reason and the next step.
std::shared_ptr<kernels::Machine> open_gpu(int index);

}  // namespace fourfold::library
