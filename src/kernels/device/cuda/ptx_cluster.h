// PTX between the blocks of a cluster: one instruction, one function. Every chip with clusters has them
// (sm_90 on). Unlike bulk copies (ptx_memory.h) these stores are instructions of sm_12x, too, where spelled
// .shared::cluster.
#pragma once

#include <cstdint>

#include "kernels/device/types.h"

namespace fourfold::device::ptx {

__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same place in the shared memory of another block.
__device__ __forceinline__ std::uint32_t address_in_block(std::uint32_t address, int rank) {
  std::uint32_t r;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
  return r;
}

// Stores that arrive some time later and complete their bytes on a barrier of the receiving block.
__device__ __forceinline__ void send_32(std::uint32_t to, std::uint32_t v, std::uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(v),
               "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void send_64(std::uint32_t to, U32x2 v, std::uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "r"(v.v[0]), "r"(v.v[1]), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void send_128(std::uint32_t to, U32x4 v, std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "r"(v.v[0]), "r"(v.v[1]), "r"(v.v[2]), "r"(v.v[3]), "r"(barrier)
      : "memory");
}

}  // namespace fourfold::device::ptx
