// The words of the device language: what kernels, the GPU and the simulator hand to each other.
#pragma once

#include <cstdint>

namespace fourfold::device {

struct alignas(8) U32x2 {
  std::uint32_t v[2];
};
struct alignas(16) U32x4 {
  std::uint32_t v[4];
};
struct alignas(8) F32x2 {
  float v[2];
};
struct alignas(16) F32x4 {
  float v[4];
};

// A barrier in shared memory: arrivals and transaction bytes. Its bits belong to the machine.
struct alignas(8) Mbarrier {
  std::uint64_t state;
};
// What a kernel that fills the shared memory with a ring leaves for its barriers and for alignment, in bytes.
// FitsSharedMemory (plan/budget.h) has the last word.
inline constexpr int kBarrierBytes = 128 * static_cast<int>(sizeof(Mbarrier));

// Position in a ring of stages. advance() is the only place where a phase flips.
template <int Stages>
struct PipelineCursor {
  int stage = 0;
  std::uint32_t phase = 0;
  constexpr void advance() {
    if (++stage == Stages) {
      stage = 0;
      phase ^= 1u;
    }
  }
};

// Shared-memory operand of wgmma: rows of 128 bytes along K (64 bf16), eight rows to a 1,024-byte swizzle
// atom. Bits 0-13 start address / 16, 16-29 leading offset (unused with a swizzle), 32-45 stride between
// atoms / 16, 62-63 swizzle mode (1 = 128 bytes).
constexpr std::uint64_t wgmma_descriptor_bits(std::uint32_t shared_address) {
  return (static_cast<std::uint64_t>(shared_address & 0x3FFFFu) >> 4) | (std::uint64_t{1} << 16) |
         (std::uint64_t{1024 >> 4} << 32) | (std::uint64_t{1} << 62);
}
// The same of an operand whose rows of 128 bytes run along N (64 columns), eight rows of K to an atom: the
// leading offset is what lies between panels of 64 columns, a step of K is 2,048 bytes of the start address.
constexpr std::uint64_t wgmma_columns_descriptor_bits(std::uint32_t shared_address, int panel_bytes) {
  return (static_cast<std::uint64_t>(shared_address & 0x3FFFFu) >> 4) |
         (static_cast<std::uint64_t>(panel_bytes >> 4) << 16) | (std::uint64_t{1024 >> 4} << 32) |
         (std::uint64_t{1} << 62);
}

// Byte offset of 16-byte chunk `chunk` (0..7) of row `row` in a panel of 128-byte rows with the 128-byte
// swizzle.
constexpr std::uint32_t swizzled_offset(std::uint32_t row, std::uint32_t chunk) {
  return row * 128u + ((chunk ^ (row & 7u)) << 4);
}

}  // namespace fourfold::device
