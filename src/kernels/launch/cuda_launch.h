// One way to start a kernel on a GPU: attributes set, every status checked, the kernel named in the error.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/error.h"

namespace fourfold::kernels {

inline void cuda_check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const Code code = status == cudaErrorMemoryAllocation ? Code::out_of_memory : Code::device_lost;
  fail(code, "{}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

struct CudaLaunch {
  int blocks;
  int threads;
  int shared_bytes;
  cudaStream_t stream;
  bool dependent;  // may start before the kernel before it has finished; every kernel here waits for it by
                   // itself
};

template <class... Params>
void launch_kernel(const char* name, void (*kernel)(Params...), const CudaLaunch& launch,
                   const Params&... params) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(launch.blocks));
  config.blockDim = dim3(static_cast<unsigned>(launch.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(launch.shared_bytes);
  config.stream = launch.stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = launch.dependent ? 1 : 0;
  void* arguments[] = {const_cast<void*>(static_cast<const void*>(&params))...};
  cuda_check(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments), name);
}

// What a compiled kernel turned out to be, for the comparison with its plan.
struct KernelFacts {
  int registers;
  int local_bytes;
  int resident_blocks;
};

// Raises the kernel's shared-memory limit and reads back what was compiled. Fails at start rather than at the
// first use.
template <class... Params>
KernelFacts prepare_kernel(const char* name, void (*kernel)(Params...), int threads, std::size_t shared_bytes,
                           bool wants_cache = false) {
  const auto* function = reinterpret_cast<const void*>(kernel);
  cuda_check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared_bytes)),
             name);
  // Kernels ask for the same split of an SM's memory, all of it shared: one that asked for less would have
  // the SM emptied and changed over, and the next kernel's blocks could not start beside its own (H200: 15 us
  // a layer). wants_cache: a kernel that lives by its first-level cache (moe_stream: 6 % at 64 tokens).
  if (!wants_cache)
    cuda_check(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared),
               name);
  cudaFuncAttributes attributes{};
  cuda_check(cudaFuncGetAttributes(&attributes, function), name);
  KernelFacts facts{attributes.numRegs, static_cast<int>(attributes.localSizeBytes), 0};
  cuda_check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&facts.resident_blocks, function, threads, shared_bytes),
      name);
  return facts;
}

}  // namespace fourfold::kernels
