#include "plan/kernel_time.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace fourfold::plan {
namespace {

KernelWork head() {
  KernelWork work;
  work.kernel = "dense_few";
  work.row = "dense_few 32x8x512 rows bf16 w4";
  work.format = "bf16";
  work.blocks = 132;
  work.tokens = 1;
  work.visits = 248'320;
  work.weight_bytes = 4096 * work.visits;
  return work;
}

// Measured alone: 231 us, 97 % of the memory's rate (docs/performance.md, "Where a step goes").
TEST(KernelTime, TheHeadRunsAtTheMemorysRate) {
  const ChipRange h200 = *chip_range(*find_product("h200"));
  EXPECT_EQ(h200.evidence, Evidence::measured);
  const double us = kernel_us(head(), h200.fast);
  EXPECT_EQ(us, kernel_us(head(), h200.slow));
  EXPECT_NEAR(us, 231, 0.05 * 231);
}

TEST(KernelTime, MoreOfAnythingTakesLonger) {
  const ChipRates h200 = chip_range(*find_product("h200"))->fast;
  const double us = kernel_us(head(), h200);
  KernelWork more = head();
  more.weight_bytes *= 2;
  EXPECT_GT(kernel_us(more, h200), 1.8 * us);
  more = head();
  more.blocks = 33;
  EXPECT_GT(kernel_us(more, h200), 1.5 * us) << "a quarter of the SMs cannot have all of the memory";
  more = head();
  more.row = "dense_few 32x8x512 norm bf16 w4";
  const double normed = kernel_us(more, h200);
  EXPECT_GT(normed, us);
  more.tokens = 8;
  EXPECT_GT(kernel_us(more, h200), normed);
}

TEST(KernelTime, TilesOnMmaAreNotGuessed) {
  KernelWork work = head();
  work.kernel = "moe_gemm";
  work.row = "moe_gemm 128x32x128 w4a16-mma nvfp4";
  EXPECT_THROW(kernel_us(work, chip_range(*find_product("h200"))->fast), Error);
}

TEST(KernelTime, EveryConstantSaysWhatItIs) {
  for (const Constant& constant : kernel_constants()) {
    EXPECT_GT(constant.value, 0) << constant.name;
    EXPECT_FALSE(constant.meaning.empty()) << constant.name;
  }
}

}  // namespace
}  // namespace fourfold::plan
