// Built where there is no nvcc.
#include "base/error.h"
#include "library/gpu.h"

namespace fourfold::library {

std::shared_ptr<kernels::Machine> open_gpu(int) {
  fail_with_hint(Code::unsupported_device, "Build where nvcc 12.9 or newer is found.",
                 "no GPU can be used: this build has no CUDA kernels");
}

}  // namespace fourfold::library
