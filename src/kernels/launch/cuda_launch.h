// One way to start a kernel on a GPU: attributes set, every status checked, the kernel named in the error.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace fourfold::kernels {

inline void cuda_check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const Code code = status == cudaErrorMemoryAllocation ? Code::out_of_memory : Code::device_lost;
  fail(code, "{}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

// For measurements: FOURFOLD_EMULATE_SM_BYTES=102400 makes every kernel ask for so much shared memory that an
// SM of this GPU holds the blocks an SM of that size would hold. SM120 has 102,400 bytes an SM, so two
// kernels with 97 KB a block never overlap there, where an H200 with its 233,472 lets the second one start.
inline bool emulates_sm() { return std::getenv("FOURFOLD_EMULATE_SM_BYTES") != nullptr; }
inline int padded_shared_bytes(int bytes) {
  struct Sizes {
    long long emulated = 0, sm = 0, block = 0, reserved = 0;
  };
  static const Sizes sizes = [] {
    Sizes found;
    const char* text = std::getenv("FOURFOLD_EMULATE_SM_BYTES");
    if (text == nullptr) return found;
    char* end = nullptr;
    found.emulated = std::strtoll(text, &end, 10);
    int device = 0;
    cudaDeviceProp facts{};
    cuda_check(cudaGetDevice(&device), "asking for the device");
    cuda_check(cudaGetDeviceProperties(&facts, device), "asking for the device's facts");
    found.sm = static_cast<long long>(facts.sharedMemPerMultiprocessor);
    found.block = static_cast<long long>(facts.sharedMemPerBlockOptin);
    found.reserved = static_cast<long long>(facts.reservedSharedMemPerBlock);
    if (*end != '\0' || found.emulated < 16'384 || found.emulated > found.sm)
      fail(Code::invalid_request, "FOURFOLD_EMULATE_SM_BYTES is '{}'; 16,384 to {} are possible", text,
           found.sm);
    return found;
  }();
  if (sizes.emulated == 0) return bytes;
  const long long whole = (bytes + sizes.reserved) * sizes.sm / sizes.emulated - sizes.reserved;
  return static_cast<int>(std::min(std::max<long long>(whole / 128 * 128, bytes), sizes.block));
}

// So much shared memory that no SM of the current device holds two blocks of a kernel (spread.h).
inline int apart_bytes() {
  int device = 0, sm = 0, reserved = 0, block = 0;
  cuda_check(cudaGetDevice(&device), "asking for the device");
  const auto ask = [&](int& value, cudaDeviceAttr attribute) {
    cuda_check(cudaDeviceGetAttribute(&value, attribute, device), "asking for the device's facts");
  };
  ask(sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  ask(reserved, cudaDevAttrReservedSharedMemoryPerBlock);
  ask(block, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return std::min(sm / 2 - reserved + 128, block) / 128 * 128;
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
  config.dynamicSmemBytes = static_cast<std::size_t>(padded_shared_bytes(launch.shared_bytes));
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
  int resident_blocks;
};

// Raises the kernel's shared-memory limit and reads back what was compiled. Fails at start rather than at the
// first use.
template <class... Params>
KernelFacts prepare_kernel(const char* name, void (*kernel)(Params...), int threads, std::size_t shared_bytes,
                           bool wants_cache = false) {
  const auto* function = reinterpret_cast<const void*>(kernel);
  const int most = padded_shared_bytes(std::max(static_cast<int>(shared_bytes), apart_bytes()));
  shared_bytes = static_cast<std::size_t>(padded_shared_bytes(static_cast<int>(shared_bytes)));
  cuda_check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, most), name);
  // Kernels ask for the same split of an SM's memory, all of it shared: one that asked for less would have
  // the SM emptied and changed over, and the next kernel's blocks could not start beside its own (H200: 15 us
  // a layer). wants_cache: a kernel that lives by its first-level cache (moe_stream: 6 % at 64 tokens).
  if (!wants_cache)
    cuda_check(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared),
               name);
  cudaFuncAttributes attributes{};
  cuda_check(cudaFuncGetAttributes(&attributes, function), name);
  KernelFacts facts{attributes.numRegs, 0};
  cuda_check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&facts.resident_blocks, function, threads, shared_bytes),
      name);
  return facts;
}

}  // namespace fourfold::kernels
