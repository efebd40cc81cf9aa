// Budgets a kernel must keep, checked by the compiler. Each Fits... holds its numbers as template arguments,
// because that is the one place where g++, clang and nvcc all print them: a tile that does not fit fails to
// build with the bytes it needs and the bytes there are in the message. Below them, the occupancy arithmetic
// that launches and row tables share (the same as cuda_occupancy.h, as constexpr).
#pragma once

#include <algorithm>
#include <cstddef>

#include "plan/arch.h"

namespace fourfold::plan {

constexpr int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }
constexpr int round_down(int value, int unit) { return value / unit * unit; }
constexpr int warps_of(int threads) { return (threads + kThreadsPerWarp - 1) / kThreadsPerWarp; }

// static_assert(FitsSharedMemory<sizeof(Storage), Sm120::smem_bytes_per_block>::value);
template <int NeededBytes, int LimitBytes>
struct FitsSharedMemory {
  static_assert(
      NeededBytes <= LimitBytes,
      "too much shared memory: the template arguments are the bytes needed and the bytes a block may use");
  static constexpr bool value = NeededBytes <= LimitBytes;
};

template <int Threads, int LimitThreads>
struct FitsThreads {
  static_assert(Threads <= LimitThreads,
                "too many threads: the template arguments are the threads and the limit");
  static constexpr bool value = Threads <= LimitThreads;
};

template <int Barriers, int LimitBarriers>
struct FitsNamedBarriers {
  static_assert(
      Barriers <= LimitBarriers,
      "too many named barriers: the template arguments are the barriers used and the barriers there are");
  static constexpr bool value = Barriers <= LimitBarriers;
};

// The registers the hardware sets aside for one block: a warp gets whole units, and a launch is checked as
// if the fullest partition's share were taken from all four. Nine warps therefore cost as much as twelve.
constexpr int registers_of_block(int threads, int registers_per_thread) {
  return round_up(registers_per_thread * kThreadsPerWarp, kRegisterAllocationUnit) *
         round_up(warps_of(threads), kRegisterPartitions);
}

// What the two below reduce to; a name of its own so that a failure prints the registers needed, not only
// their parts.
template <int NeededRegisters, int LimitRegisters>
struct RegisterDemand {
  static_assert(NeededRegisters <= LimitRegisters,
                "too many registers: the template arguments are the registers a block needs and the "
                "registers of an SM");
  static constexpr bool value = NeededRegisters <= LimitRegisters;
};

// Every thread of the block with the same register count, as __launch_bounds__ gives it.
template <int Threads, int RegistersPerThread, int LimitRegisters>
struct FitsRegisters : RegisterDemand<registers_of_block(Threads, RegistersPerThread), LimitRegisters> {
  static_assert(RegistersPerThread <= kRegistersPerThreadMax, "a thread has at most 255 registers");
};

// The warps of one role and the registers setmaxnreg leaves each of their threads.
template <int Warps, int RegistersPerThread>
struct RoleRegisters {
  static_assert(Warps % kRegisterPartitions == 0,
                "setmaxnreg is a collective of four warps, one in each partition");
  static_assert(RegistersPerThread >= 24 && RegistersPerThread <= 256 && RegistersPerThread % 8 == 0,
                "setmaxnreg takes a multiple of 8 from 24 to 256");
  static constexpr int registers = Warps * kThreadsPerWarp * RegistersPerThread;
};

// The sum over roles. One register too many is not an error of the hardware but a wait that never ends.
template <int LimitRegisters, class... Roles>
struct FitsRegisterFile : RegisterDemand<(0 + ... + Roles::registers), LimitRegisters> {};

// How many such blocks share an SM; 0 when even one cannot start. shared_memory_bytes is what the launch
// asks for, without the driver's reserve. Assumes the carve-out is set to the largest, as our launches do.
constexpr int blocks_per_sm(const ArchFacts& arch, int threads, int registers_per_thread,
                            int shared_memory_bytes, int named_barriers = 0) {
  if (threads <= 0 || threads > arch.threads_per_block_max) return 0;
  if (shared_memory_bytes > arch.smem_bytes_per_block) return 0;
  if (registers_per_thread > arch.registers_per_thread_max) return 0;
  if (registers_of_block(threads, registers_per_thread) > arch.registers_per_sm) return 0;
  if (named_barriers > arch.named_barriers) return 0;

  const int warps = warps_of(threads);
  int blocks = std::min(arch.blocks_per_sm_max, arch.warps_per_sm / warps);
  const int registers_per_warp =
      round_up(registers_per_thread * kThreadsPerWarp, arch.register_allocation_unit);
  if (registers_per_warp > 0) {
    const int warps_per_partition = arch.registers_per_sm / kRegisterPartitions / registers_per_warp;
    blocks = std::min(blocks, warps_per_partition * kRegisterPartitions / warps);
  }
  const int shared_memory_taken =
      round_up(shared_memory_bytes + arch.smem_reserved_bytes_per_block, arch.smem_allocation_unit_bytes);
  blocks = std::min(blocks, arch.smem_bytes_per_sm / shared_memory_taken);
  if (named_barriers > 0) blocks = std::min(blocks, arch.named_barriers_per_sm / named_barriers);
  return blocks;
}

// The most shared memory each of `blocks` resident blocks may ask for; 0 when so many never fit.
constexpr int smem_budget_for(const ArchFacts& arch, int blocks) {
  if (blocks <= 0 || blocks > arch.blocks_per_sm_max) return 0;
  const int share_bytes = round_down(arch.smem_bytes_per_sm / blocks, arch.smem_allocation_unit_bytes);
  return std::min(arch.smem_bytes_per_block, std::max(0, share_bytes - arch.smem_reserved_bytes_per_block));
}

// The most registers each thread may have with `blocks` resident blocks of `threads`; 0 when so many never
// fit.
constexpr int registers_at(const ArchFacts& arch, int threads, int blocks) {
  const int warps = warps_of(threads);
  if (threads <= 0 || threads > arch.threads_per_block_max) return 0;
  if (blocks <= 0 || blocks > arch.blocks_per_sm_max || blocks * warps > arch.warps_per_sm) return 0;
  const int warps_in_fullest_partition = (blocks * warps + kRegisterPartitions - 1) / kRegisterPartitions;
  const int registers_per_warp =
      round_down(arch.registers_per_sm / kRegisterPartitions / warps_in_fullest_partition,
                 arch.register_allocation_unit);
  return std::min(arch.registers_per_thread_max, registers_per_warp / kThreadsPerWarp);
}

// The deepest pipeline whose real storage fits: the depth is read off sizeof, so padding cannot be
// forgotten. 0 when not even one stage fits.
template <template <int> class Storage, int LimitBytes, int MaxStages>
constexpr int deepest_stages() {
  if constexpr (MaxStages <= 0) {
    return 0;
  } else if constexpr (sizeof(Storage<MaxStages>) <= static_cast<std::size_t>(LimitBytes)) {
    return MaxStages;
  } else {
    return deepest_stages<Storage, LimitBytes, MaxStages - 1>();
  }
}

}  // namespace fourfold::plan
