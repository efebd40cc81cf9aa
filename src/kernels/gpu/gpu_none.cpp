// Built where there is no nvcc.
#include "base/error.h"
#include "kernels/gpu/gpu.h"

namespace fourfold::kernels {

bool has_cuda_kernels() { return false; }

std::string why_no_gpu() { return "this build has no CUDA kernels"; }

int gpu_count() { return 0; }

PeerCheck check_peers(std::vector<int>) { return {}; }

std::unique_ptr<CopyLoad> make_copy_load(int, int) { return nullptr; }

GpuMemory gpu_memory(int) { return {}; }

std::string why_far(int) { return {}; }

std::unique_ptr<Gpu> open_gpu(int) {
  fail_with_hint(
      Code::unsupported_device,
      "Build where nvcc 12.9 or newer is found, and run on a machine with an NVIDIA GPU (9.0, 12.0 or 12.1).",
      "no GPU can be used: {}", why_no_gpu());
}

}  // namespace fourfold::kernels
