// What the kernels of a prompt have to do, by hand, and the floors that follow (docs/performance.md).
#include <gtest/gtest.h>

#include <set>

#include "cli/plan_model_command.h"
#include "plan/kernel_floor.h"
#include "tests/cli_model/support.h"

namespace fourfold::cli {
namespace {

using plan::KernelWork;

class PromptFloors : public testing::Test {
 protected:
  // Qwen3.5-35B: 30 layers of DeltaNet and 10 of attention, 256 experts of 512, eight of them a token.
  PromptFloors() {
    PlanModelOptions options;
    options.model = "35b";
    options.gpu = "rtx-pro-6000";
    Captured captured;
    const backend::StepRows prompt{backend::Pass::main, 1, kRows, backend::Role::prefill, 0};
    work_ = model_step_work(options, {&prompt, 1}, captured.console).front();
  }
  template <class Number>
  double sum(const std::string& kernel, const std::string& part, const Number& number) const {
    double all = 0;
    for (const KernelWork& work : work_)
      if (work.row.starts_with(kernel) && work.part == part) all += number(work);
    return all;
  }

  static constexpr int kRows = 2048;
  static constexpr double kHidden = 2048, kNeurons = 512, kSlots = 8.0 * kRows;
  std::vector<KernelWork> work_;
};

double record_flops(const KernelWork& work) { return 2 * work.visit_tokens * 32 * 64; }
double row_bytes(const KernelWork& work) { return work.row_bytes; }
double flops(const KernelWork& work) { return work.flops; }

TEST_F(PromptFloors, CountExpertsByHand) {
  const std::string row = "moe_gemm 128x128x256 w4a4";
  EXPECT_DOUBLE_EQ(sum(row, "gate_up", record_flops), 40 * 2 * kSlots * kHidden * 2 * kNeurons);
  EXPECT_DOUBLE_EQ(sum(row, "down", record_flops), 40 * 2 * kSlots * kHidden * kNeurons);
  // Token records of 4.5 bits a number, of each row once in and of each slot out; bf16 rows behind the
  // second.
  EXPECT_DOUBLE_EQ(sum(row, "gate_up", row_bytes), 40 * (kRows * kHidden + kSlots * kNeurons) * 4.5 / 8);
  // The norm makes them: the residual stream and what joins it in, staged rows and records out.
  const auto bytes = [](const KernelWork& work) { return work.other_bytes; };
  EXPECT_DOUBLE_EQ(sum("norm_fp4", "", bytes), 40 * kRows * kHidden * (8 + 2 + 4.5 / 8));
  EXPECT_EQ(sum("quantize_tokens", "", bytes), 0);
  EXPECT_DOUBLE_EQ(sum(row, "down", row_bytes), 40 * kSlots * (kNeurons * 4.5 / 8 + kHidden * 2));
}

TEST_F(PromptFloors, CountMixersByHand) {
  // Half of the positions lie before a row; 16 heads of 256.
  EXPECT_DOUBLE_EQ(sum("attend_prompt", "", flops), 10 * 4.0 * kRows * (kRows / 2) * 16 * 256);
  // Keys and values of two heads; queries, gates and results of sixteen.
  EXPECT_DOUBLE_EQ(sum("attend_prompt", "", row_bytes), 10 * 2.0 * 256 * kRows * (2 * 2 + 3 * 16));
  // 32 chunks of 64; 16 key heads and 32 value heads of 128. 2 * 64 * 64 * 128 is a chunk's square product.
  const double square = 2.0 * 64 * 64 * 128;
  EXPECT_DOUBLE_EQ(sum("delta_prepare", "", flops), 30 * 32 * square * (2 * 16 + 2 * 32));
  EXPECT_DOUBLE_EQ(sum("delta_scan", "", flops), 30 * 32 * 32 * (square + 3 * 2 * square));
  // src/kernels/delta/README.md: 63 MB of workspace written, answers of 17 MB.
  EXPECT_NEAR(sum("delta_prepare", "", row_bytes) / 30, 63e6 + 2.0 * kRows * 8192, 3e6);
  EXPECT_DOUBLE_EQ(sum("delta_finish", "", row_bytes), 30.0 * kRows * 4096 * (4 + 2 + 2));
}

// Every kernel of the path has a floor but the embedding, routing and what works on one row.
TEST_F(PromptFloors, MissNoKernel) {
  const plan::ChipRange chip = *plan::chip_range(*plan::find_product("rtx-pro-6000"));
  std::set<std::string> without;
  for (const KernelWork& work : work_)
    if (kernel_floor(work, chip).us() == 0) without.insert(work.row);
  EXPECT_EQ(without, (std::set<std::string>{"embed bf16", "route_choose", "route_place", "route_scan",
                                            "sampling argmax", "sampling peaks", "select_norm"}));
}

}  // namespace
}  // namespace fourfold::cli
