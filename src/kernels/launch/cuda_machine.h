// The GPU as a Machine: one device, one stream. Host-only header; the CUDA runtime stays behind it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/numa.h"
#include "kernels/launch/machine.h"

namespace fourfold::kernels {

// What the driver says about a device, and the first reason why it cannot be used (empty: it can).
struct CudaDevice {
  int index = 0;
  std::string name;
  int compute_capability = 0;  // 90, 120, 121
  int sm_count = 0;
  std::size_t memory_bytes = 0;
  std::string refused;
};

// Empty without a driver or device; `why` then says which.
std::vector<CudaDevice> cuda_devices(std::string& why);

// The memory of the host that is near a device; page-locked memory of its machine is taken there.
NearMemory near_memory_of(int device);

struct CudaMachineOptions {
  int device = 0;
  void* stream = nullptr;  // cudaStream_t; the caller's
  bool dependent_launch = true;
};

// Checks the chip against its facts and every row against its plan. Throws unsupported_device with the
// reason.
std::unique_ptr<Machine> make_cuda_machine(const CudaMachineOptions& options);

// Later launches and copies of a GPU's machine go to this stream (cudaStream_t).
void set_stream(Machine& machine, void* stream);

}  // namespace fourfold::kernels
