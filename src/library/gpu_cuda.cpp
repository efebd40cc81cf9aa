// Built where there is nvcc.
#include "kernels/bench/device_tools.h"
#include "kernels/launch/cuda_launch.h"
#include "kernels/launch/cuda_machine.h"
#include "library/gpu.h"

namespace fourfold::library {

std::shared_ptr<kernels::Machine> open_gpu(int index) {
  kernels::cuda_check(cudaSetDevice(index), "selecting the device");
  struct Opened {
    std::unique_ptr<void, void (*)(void*)> stream{bench::make_stream(), bench::destroy_stream};
    std::unique_ptr<kernels::Machine> machine;
  };
  const auto opened = std::make_shared<Opened>();
  opened->machine =
      kernels::make_cuda_machine({.device = index, .stream = opened->stream.get(), .dependent_launch = true});
  return {opened, opened->machine.get()};
}

}  // namespace fourfold::library
