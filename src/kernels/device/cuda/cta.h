// The GPU as kernels see it. kernels/device/sim/cta.h offers the same members on the simulated GPU; a kernel
// is a template over the two and may use nothing else: no intrinsic, no raw access to shared or global
// memory.
//
// Members come in families: who am I; order (barriers, fences); shared memory; global memory; asynchronous
// copies; tensor cores; exchange inside a warp; numbers. The numeric members are exact by definition
// (correctly rounded), so both machines give the same bits.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/device/cuda/fp4_emulation.h"
#include "kernels/device/cuda/ptx_barrier.h"
#include "kernels/device/cuda/ptx_memory.h"
#include "kernels/device/cuda/ptx_mma.h"
#include "kernels/device/cuda/ptx_wgmma.h"
#include "kernels/device/named_barrier.h"
#include "kernels/device/types.h"

namespace fourfold::device {

// Arch is one of plan::Sm90, plan::Sm120, ... ; only has_fp4_mma is read here.
template <class Arch>
class CudaCta {
 public:
  // ---- who am I ----
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int lane() const { return static_cast<int>(threadIdx.x & 31u); }
  // The shuffle tells the compiler that the value is the same in the whole warp; all lanes must ask.
  __device__ int warp() const { return __shfl_sync(~0u, static_cast<int>(threadIdx.x >> 5), 0); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ int block() const { return static_cast<int>(blockIdx.x); }
  __device__ int blocks() const { return static_cast<int>(gridDim.x); }
  // The block's dynamic shared memory as the kernel's one storage struct.
  template <class Storage>
  __device__ Storage& shared() const {
    extern __shared__ __align__(1024) unsigned char fourfold_shared[];
    return *reinterpret_cast<Storage*>(fourfold_shared);
  }

  // ---- order ----
  __device__ void sync_block() const { __syncthreads(); }
  __device__ void sync_warp() const { __syncwarp(); }
  __device__ void barrier_sync(NamedBarrier barrier, int threads) const {
    ptx::barrier_sync(static_cast<int>(barrier), threads);
  }
  // Counts this warp as arrived without waiting.
  __device__ void barrier_arrive(NamedBarrier barrier, int threads) const {
    ptx::barrier_arrive(static_cast<int>(barrier), threads);
  }
  __device__ void init(Mbarrier* barrier, int arrivals) const {
    ptx::mbarrier_init(ptx::shared_address(barrier), static_cast<std::uint32_t>(arrivals));
  }
  __device__ void fence_barrier_init() const { ptx::fence_mbarrier_init(); }
  // How many of a warp's lanes arrive where it has read something that a copy will overwrite: after sync_warp
  // one speaks for all. racecheck does not see that this orders the others' reads
  // (bench/probes/racecheck_mbarrier.cu), so in a build for it every lane speaks for itself.
#ifdef FOURFOLD_RACECHECK
  static constexpr int kWarpArrivals = 32;
#else
  static constexpr int kWarpArrivals = 1;
#endif
  __device__ void arrive(Mbarrier* barrier) const { ptx::mbarrier_arrive(ptx::shared_address(barrier)); }
  __device__ void arrive_expect(Mbarrier* barrier, int bytes) const {
    ptx::mbarrier_arrive_expect(ptx::shared_address(barrier), static_cast<std::uint32_t>(bytes));
  }
  __device__ void wait(Mbarrier* barrier, std::uint32_t parity) const {
    ptx::mbarrier_wait(ptx::shared_address(barrier), parity);
  }
  __device__ void fence_async_proxy() const { ptx::fence_async_proxy(); }
  __device__ void wait_predecessors() const { ptx::wait_predecessors(); }
  __device__ void release_successors() const { ptx::release_successors(); }
  template <int Count>
  __device__ void raise_registers() const {
    ptx::raise_registers<Count>();
  }
  template <int Count>
  __device__ void drop_registers() const {
    ptx::drop_registers<Count>();
  }

  // ---- shared memory ---- T has 4, 8 or 16 bytes; the pointer lies in shared()
  template <class T>
  __device__ T load_shared(const T* from) const {
    const std::uint32_t address = ptx::shared_address(from);
    if constexpr (sizeof(T) == 4) return std::bit_cast<T>(ptx::load_shared_32(address));
    if constexpr (sizeof(T) == 8) return std::bit_cast<T>(ptx::load_shared_64(address));
    if constexpr (sizeof(T) == 16) return std::bit_cast<T>(ptx::load_shared_128(address));
  }
  template <class T>
  __device__ void store_shared(T* to, T value) const {
    const std::uint32_t address = ptx::shared_address(to);
    if constexpr (sizeof(T) == 4) ptx::store_shared_32(address, std::bit_cast<std::uint32_t>(value));
    if constexpr (sizeof(T) == 8) ptx::store_shared_64(address, std::bit_cast<U32x2>(value));
    if constexpr (sizeof(T) == 16) ptx::store_shared_128(address, std::bit_cast<U32x4>(value));
  }
  // Collective: lane i names row i % 8 (16 bytes) of 8x8 b16 matrix i / 8; result register j belongs to
  // matrix j.
  __device__ U32x4 load_matrix_x4(const void* row) const {
    return ptx::load_matrix_x4(ptx::shared_address(row));
  }

  // ---- global memory ---- T has 4, 8 or 16 bytes (load: also 2; store: also 1 and 2)
  // Data a predecessor may have written: only after wait_predecessors (or an older grid's, see
  // docs/simulator.md).
  template <class T>
  __device__ T load(const T* from) const {
    if constexpr (sizeof(T) == 2) return std::bit_cast<T>(ptx::load_global_16(from));
    if constexpr (sizeof(T) == 4) return std::bit_cast<T>(ptx::load_global_32(from));
    if constexpr (sizeof(T) == 8) return std::bit_cast<T>(ptx::load_global_64(from));
    if constexpr (sizeof(T) == 16) return std::bit_cast<T>(ptx::load_global_128(from));
  }
  // Constant data read once (weights): bypasses L1.
  template <class T>
  __device__ T load_stream(const T* from) const {
    if constexpr (sizeof(T) == 4) return std::bit_cast<T>(ptx::load_stream_32(from));
    if constexpr (sizeof(T) == 8) return std::bit_cast<T>(ptx::load_stream_64(from));
    if constexpr (sizeof(T) == 16) return std::bit_cast<T>(ptx::load_stream_128(from));
  }
  template <class T>
  __device__ void store(T* to, T value) const {
    if constexpr (sizeof(T) == 1) ptx::store_global_8(to, std::bit_cast<std::uint8_t>(value));
    if constexpr (sizeof(T) == 2) ptx::store_global_16(to, std::bit_cast<std::uint16_t>(value));
    if constexpr (sizeof(T) == 4) ptx::store_global_32(to, std::bit_cast<std::uint32_t>(value));
    if constexpr (sizeof(T) == 8) ptx::store_global_64(to, std::bit_cast<U32x2>(value));
    if constexpr (sizeof(T) == 16) ptx::store_global_128(to, std::bit_cast<U32x4>(value));
  }
  // Flags between ranks, whose kernels run on other GPUs or streams. What this thread did, and what it knows
  // to be done (sync_block), comes before whoever reads the value with load_acquire_system.
  __device__ void store_release_system(std::uint32_t* to, std::uint32_t value) const {
    ptx::store_release_system(to, value);
  }
  __device__ std::uint32_t load_acquire_system(const std::uint32_t* from) const {
    return ptx::load_acquire_system(from);
  }
  // Between two looks at a flag.
  __device__ void give_way() const {}
  // A clock for time limits; it advances in steps of up to a microsecond.
  __device__ std::uint64_t nanoseconds() const { return ptx::nanoseconds(); }
  __device__ void prefetch_l2(const void* from, int bytes) const {
    ptx::prefetch_l2(from, static_cast<std::uint32_t>(bytes));
  }

  // ---- asynchronous copies, global to shared ----
  __device__ void bulk_load(void* to, const void* from, int bytes, Mbarrier* barrier) const {
    ptx::bulk_load(ptx::shared_address(to), from, static_cast<std::uint32_t>(bytes),
                   ptx::shared_address(barrier));
  }
  __device__ void copy_16_async(void* to, const void* from) const {
    ptx::copy_16_async(ptx::shared_address(to), from);
  }
  __device__ void copy_4_async(void* to, const void* from) const {
    ptx::copy_4_async(ptx::shared_address(to), from);
  }
  // One arrival on the barrier when every copy this thread has issued so far has landed; this does not wait.
  __device__ void copy_arrive(Mbarrier* barrier) const { ptx::copy_arrive(ptx::shared_address(barrier)); }
  __device__ void copy_commit() const { ptx::copy_commit(); }
  // Waits until at most Pending of this thread's committed groups are unfinished.
  template <int Pending>
  __device__ void copy_wait() const {
    ptx::copy_wait<Pending>();
  }

  // ---- tensor cores ---- collectives of a warp (mma) or of four warps (wgmma)
  __device__ void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                           std::uint32_t b1) const {
    ptx::mma_bf16_m16n8k16(d, a, b0, b1);
  }
  __device__ void mma_e4m3(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                           std::uint32_t b1) const {
    ptx::mma_e4m3_m16n8k32(d, a, b0, b1);
  }
  template <int ThreadA, int ThreadB>
  __device__ void mma_nvfp4(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                            std::uint32_t scale_a, std::uint32_t scale_b) const {
    if constexpr (Arch::has_fp4_mma)
      ptx::mma_nvfp4_m16n8k64<ThreadA, ThreadB>(d, a, b0, b1, scale_a, scale_b);
    else
      ptx::emulate_mma_fp4<false>(d, a, b0, b1, scale_a, scale_b, ThreadA, ThreadB);
  }
  template <int ThreadA, int ThreadB>
  __device__ void mma_mxfp4(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                            std::uint32_t scale_a, std::uint32_t scale_b) const {
    if constexpr (Arch::has_fp4_mma)
      ptx::mma_mxfp4_m16n8k64<ThreadA, ThreadB>(d, a, b0, b1, scale_a, scale_b);
    else
      ptx::emulate_mma_fp4<true>(d, a, b0, b1, scale_a, scale_b, ThreadA, ThreadB);
  }
  __device__ std::uint64_t wgmma_descriptor(const void* panel) const {
    return wgmma_descriptor_bits(ptx::shared_address(panel));
  }
  __device__ std::uint64_t wgmma_columns_descriptor(const void* panel, int panel_bytes) const {
    return wgmma_columns_descriptor_bits(ptx::shared_address(panel), panel_bytes);
  }
  __device__ void wgmma_fence() const { ptx::wgmma_fence(); }
  // Asynchronous: d may not be touched, a may not be changed, until a wait covers the group it was committed
  // in.
  template <int N>
  __device__ void wgmma_bf16(float* d, const std::uint32_t (&a)[4], std::uint64_t b) const {
    ptx::Wgmma<N>::run(d, a, b);
  }
  // b: of wgmma_columns_descriptor.
  template <int N>
  __device__ void wgmma_bf16_columns(float* d, const std::uint32_t (&a)[4], std::uint64_t b) const {
    ptx::WgmmaColumns<N>::run(d, a, b);
  }
  // Adds: to what d holds; else d is only written.
  template <int N, bool Adds>
  __device__ void wgmma_e4m3(float* d, const std::uint32_t (&a)[4], std::uint64_t b) const {
    ptx::WgmmaE4m3<N, Adds>::run(d, a, b);
  }
  __device__ void wgmma_commit() const { ptx::wgmma_commit(); }
  template <int Pending>
  __device__ void wgmma_wait() const {
    ptx::wgmma_wait<Pending>();
  }

  // ---- exchange inside a warp ---- collectives of all 32 lanes
  template <class T>
  __device__ T shuffle(T value, int from_lane) const {
    return __shfl_sync(~0u, value, from_lane);
  }
  template <class T>
  __device__ T shuffle_xor(T value, int mask) const {
    return __shfl_xor_sync(~0u, value, mask);
  }
  __device__ std::uint32_t ballot(bool value) const { return __ballot_sync(~0u, value); }
  __device__ std::uint32_t max_all(std::uint32_t value) const { return __reduce_max_sync(~0u, value); }
  // Mask of the lanes that hold the same value.
  __device__ std::uint32_t match(std::uint32_t value) const { return __match_any_sync(~0u, value); }

  // The same pointer or number, but the compiler may not look through it: what depends on it is computed here
  // and kept, not computed again at every use (pointers) nor long before it is needed (numbers).
  template <class T>
  static __device__ T keep(T value) {
    if constexpr (std::is_same_v<T, float>)
      asm volatile("" : "+f"(value));
    else if constexpr (sizeof(T) == 8)
      asm volatile("" : "+l"(value));
    else
      asm volatile("" : "+r"(value));
    return value;
  }

  // ---- numbers ---- correctly rounded (nearest even), never contracted
  static __device__ float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
  static __device__ float mul(float a, float b) { return __fmul_rn(a, b); }
  static __device__ float add(float a, float b) { return __fadd_rn(a, b); }
  static __device__ float reciprocal(float a) { return __frcp_rn(a); }
  static __device__ float sqrt(float a) { return __fsqrt_rn(a); }
  static __device__ float max(float a, float b) { return fmaxf(a, b); }
  static __device__ float min(float a, float b) { return fminf(a, b); }
  static __device__ float abs(float a) { return fabsf(a); }
  static __device__ double fma_f64(double a, double b, double c) { return __fma_rn(a, b, c); }
  static __device__ double mul_f64(double a, double b) { return __dmul_rn(a, b); }
  static __device__ double add_f64(double a, double b) { return __dadd_rn(a, b); }
  static __device__ double divide_f64(double a, double b) { return __ddiv_rn(a, b); }
  // {low, high} as two bf16, each rounded to nearest even.
  static __device__ std::uint32_t pack_bf16(float low, float high) {
    std::uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
  // Nearest even, saturating at 448; low in the low byte.
  static __device__ std::uint32_t pack_e4m3(float low, float high) {
    std::uint16_t r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
    return r;
  }
  static __device__ std::uint32_t mul_bf16x2(std::uint32_t a, std::uint32_t b) {
    std::uint32_t r;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
  }
  // The low or high half twice. As a pair of moves, not a byte permute: ptxas then folds it into the
  // multiply.
  static __device__ std::uint32_t twice_low(std::uint32_t a) {
    std::uint32_t r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l};}" : "=r"(r) : "r"(a));
    return r;
  }
  static __device__ std::uint32_t twice_high(std::uint32_t a) {
    std::uint32_t r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h};}" : "=r"(r) : "r"(a));
    return r;
  }
  // Byte i of the result is byte (selector >> 4i) & 7 of {a, b}; b's bytes are 4..7.
  static __device__ std::uint32_t byte_permute(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
    return __byte_perm(a, b, selector);
  }
  static __device__ std::uint32_t rotate_left(std::uint32_t a, int by) { return __funnelshift_l(a, a, by); }
  static __device__ int count_ones(std::uint32_t a) { return __popc(a); }
  // Index of the lowest set bit; a is not zero.
  static __device__ int lowest_bit(std::uint32_t a) { return __ffs(static_cast<int>(a)) - 1; }
};

}  // namespace fourfold::device
