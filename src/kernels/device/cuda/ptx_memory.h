// PTX for memory: one instruction, one function. Shared addresses are 32-bit; sizes are in bytes.
// Asynchronous copies are spelled .shared::cta, never .shared::cluster: on sm_12x the latter becomes a driver
// call that also disables setmaxnreg.
#pragma once

#include <cstdint>

#include "kernels/device/types.h"

namespace fourfold::device::ptx {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- shared memory ----
__device__ __forceinline__ std::uint32_t load_shared_32(std::uint32_t address) {
  std::uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ U32x2 load_shared_64(std::uint32_t address) {
  U32x2 r;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(r.v[0]), "=r"(r.v[1]) : "r"(address) : "memory");
  return r;
}
__device__ __forceinline__ U32x4 load_shared_128(std::uint32_t address) {
  U32x4 r;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
               : "r"(address)
               : "memory");
  return r;
}
__device__ __forceinline__ void store_shared_32(std::uint32_t address, std::uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
__device__ __forceinline__ void store_shared_64(std::uint32_t address, U32x2 v) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(v.v[0]), "r"(v.v[1]) : "memory");
}
__device__ __forceinline__ void store_shared_128(std::uint32_t address, U32x4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.v[0]), "r"(v.v[1]),
               "r"(v.v[2]), "r"(v.v[3])
               : "memory");
}
// Four 8x8 b16 matrices; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ U32x4 load_matrix_x4(std::uint32_t row_address) {
  U32x4 r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
               : "r"(row_address)
               : "memory");
  return r;
}

// ---- global memory ----
// Plain loads: data another kernel may have written just before this one's wait.
__device__ __forceinline__ std::uint16_t load_global_16(const void* pointer) {
  std::uint16_t v;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(pointer) : "memory");
  return v;
}
__device__ __forceinline__ std::uint32_t load_global_32(const void* pointer) {
  std::uint32_t v;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(pointer) : "memory");
  return v;
}
__device__ __forceinline__ U32x2 load_global_64(const void* pointer) {
  U32x2 r;
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(r.v[0]), "=r"(r.v[1]) : "l"(pointer) : "memory");
  return r;
}
__device__ __forceinline__ U32x4 load_global_128(const void* pointer) {
  U32x4 r;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
               : "l"(pointer)
               : "memory");
  return r;
}
// Streamed loads: weights, read once, constant for the life of the program; they must not push tokens out of
// L1.
__device__ __forceinline__ std::uint32_t load_stream_32(const void* pointer) {
  std::uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(pointer));
  return v;
}
__device__ __forceinline__ U32x2 load_stream_64(const void* pointer) {
  U32x2 r;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(r.v[0]), "=r"(r.v[1])
               : "l"(pointer));
  return r;
}
__device__ __forceinline__ U32x4 load_stream_128(const void* pointer) {
  U32x4 r;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
               : "l"(pointer));
  return r;
}
__device__ __forceinline__ void store_global_16(void* pointer, std::uint16_t v) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(pointer), "h"(v) : "memory");
}
__device__ __forceinline__ void store_global_8(void* pointer, std::uint32_t v) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(pointer), "r"(v) : "memory");
}
__device__ __forceinline__ void store_global_32(void* pointer, std::uint32_t v) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(pointer), "r"(v) : "memory");
}
__device__ __forceinline__ void store_global_64(void* pointer, U32x2 v) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(pointer), "r"(v.v[0]), "r"(v.v[1]) : "memory");
}
__device__ __forceinline__ void store_global_128(void* pointer, U32x4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(pointer), "r"(v.v[0]), "r"(v.v[1]),
               "r"(v.v[2]), "r"(v.v[3])
               : "memory");
}
// Flags that other GPUs and the host read and write.
__device__ __forceinline__ void store_release_system(std::uint32_t* pointer, std::uint32_t v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(pointer), "r"(v) : "memory");
}
__device__ __forceinline__ std::uint32_t load_acquire_system(const std::uint32_t* pointer) {
  std::uint32_t v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(pointer) : "memory");
  return v;
}
__device__ __forceinline__ std::uint64_t nanoseconds() {
  std::uint64_t v;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v)::"memory");
  return v;
}
// Brings bytes (a multiple of 16) into L2 without waiting for them.
__device__ __forceinline__ void prefetch_l2(const void* pointer, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(pointer), "r"(bytes) : "memory");
}

// ---- asynchronous copies, global to shared ----
// Bulk: address and size multiples of 16; completes its bytes on the barrier.
__device__ __forceinline__ void bulk_load(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// One 16-byte chunk per lane; tracked by the lane's copy groups.
__device__ __forceinline__ void copy_16_async(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// The same of one word; it passes through L1, as there is no other form of it.
__device__ __forceinline__ void copy_4_async(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// .noinc: the arrival is one of those the barrier was initialised with.
__device__ __forceinline__ void copy_arrive(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace fourfold::device::ptx
