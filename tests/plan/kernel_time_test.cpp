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

// Measured alone: 176 us for 32 heads and a latent of 256, 1,767 us for 128 heads and 512
// (bench/results/mla-wgmma-h200.txt).
TEST(KernelTime, LatentPromptsRunAtTheirWidthsRate) {
  const ChipRates h200 = chip_range(*find_product("h200"))->fast;
  const auto us = [&](int heads, int latent) {
    KernelWork work;
    work.kernel = "attend_latent_prompt";
    work.latent = latent;
    work.flops = 2.0 * 2048 * 1024 * heads * (latent + 64 + latent);
    return kernel_us(work, h200);
  };
  EXPECT_NEAR(us(32, 256), 175.7, 0.01 * 175.7);
  EXPECT_NEAR(us(128, 512), 1766.9, 0.01 * 1766.9);
}

KernelWork tile(const char* row, const char* format) {
  KernelWork work;
  work.kernel = "moe_gemm";
  work.row = row;
  work.format = format;
  work.tile_tokens = 32;
  work.visits = 1e6;
  work.visit_tokens = 32e6;
  return work;
}

// Decoding takes the time of W4A16 on mma, not the tensor cores; FP4 has four times the products an
// instruction.
TEST(KernelTime, InstructionsLimitTilesOnMma) {
  const ChipRange card = *chip_range(*find_product("rtx pro 6000"));
  for (const ChipRates& chip : {card.fast, card.slow}) {
    const double us = kernel_us(tile("moe_gemm 128x32x128 w4a16-mma nvfp4", "nvfp4"), chip);
    const double flops = 2.0 * 32e6 * 32 * 64;
    EXPECT_GT(us, flops / (1e3 * chip.tensor_flops * chip.ghz * chip.sms));
    EXPECT_LT(kernel_us(tile("moe_gemm 128x32x128 w4a4 nvfp4", "nvfp4"), chip), 0.4 * us);
  }
  EXPECT_THROW(kernel_us(tile("moe_gemm 128x24x128 w4a16-mma nvfp4", "nvfp4"), card.fast), Error)
      << "not counted";
}

TEST(KernelTime, EmptyTokensAreLeftOutAndDecodingIsNot) {
  const ChipRates h200 = chip_range(*find_product("h200"))->fast;
  KernelWork work = tile("moe_gemm 128x32x128 w4a16-mma nvfp4", "nvfp4");
  const double full = kernel_us(work, h200);
  work.visit_tokens = 4e6;
  EXPECT_LT(kernel_us(work, h200), 0.75 * full);
  EXPECT_GT(kernel_us(work, h200), 0.4 * full);
}

// Every kernel that WorkMachine notes weights of: reading them takes time, whatever else the kernel does.
TEST(KernelTime, WeightsAreNeverForFree) {
  const ChipRates h200 = chip_range(*find_product("h200"))->fast;
  for (const char* kernel : {"dense_few", "dense_near", "dense_pair", "dense_table", "dense_many",
                             "dense_many_pair", "dense_many_table", "dense_tall", "moe_few_gate_up",
                             "moe_few_stream", "moe_few_down", "moe_stream", "moe_gemm"}) {
    KernelWork work = head();
    work.kernel = kernel;
    if (work.kernel == "moe_gemm") work.row = "moe_gemm 128x32x128 w4a16-wgmma nvfp4";
    EXPECT_GE(kernel_us(work, h200), work.weight_bytes / (1e3 * h200.gb_per_s)) << kernel;
  }
  // A kernel that is new, or was forgotten here.
  KernelWork unknown = head();
  unknown.kernel = "dense_unheard_of";
  EXPECT_THROW(kernel_us(unknown, h200), Error);
  unknown.weight_bytes = 0;
  EXPECT_GT(kernel_us(unknown, h200), 0);
}

// One block makes the tables while the others multiply: the longer of the two.
TEST(KernelTime, TablesBesideAMatrixTakeNoLessThanTheirOwnKernel) {
  const ChipRates h200 = chip_range(*find_product("h200"))->fast;
  for (const char* kernel : {"dense_table", "dense_many_table"}) {
    KernelWork work = head();
    work.kernel = kernel;
    work.weight_bytes = work.visits = 0;
    work.experts = 256;
    KernelWork tables;
    tables.kernel = "route_table";
    tables.experts = 256;
    EXPECT_EQ(kernel_us(work, h200), kernel_us(tables, h200)) << kernel;
  }
}

TEST(KernelTime, EveryConstantSaysWhatItIs) {
  for (const Constant& constant : kernel_constants()) {
    EXPECT_GT(constant.value, 0) << constant.name;
    EXPECT_FALSE(constant.meaning.empty()) << constant.name;
  }
}

}  // namespace
}  // namespace fourfold::plan
