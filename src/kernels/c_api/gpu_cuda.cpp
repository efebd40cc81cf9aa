#include <cuda_runtime_api.h>

#include "base/error.h"
#include "kernels/c_api/gpu.h"
#include "kernels/launch/cuda_launch.h"
#include "kernels/launch/cuda_machine.h"

namespace fourfold::c_api {
namespace {

using kernels::cuda_check;

}  // namespace

std::unique_ptr<kernels::Machine> open_gpu(int index, void* stream) {
  std::string why;
  const auto devices = kernels::cuda_devices(why);
  if (devices.empty()) fail(Code::unsupported_device, "no CUDA device can be used: {}", why);
  if (index < 0 || index >= static_cast<int>(devices.size()))
    fail(Code::unsupported_device, "there is no CUDA device {}; this machine has {}, counted from 0", index,
         devices.size());
  int current = 0;
  cuda_check(cudaGetDevice(&current), "asking for the current device");
  struct Restore {
    int device;
    ~Restore() { restore_gpu(device); }
  } const restore{current};
  return kernels::make_cuda_machine({.device = index, .stream = stream});
}

void set_gpu_stream(kernels::Machine& machine, void* stream) { kernels::set_stream(machine, stream); }

void synchronize_gpu(void* stream) {
  cuda_check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "waiting for the stream");
}

int make_gpu_current(int index) {
  int current = 0;
  cuda_check(cudaGetDevice(&current), "asking for the current device");
  if (current == index) return -1;
  cuda_check(cudaSetDevice(index), "selecting the device");
  return current;
}

// Nothing can be said from a destructor; the next call on that device will say it.
void restore_gpu(int index) noexcept { static_cast<void>(cudaSetDevice(index)); }

}  // namespace fourfold::c_api
