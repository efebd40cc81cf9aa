#include "plan/kernel_floor.h"

#include <gtest/gtest.h>

#include "plan/kernel_time.h"
#include "plan/record_size.h"

namespace fourfold::plan {
namespace {

// 64 tokens through 1,000 records of an expert's matrix.
KernelWork gemm(const char* row, double record_bytes) {
  KernelWork work;
  work.kernel = "moe_gemm";
  work.row = row;
  work.tile_tokens = 64;
  work.visits = 1000;
  work.visit_tokens = 64'000;
  work.weight_bytes = 1000 * record_bytes;
  return work;
}

const ChipRange& workstation() {
  static const ChipRange chip = *chip_range(*find_product("rtx-pro-6000"));
  return chip;
}

// By hand: 1,792 GB/s; 2 x 64,000 x 2,048 operations at 1,024 (bf16) or 4,096 (FP4) a clock and SM, 188 SMs
// at 2.617 GHz, which is 503.8 and 2,015 TFLOPS as published.
TEST(KernelFloor, IsThePublishedRatesAndNothingElse) {
  const KernelFloor bf16 = kernel_floor(gemm("moe_gemm 128x64x128 w16a16-mma bf16", 4096), workstation());
  EXPECT_NEAR(bf16.memory_us, 4.096e6 / 1.792e6, 1e-9);
  EXPECT_NEAR(bf16.tensor_us, 2 * 64'000 * 2'048 / 503.8e6, 1e-3 * bf16.tensor_us);
  EXPECT_EQ(bf16.us(), bf16.memory_us);
  const KernelFloor fp4 = kernel_floor(gemm("moe_gemm 128x64x128 w4a4 nvfp4", 1152), workstation());
  EXPECT_NEAR(fp4.tensor_us, bf16.tensor_us / 4, 1e-9);
  EXPECT_NEAR(fp4.memory_us, 1.152e6 / 1.792e6, 1e-9);
}

TEST(KernelFloor, CountsEveryByteAndEveryProduct) {
  KernelWork work = gemm("moe_gemm 128x64x128 w4a16-mma nvfp4", 1152);
  const KernelFloor before = kernel_floor(work, workstation());
  work.other_bytes = 1.792e6, work.row_bytes = 2 * 1.792e6;
  EXPECT_NEAR(kernel_floor(work, workstation()).memory_us, before.memory_us + 3, 1e-9);
  work.flops = 2.0 * 64'000 * kRecordRows * kRecordColumns;
  EXPECT_NEAR(kernel_floor(work, workstation()).tensor_us, 2 * before.tensor_us, 1e-9);
}

// Emulated FP4 has no rate of its own; FP8 has twice bf16's.
TEST(KernelFloor, HasTheRateOfTheChip) {
  const ChipRange hopper = *chip_range(*find_product("h200"));
  const double bf16 = kernel_floor(gemm("moe_gemm 256x64x128 w4a16-wgmma nvfp4", 1152), hopper).tensor_us;
  EXPECT_EQ(kernel_floor(gemm("moe_gemm 128x64x128 w4a4 nvfp4", 1152), hopper).tensor_us, bf16);
  EXPECT_EQ(kernel_floor(gemm("moe_gemm 128x64x128 w8a8-wgmma fp8", 2048), hopper).tensor_us, bf16 / 2);
}

// What is predicted of the chip at its best is never below it.
TEST(KernelFloor, IsBelowThePredictedTime) {
  for (const char* row : {"moe_gemm 128x64x128 w4a4 nvfp4", "moe_gemm 128x64x128 w4a16-mma nvfp4"})
    EXPECT_LT(kernel_floor(gemm(row, 1152), workstation()).us(),
              kernel_us(gemm(row, 1152), workstation().fast))
        << row;
}

}  // namespace
}  // namespace fourfold::plan
