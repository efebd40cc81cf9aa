// Which blocks share an SM, by the facts of each chip.
#include "sim/sm_room.h"

#include "plan/budget.h"
#include "support.h"

namespace fourfold::sim {
namespace {

LaunchConfig on_chip(const plan::ArchFacts& chip, int threads, int shared_bytes, int registers = 0) {
  LaunchConfig config = config_of(threads, shared_bytes);
  config.shared_limit_bytes = chip.smem_bytes_per_block;
  config.registers_per_thread = registers;
  config.chip = &chip;
  config.sms = 1;
  return config;
}

int fill(SmRoom& room, std::uint32_t grid, const BlockNeeds& needs) {
  int blocks = 0;
  while (room.take(grid, needs) >= 0) ++blocks;
  return blocks;
}

TEST(SmRoom, AloneAKernelHasTheOccupancyOfItsPlan) {
  for (const plan::ArchFacts* chip : plan::kArchs)
    for (const int threads : {32, 96, 128, 288, 384, 1024})
      for (const int bytes : {0, 1'000, 16'000, 33'000, 49'152, 100'352})
        for (const int registers : {0, 40, 64, 168}) {
          if (registers * threads > 65'536) continue;
          SmRoom room(chip, 1);
          EXPECT_EQ(fill(room, 1, needs_of(on_chip(*chip, threads, bytes, registers))),
                    plan::blocks_per_sm(*chip, threads, registers, bytes))
              << chip->name << ", " << threads << " threads, " << bytes << " bytes, " << registers
              << " registers";
        }
}

TEST(SmRoom, RowsOf97KilobytesShareAnSmOfHopperAndNeverOneOfSm120) {
  const auto beside = [](const plan::ArchFacts& chip, int first_bytes, int second_bytes) {
    SmRoom room(&chip, 1);
    EXPECT_EQ(room.take(1, needs_of(on_chip(chip, 256, first_bytes))), 0);
    return room.take(2, needs_of(on_chip(chip, 256, second_bytes))) == 0;
  };
  for (const int bytes : {97 * 1024, 98 * 1024, 99 * 1024}) {
    EXPECT_TRUE(beside(plan::kSm90, bytes, bytes));
    EXPECT_FALSE(beside(plan::kSm120, bytes, bytes));
    EXPECT_FALSE(beside(plan::kSm121, bytes, bytes));
  }
  // To the byte: two reserves of 1,024 and units of 128.
  EXPECT_TRUE(beside(plan::kSm120, 97 * 1024, 1024));
  EXPECT_FALSE(beside(plan::kSm120, 97 * 1024, 1025));
  EXPECT_FALSE(beside(plan::kSm120, 97 * 1024 + 1, 1024));
  // A kernel without shared memory has its reserve, too.
  EXPECT_TRUE(beside(plan::kSm120, 98 * 1024, 0));
  EXPECT_FALSE(beside(plan::kSm120, 99 * 1024, 0));
}

TEST(SmRoom, WarpsAndRegistersAndBlocksAreSharedToo) {
  SmRoom warps(&plan::kSm120, 1);
  EXPECT_EQ(warps.take(1, needs_of(on_chip(plan::kSm120, 1024, 0))), 0);
  EXPECT_EQ(warps.take(2, needs_of(on_chip(plan::kSm120, 768, 0))), -1);  // 32 + 24 of 48 warps
  EXPECT_EQ(warps.take(2, needs_of(on_chip(plan::kSm120, 512, 0))), 0);
  SmRoom registers(&plan::kSm90, 1);
  EXPECT_EQ(registers.take(1, needs_of(on_chip(plan::kSm90, 384, 0, 128))), 0);
  EXPECT_EQ(registers.take(2, needs_of(on_chip(plan::kSm90, 256, 0, 128))), -1);
  EXPECT_EQ(registers.take(2, needs_of(on_chip(plan::kSm90, 128, 0, 128))), 0);
  SmRoom blocks(&plan::kSm120, 1);
  EXPECT_EQ(fill(blocks, 1, needs_of(on_chip(plan::kSm120, 32, 0))), 24);
  EXPECT_EQ(blocks.take(2, needs_of(on_chip(plan::kSm120, 32, 0))), -1);
  blocks.give_back(0, 1);
  EXPECT_EQ(blocks.take(2, needs_of(on_chip(plan::kSm120, 32, 0))), 0);
}

TEST(SmRoom, BlocksAreSpreadOverTheSms) {
  SmRoom room(&plan::kSm120, 3);
  const BlockNeeds needs = needs_of(on_chip(plan::kSm120, 128, 40'000));
  std::vector<int> taken;
  for (int i = 0; i < 7; ++i) taken.push_back(room.take(1, needs));
  EXPECT_EQ(taken, (std::vector<int>{0, 1, 2, 0, 1, 2, -1}));
}

}  // namespace
}  // namespace fourfold::sim
