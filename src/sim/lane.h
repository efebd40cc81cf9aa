// A simulated thread as kernels reach it: one member per instruction, in plain integers and pointers. The
// device language (kernels/device/sim/cta.h) wraps it. Every member takes the call site of the kernel for
// messages, traffic counts and mutations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/site.h"

namespace fourfold::sim {

class Block;
struct Thread;

class Lane {
 public:
  Lane(Block& block, Thread& thread);

  // ---- who am I ----
  int thread() const { return thread_index_; }
  int lane() const { return thread_index_ & 31; }
  int warp() const { return thread_index_ >> 5; }
  int threads() const { return threads_; }
  int block() const { return block_index_; }
  int blocks() const { return blocks_; }
  // The block's shared memory, when it has at least `bytes`.
  void* shared(std::size_t bytes, std::size_t alignment, Site at) const;

  // ---- order ----
  void sync_block(Site at) const;
  void sync_warp(Site at) const;
  void barrier_sync(int id, int threads, Site at) const;
  void barrier_arrive(int id, int threads, Site at) const;
  void init(void* barrier, int arrivals, Site at) const;
  void fence_barrier_init(Site at) const;
  void arrive(void* barrier, Site at) const;
  void arrive_expect(void* barrier, int bytes, Site at) const;
  void wait(void* barrier, std::uint32_t parity, Site at) const;
  void fence_async_proxy(Site at) const;
  void wait_predecessors(Site at) const;
  void release_successors(Site at) const;
  void raise_registers(int count, Site at) const;
  void drop_registers(int count, Site at) const;

  // ---- memory ---- bytes is 4, 8 or 16 (global: also 1 and 2)
  void load_shared(const void* from, void* value, int bytes, Site at) const;
  void store_shared(void* to, const void* value, int bytes, Site at) const;
  void load_matrix_x4(const void* row, std::uint32_t (&registers)[4], Site at) const;
  void load_global(const void* from, void* value, int bytes, Site at) const;
  // Through the read-only path: data no thread of this grid writes.
  void load_stream(const void* from, void* value, int bytes, Site at) const;
  void store_global(void* to, const void* value, int bytes, Site at) const;
  void prefetch_l2(const void* from, int bytes, Site at) const;
  // A flag that other blocks and ranks read: what this thread did, and knows to be done, comes before whoever
  // reads the value with load_acquire.
  void store_release(void* to, std::uint32_t value, Site at) const;
  std::uint32_t load_acquire(const void* from, Site at) const;
  // Between two looks at a flag.
  void give_way() const;
  std::uint64_t nanoseconds() const;

  // ---- asynchronous copies, global to shared ----
  void bulk_load(void* to, const void* from, int bytes, void* barrier, Site at) const;
  void copy_16_async(void* to, const void* from, Site at) const;
  void copy_4_async(void* to, const void* from, Site at) const;
  void copy_commit(Site at) const;
  void copy_wait(int pending, Site at) const;
  void copy_arrive(void* barrier, Site at) const;

  // ---- tensor cores ----
  void mma_e4m3(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                Site at) const;
  void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                Site at) const;
  void mma_nvfp4(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                 std::uint32_t scale_a, std::uint32_t scale_b, int thread_a, int thread_b, Site at) const;
  void mma_mxfp4(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                 std::uint32_t scale_a, std::uint32_t scale_b, int thread_a, int thread_b, Site at) const;
  // Address inside the block's shared memory, as descriptors hold it.
  std::uint32_t shared_address(const void* pointer, Site at) const;
  void wgmma_fence(Site at) const;
  void wgmma_bf16(int n, float* d, const std::uint32_t (&a)[4], std::uint64_t descriptor, Site at) const;
  void wgmma_bf16_columns(int n, float* d, const std::uint32_t (&a)[4], std::uint64_t descriptor,
                          Site at) const;
  void wgmma_e4m3(int n, bool adds, float* d, const std::uint32_t (&a)[4], std::uint64_t descriptor,
                  Site at) const;
  void wgmma_commit(Site at) const;
  void wgmma_wait(int pending, Site at) const;

  // ---- exchange inside a warp ----
  std::uint64_t shuffle(std::uint64_t value, int from_lane, Site at) const;
  std::uint64_t shuffle_xor(std::uint64_t value, int mask, Site at) const;
  std::uint32_t ballot(bool value, Site at) const;
  std::uint32_t max_all(std::uint32_t value, Site at) const;
  std::uint32_t match(std::uint32_t value, Site at) const;

  // A claim of the kernel itself.
  void check(bool holds, const char* what, Site at) const;

 private:
  void load_from(const void* from, void* value, int bytes, Site at, bool constant) const;

  Block& block_;
  Thread& thread_;
  int thread_index_;
  int threads_;
  int block_index_;
  int blocks_;
};

// A float that a kernel must not have seen: the poison of an accumulator in flight, perhaps quietened by
// arithmetic.
bool is_poison(float value);
// Raises the fault for it; numeric members call this, they do not know their thread.
[[noreturn]] void used_poison(Site at);

}  // namespace fourfold::sim
