// What each GPU architecture has: limits and instructions. One row per architecture; kernels read it as a
// type (Sm120::smem_bytes_per_block), run-time code as a value (ArchFacts). An architecture that is not
// listed has no row: nothing here falls back to a neighbour's.
//
// Sources. Limits: "Compute Capabilities" appendix of the CUDA C++ Programming Guide; allocation units,
// blocks and named barriers per SM: cuda_occupancy.h of CUDA 13.0. Shared memory per block of sm_90a,
// sm_100a, sm_103a, sm_120a and sm_121a, and every has_ flag: what ptxas 13.0 accepts for that target
// ("0x18c00 max" = 101,376).
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::plan {

inline constexpr int kThreadsPerWarp = 32;
// An SM is four partitions with a quarter of the register file each; a warp lives in one of them.
inline constexpr int kRegisterPartitions = 4;
// Registers are handed to a warp in units of 256: 8 for each of its 32 threads.
inline constexpr int kRegisterAllocationUnit = 256;
// An instruction names a register with eight bits, and the last name reads as zero.
inline constexpr int kRegistersPerThreadMax = 255;

struct ArchFacts {
  std::string_view name;  // "sm120"
  int cc_major;
  int cc_minor;
  int smem_bytes_per_block;  // the most dynamic shared memory a block may opt in to
  int smem_bytes_per_sm;
  int smem_reserved_bytes_per_block;  // taken by the driver from the SM's share for each resident block
  int smem_allocation_unit_bytes;
  int registers_per_sm;
  int register_allocation_unit;
  int registers_per_thread_max;
  int threads_per_block_max;
  int threads_per_sm;
  int warps_per_sm;
  int blocks_per_sm_max;
  int named_barriers;         // a block may name barriers 0 to named_barriers - 1
  int named_barriers_per_sm;  // shared by the resident blocks
  bool has_bf16_mma;          // mma.sync m16n8k16 bf16
  bool has_wgmma;
  bool has_fp4_mma;  // mma.sync kind::mxf4nvf4 with block scales
  bool has_tcgen05;
  bool has_bulk_copy;  // cp.async.bulk and mbarrier transactions
  bool has_setmaxnreg;
  bool has_pdl;       // griddepcontrol: programmatic dependent launch
  bool has_e2m1_cvt;  // cvt to e2m1x2

  constexpr bool operator==(const ArchFacts&) const = default;
};

// Flags of instructions that exist only with an architecture suffix (sm_90a; sm_120f or sm_120a) describe
// that target: the build uses no other.
// clang-format off
inline constexpr ArchFacts kSm80{
    .name = "sm80", .cc_major = 8, .cc_minor = 0,
    .smem_bytes_per_block = 166'912, .smem_bytes_per_sm = 167'936,
    .smem_reserved_bytes_per_block = 1'024, .smem_allocation_unit_bytes = 128,
    .registers_per_sm = 65'536, .register_allocation_unit = kRegisterAllocationUnit,
    .registers_per_thread_max = kRegistersPerThreadMax,
    .threads_per_block_max = 1'024, .threads_per_sm = 2'048, .warps_per_sm = 64, .blocks_per_sm_max = 32,
    .named_barriers = 16, .named_barriers_per_sm = 64,
    .has_bf16_mma = true, .has_wgmma = false, .has_fp4_mma = false, .has_tcgen05 = false,
    .has_bulk_copy = false, .has_setmaxnreg = false, .has_pdl = false, .has_e2m1_cvt = false};

inline constexpr ArchFacts kSm89{
    .name = "sm89", .cc_major = 8, .cc_minor = 9,
    .smem_bytes_per_block = 101'376, .smem_bytes_per_sm = 102'400,
    .smem_reserved_bytes_per_block = 1'024, .smem_allocation_unit_bytes = 128,
    .registers_per_sm = 65'536, .register_allocation_unit = kRegisterAllocationUnit,
    .registers_per_thread_max = kRegistersPerThreadMax,
    .threads_per_block_max = 1'024, .threads_per_sm = 1'536, .warps_per_sm = 48, .blocks_per_sm_max = 24,
    .named_barriers = 16, .named_barriers_per_sm = 24,
    .has_bf16_mma = true, .has_wgmma = false, .has_fp4_mma = false, .has_tcgen05 = false,
    .has_bulk_copy = false, .has_setmaxnreg = false, .has_pdl = false, .has_e2m1_cvt = false};

inline constexpr ArchFacts kSm90{
    .name = "sm90", .cc_major = 9, .cc_minor = 0,
    .smem_bytes_per_block = 232'448, .smem_bytes_per_sm = 233'472,
    .smem_reserved_bytes_per_block = 1'024, .smem_allocation_unit_bytes = 128,
    .registers_per_sm = 65'536, .register_allocation_unit = kRegisterAllocationUnit,
    .registers_per_thread_max = kRegistersPerThreadMax,
    .threads_per_block_max = 1'024, .threads_per_sm = 2'048, .warps_per_sm = 64, .blocks_per_sm_max = 32,
    .named_barriers = 16, .named_barriers_per_sm = 64,
    .has_bf16_mma = true, .has_wgmma = true, .has_fp4_mma = false, .has_tcgen05 = false,
    .has_bulk_copy = true, .has_setmaxnreg = true, .has_pdl = true, .has_e2m1_cvt = false};

// FP4 multiplication exists on sm100 and sm103 through tcgen05 alone; ptxas refuses the mma.sync form there.
inline constexpr ArchFacts kSm100{
    .name = "sm100", .cc_major = 10, .cc_minor = 0,
    .smem_bytes_per_block = 232'448, .smem_bytes_per_sm = 233'472,
    .smem_reserved_bytes_per_block = 1'024, .smem_allocation_unit_bytes = 128,
    .registers_per_sm = 65'536, .register_allocation_unit = kRegisterAllocationUnit,
    .registers_per_thread_max = kRegistersPerThreadMax,
    .threads_per_block_max = 1'024, .threads_per_sm = 2'048, .warps_per_sm = 64, .blocks_per_sm_max = 32,
    .named_barriers = 16, .named_barriers_per_sm = 64,
    .has_bf16_mma = true, .has_wgmma = false, .has_fp4_mma = false, .has_tcgen05 = true,
    .has_bulk_copy = true, .has_setmaxnreg = true, .has_pdl = true, .has_e2m1_cvt = true};

inline constexpr ArchFacts kSm103{
    .name = "sm103", .cc_major = 10, .cc_minor = 3,
    .smem_bytes_per_block = 232'448, .smem_bytes_per_sm = 233'472,
    .smem_reserved_bytes_per_block = 1'024, .smem_allocation_unit_bytes = 128,
    .registers_per_sm = 65'536, .register_allocation_unit = kRegisterAllocationUnit,
    .registers_per_thread_max = kRegistersPerThreadMax,
    .threads_per_block_max = 1'024, .threads_per_sm = 2'048, .warps_per_sm = 64, .blocks_per_sm_max = 32,
    .named_barriers = 16, .named_barriers_per_sm = 64,
    .has_bf16_mma = true, .has_wgmma = false, .has_fp4_mma = false, .has_tcgen05 = true,
    .has_bulk_copy = true, .has_setmaxnreg = true, .has_pdl = true, .has_e2m1_cvt = true};

inline constexpr ArchFacts kSm120{
    .name = "sm120", .cc_major = 12, .cc_minor = 0,
    .smem_bytes_per_block = 101'376, .smem_bytes_per_sm = 102'400,
    .smem_reserved_bytes_per_block = 1'024, .smem_allocation_unit_bytes = 128,
    .registers_per_sm = 65'536, .register_allocation_unit = kRegisterAllocationUnit,
    .registers_per_thread_max = kRegistersPerThreadMax,
    .threads_per_block_max = 1'024, .threads_per_sm = 1'536, .warps_per_sm = 48, .blocks_per_sm_max = 24,
    .named_barriers = 16, .named_barriers_per_sm = 24,
    .has_bf16_mma = true, .has_wgmma = false, .has_fp4_mma = true, .has_tcgen05 = false,
    .has_bulk_copy = true, .has_setmaxnreg = true, .has_pdl = true, .has_e2m1_cvt = true};

inline constexpr ArchFacts kSm121{
    .name = "sm121", .cc_major = 12, .cc_minor = 1,
    .smem_bytes_per_block = 101'376, .smem_bytes_per_sm = 102'400,
    .smem_reserved_bytes_per_block = 1'024, .smem_allocation_unit_bytes = 128,
    .registers_per_sm = 65'536, .register_allocation_unit = kRegisterAllocationUnit,
    .registers_per_thread_max = kRegistersPerThreadMax,
    .threads_per_block_max = 1'024, .threads_per_sm = 1'536, .warps_per_sm = 48, .blocks_per_sm_max = 24,
    .named_barriers = 16, .named_barriers_per_sm = 24,
    .has_bf16_mma = true, .has_wgmma = false, .has_fp4_mma = true, .has_tcgen05 = false,
    .has_bulk_copy = true, .has_setmaxnreg = true, .has_pdl = true, .has_e2m1_cvt = true};
// clang-format on

inline constexpr std::array<const ArchFacts*, 7> kArchs{&kSm80,  &kSm89,  &kSm90, &kSm100,
                                                        &kSm103, &kSm120, &kSm121};

// A row of the table as a type, for kernels and their static_asserts.
template <const ArchFacts& Facts>
struct ArchType {
  static constexpr const ArchFacts& facts = Facts;
  static constexpr std::string_view name = Facts.name;
  static constexpr int cc_major = Facts.cc_major;
  static constexpr int cc_minor = Facts.cc_minor;
  static constexpr int smem_bytes_per_block = Facts.smem_bytes_per_block;
  static constexpr int smem_bytes_per_sm = Facts.smem_bytes_per_sm;
  static constexpr int smem_reserved_bytes_per_block = Facts.smem_reserved_bytes_per_block;
  static constexpr int smem_allocation_unit_bytes = Facts.smem_allocation_unit_bytes;
  static constexpr int registers_per_sm = Facts.registers_per_sm;
  static constexpr int register_allocation_unit = Facts.register_allocation_unit;
  static constexpr int registers_per_thread_max = Facts.registers_per_thread_max;
  static constexpr int threads_per_block_max = Facts.threads_per_block_max;
  static constexpr int threads_per_sm = Facts.threads_per_sm;
  static constexpr int warps_per_sm = Facts.warps_per_sm;
  static constexpr int blocks_per_sm_max = Facts.blocks_per_sm_max;
  static constexpr int named_barriers = Facts.named_barriers;
  static constexpr int named_barriers_per_sm = Facts.named_barriers_per_sm;
  static constexpr bool has_bf16_mma = Facts.has_bf16_mma;
  static constexpr bool has_wgmma = Facts.has_wgmma;
  static constexpr bool has_fp4_mma = Facts.has_fp4_mma;
  static constexpr bool has_tcgen05 = Facts.has_tcgen05;
  static constexpr bool has_bulk_copy = Facts.has_bulk_copy;
  static constexpr bool has_setmaxnreg = Facts.has_setmaxnreg;
  static constexpr bool has_pdl = Facts.has_pdl;
  static constexpr bool has_e2m1_cvt = Facts.has_e2m1_cvt;

  // Relations that hold on every architecture listed; a mistyped row does not compile.
  static_assert(smem_bytes_per_block + smem_reserved_bytes_per_block == smem_bytes_per_sm,
                "one block may use all of an SM's shared memory but the reserve");
  static_assert(warps_per_sm * kThreadsPerWarp == threads_per_sm);
  static_assert(register_allocation_unit == kRegisterAllocationUnit, "plan/budget.h counts in this unit");
  static_assert(registers_per_sm % (kRegisterPartitions * kRegisterAllocationUnit) == 0);
};

// Structs, not aliases: their short names are what compilers and profilers print.
struct Sm80 : ArchType<kSm80> {};
struct Sm89 : ArchType<kSm89> {};
struct Sm90 : ArchType<kSm90> {};
struct Sm100 : ArchType<kSm100> {};
struct Sm103 : ArchType<kSm103> {};
struct Sm120 : ArchType<kSm120> {};
struct Sm121 : ArchType<kSm121> {};

// The architecture a user names: sm120, SM120, sm_120, sm_120f, sm_120a, 120, 12.0. Null when it is not in
// the table.
const ArchFacts* find_arch(std::string_view text);

// "sm80, sm89, ...": for the message that refuses an unknown name.
std::string arch_names();

// What cudaDeviceProp says of the device at hand, copied by the backend so that this room needs no CUDA
// header.
struct DeviceReport {
  std::string name;                   // name
  int cc_major;                       // major
  int cc_minor;                       // minor
  int sm_count;                       // multiProcessorCount: a fact of the product, not of the architecture
  int smem_bytes_per_block;           // sharedMemPerBlockOptin
  int smem_bytes_per_sm;              // sharedMemPerMultiprocessor
  int smem_reserved_bytes_per_block;  // reservedSharedMemPerBlock
  int registers_per_sm;               // regsPerMultiprocessor
  int threads_per_sm;                 // maxThreadsPerMultiProcessor
  int blocks_per_sm_max;              // maxBlocksPerMultiProcessor
};

// One sentence per fact on which the table and the device disagree, both numbers in it. Empty when they
// agree.
std::vector<std::string> compare_with_device(const ArchFacts& facts, const DeviceReport& device);

// Refuses (unsupported_device, every mismatch listed) a device whose numbers are not those the kernels were
// built for.
void require_device(const ArchFacts& facts, const DeviceReport& device);

}  // namespace fourfold::plan
