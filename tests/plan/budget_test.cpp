#include "plan/budget.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace fourfold::plan {
namespace {

// cuda_occupancy.h of CUDA 13.0, compute capability 12.0: the most dynamic shared memory for n blocks an SM.
TEST(Budget, SharedMemoryForSeveralBlocksOnSm120) {
  constexpr int expected_bytes[] = {101'376, 50'176, 33'024, 24'576, 19'456, 16'000};
  for (int blocks = 1; blocks <= 6; ++blocks) {
    const int budget_bytes = smem_budget_for(kSm120, blocks);
    EXPECT_EQ(budget_bytes, expected_bytes[blocks - 1]) << blocks;
    EXPECT_EQ(blocks_per_sm(kSm120, 32, 32, budget_bytes), blocks);
    EXPECT_EQ(blocks_per_sm(kSm120, 32, 32, budget_bytes + 1), blocks - 1);
  }
  EXPECT_EQ(smem_budget_for(kSm120, 0), 0);
  EXPECT_EQ(smem_budget_for(kSm120, 25), 0);
  EXPECT_EQ(smem_budget_for(kSm90, 2), 115'712);
}

TEST(Budget, RegistersForSeveralBlocksOnSm120) {
  struct Row {
    int threads;
    int registers[4];  // for one to four blocks an SM; 0 where the threads alone are too many
  };
  constexpr Row rows[] = {
      {128, {255, 255, 168, 128}}, {160, {255, 168, 128, 96}}, {256, {255, 128, 80, 64}},
      {288, {168, 96, 72, 56}},    {384, {168, 80, 56, 40}},   {512, {128, 64, 40, 0}},
  };
  for (const Row& row : rows) {
    for (int blocks = 1; blocks <= 4; ++blocks) {
      const int registers = registers_at(kSm120, row.threads, blocks);
      EXPECT_EQ(registers, row.registers[blocks - 1]) << row.threads << " threads, " << blocks << " blocks";
      if (registers == 0) continue;
      EXPECT_GE(blocks_per_sm(kSm120, row.threads, registers, 0), blocks);
      // One unit more would lose a block, unless the cap is the thread's own 255.
      if (registers < 255) {
        EXPECT_LT(blocks_per_sm(kSm120, row.threads, registers + 8, 0), blocks);
      }
    }
  }
}

TEST(Budget, OccupancyIsTheLeastOfItsLimits) {
  EXPECT_EQ(blocks_per_sm(kSm120, 128, 32, 0), 12);       // 48 warps
  EXPECT_EQ(blocks_per_sm(kSm120, 32, 16, 0), 24);        // blocks an SM
  EXPECT_EQ(blocks_per_sm(kSm120, 288, 168, 50'176), 1);  // registers, though shared memory would allow two
  EXPECT_EQ(blocks_per_sm(kSm120, 160, 168, 50'176), 2);
  EXPECT_EQ(blocks_per_sm(kSm120, 160, 169, 50'176), 1);  // 169 takes a whole further unit
  EXPECT_EQ(blocks_per_sm(kSm120, 160, 168, 50'177), 1);
  EXPECT_EQ(blocks_per_sm(kSm90, 1024, 32, 0), 2);
  EXPECT_EQ(blocks_per_sm(kSm120, 1024, 32, 0), 1);  // 1,536 threads an SM
}

TEST(Budget, NamedBarriersAreSharedByTheBlocksOfAnSm) {
  EXPECT_EQ(blocks_per_sm(kSm120, 32, 16, 0, 8), 3);
  EXPECT_EQ(blocks_per_sm(kSm120, 32, 16, 0, 16), 1);
  EXPECT_EQ(blocks_per_sm(kSm90, 32, 16, 0, 16), 4);
  EXPECT_EQ(blocks_per_sm(kSm120, 32, 16, 0, 17), 0);
}

TEST(Budget, WhatCannotStartHasNoBlocks) {
  EXPECT_EQ(blocks_per_sm(kSm120, 0, 32, 0), 0);
  EXPECT_EQ(blocks_per_sm(kSm120, 1'025, 32, 0), 0);
  EXPECT_EQ(blocks_per_sm(kSm120, 128, 256, 0), 0);
  EXPECT_EQ(blocks_per_sm(kSm120, 128, 32, 101'377), 0);
  EXPECT_EQ(blocks_per_sm(kSm120, 288, 176, 0), 0);  // nine warps are checked as twelve
  EXPECT_EQ(registers_at(kSm120, 0, 1), 0);
  EXPECT_EQ(registers_at(kSm120, 128, 0), 0);
}

TEST(Budget, WhatFitsCompiles) {
  static_assert(FitsSharedMemory<101'376, Sm120::smem_bytes_per_block>::value);
  static_assert(FitsThreads<288, Sm120::threads_per_block_max>::value);
  static_assert(FitsNamedBarriers<16, Sm120::named_barriers>::value);
  static_assert(FitsRegisters<288, 168, Sm120::registers_per_sm>::value);
  static_assert(FitsRegisters<160, 255, Sm120::registers_per_sm>::value);
  static_assert(
      FitsRegisterFile<Sm120::registers_per_sm, RoleRegisters<4, 40>, RoleRegisters<8, 232>>::value);
  static_assert(FitsRegisterFile<Sm90::registers_per_sm, RoleRegisters<4, 24>, RoleRegisters<8, 240>>::value);
  static_assert(registers_of_block(288, 168) == registers_of_block(384, 168));
}

// Two bytes of barrier per stage would fit by division; the alignment they force does not.
template <int Stages>
struct PaddedStorage {
  struct alignas(1024) Tensors {
    std::uint8_t bytes[Stages * 10'240];
  } tensors;
  std::uint64_t barriers[Stages];
};

TEST(Budget, DepthIsReadOffTheRealStorage) {
  constexpr int limit_bytes = 3 * 10'240 + 512;
  static_assert(limit_bytes / (10'240 + 8) == 3, "a division that forgets padding finds three stages");
  static_assert(sizeof(PaddedStorage<3>) == 4 * 1024 * 8 - 1024);
  EXPECT_EQ((deepest_stages<PaddedStorage, limit_bytes, 8>()), 2);
  EXPECT_EQ((deepest_stages<PaddedStorage, sizeof(PaddedStorage<3>), 8>()), 3);
  EXPECT_EQ((deepest_stages<PaddedStorage, Sm120::smem_bytes_per_block, 4>()), 4);  // the most asked for
  EXPECT_EQ((deepest_stages<PaddedStorage, 1'000, 8>()), 0);
}

}  // namespace
}  // namespace fourfold::plan
