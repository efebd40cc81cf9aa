#include "plan/instruction_counts.h"

#include <gtest/gtest.h>

#include <set>

namespace fourfold::plan {
namespace {

TEST(InstructionCounts, PipesArePartOfWhatIsIssued) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const InstructionCount& count : instruction_counts()) {
    EXPECT_TRUE(seen.insert({count.row, count.arch}).second) << count.row;
    EXPECT_LT(1 + count.alu + count.fma + count.memory, count.issued + 0.02) << count.row;
    const auto has = [&](const char* path) { return count.row.find(path) != std::string_view::npos; };
    EXPECT_EQ(count.multiply_adds, has("w4a4") ? 8192 : has("w8a8") ? 4096 : 2048) << count.row;
    EXPECT_EQ(count.row.find("wgmma"), std::string_view::npos);
  }
  EXPECT_GT(seen.size(), 60u);
}

// Decoding weights costs instructions, and more tokens share them.
TEST(InstructionCounts, DecodingIsSharedByTokens) {
  const auto issued = [](const char* row) { return find_instruction_count(row, "sm120")->issued; };
  EXPECT_GT(issued("moe_gemm 128x8x256 w4a16-mma nvfp4"), 2 * issued("moe_gemm 128x32x128 w4a16-mma nvfp4"));
  EXPECT_GT(issued("moe_gemm 128x32x128 w4a16-mma nvfp4"), issued("moe_gemm 128x32x128 w16a16-mma bf16"));
  EXPECT_EQ(find_instruction_count("moe_gemm 256x128x128 w4a16-wgmma nvfp4", "sm90"), nullptr);
}

}  // namespace
}  // namespace fourfold::plan
