#include "kernels/launch/spread.h"

#include <gtest/gtest.h>

namespace fourfold::kernels {
namespace {

constexpr int kSms = 132;  // of an H200

plan::RowFacts row(const char* kernel, const char* name) {
  return plan::RowFacts(kernel, name, "sm90", "step", "bf16", "decode");
}

// The kernels of a layer of one user, in the order they are launched: every second one at most.
TEST(Spread, AStepOfOneUser) {
  const struct {
    plan::RowFacts row;
    int blocks;
    bool apart;
  } layer[] = {
      {row("dense_few", "dense_few 32x8x512 norm bf16 w4"), 132, true},
      {row("delta_decode", "delta_decode 128 f32"), 128, false},
      {row("dense_few", "dense_few 16x8x512 rows bf16 w8"), 128, false},
      {row("dense_pair", "dense_pair bf16 nvfp4 w8"), 82, false},
      {row("moe_few_gate_up", "moe_few_gate_up 32x4x512 w4a16-mma nvfp4"), 132, true},
      {row("moe_few_down", "moe_few_down 16x4x512 w4a16-mma nvfp4"), 128, false},
  };
  Spread spread;
  for (int turn = 0; turn < 2; ++turn)
    for (const auto& kernel : layer)
      EXPECT_EQ(spread.keeps_apart(kernel.row, kernel.blocks, kSms), kernel.apart) << kernel.row.row;
}

TEST(Spread, NeverTwoInARowButTheExpertsFirst) {
  Spread spread;
  const plan::RowFacts many = row("dense_many", "dense_many 32x16x512 bf16");
  EXPECT_TRUE(spread.keeps_apart(many, 132, kSms));
  EXPECT_FALSE(spread.keeps_apart(many, 132, kSms));
  EXPECT_TRUE(spread.keeps_apart(many, 60, kSms));
  EXPECT_TRUE(spread.keeps_apart(row("moe_few_stream", "moe_few_stream 32x4x512 w4a16-mma nvfp4"), 8, kSms));
}

TEST(Spread, GridsOfFewBlocksOrOfManyAreLeftAlone) {
  Spread spread;
  const plan::RowFacts many = row("dense_many", "dense_many 32x16x512 bf16");
  EXPECT_FALSE(spread.keeps_apart(many, 59, kSms));
  EXPECT_FALSE(spread.keeps_apart(many, 133, kSms));
  EXPECT_FALSE(spread.keeps_apart(row("norm_rows", "norm_rows"), 132, kSms));
}

}  // namespace
}  // namespace fourfold::kernels
