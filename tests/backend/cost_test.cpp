#include "backend/cost.h"

#include "tests/backend/support.h"

namespace fourfold::backend {
namespace {

TEST(Cost, CountsAMatrixOnceAndItsProductsByRow) {
  const SmallModel model;
  const StepShape shape{.sequence_count = 2, .row_count = 6, .logits_row_count = 3};
  EXPECT_EQ(cost_of(model.program, model.program.main[0], shape).weight_bytes, 6 * 16);  // rows of the table
  const Cost head = cost_of(model.program, model.program.main[3], shape);
  EXPECT_EQ(head.weight_bytes, 5 * 4 * 4);
  EXPECT_EQ(head.flops, 2 * 3 * 20);
  const Cost all = cost_of(model.program, Pass::main, shape);
  EXPECT_EQ(all.weight_bytes, 6 * 16 + 80);
  EXPECT_EQ(all.flops, head.flops);
  EXPECT_EQ(all.state_bytes, 0);
  EXPECT_EQ(cost_of(model.program, model.program.main[3], {.logits_row_count = 0}).weight_bytes, 0);
}

// Eight experts of three 5x4 matrices in f32, two chosen.
TEST(Cost, CountsTheExpertsThatAreLikelyRead) {
  SmallModel model;
  Program& p = model.program;
  p.expert_sets = {{"set", std::vector<ExpertMatrices>(8, {{0}, {0}, {0}})}};
  p.values.push_back({.name = "chosen", .columns = 2});
  const Op op = RunExperts{{0}, {3}, {3}, {0}, {{0}}};
  EXPECT_DOUBLE_EQ(cost_of(p, op, {.row_count = 1}).weight_bytes, 2 * 3 * 80);
  EXPECT_DOUBLE_EQ(cost_of(p, op, {.row_count = 2}).weight_bytes, 8 * (1 - 0.75 * 0.75) * 3 * 80);
  EXPECT_DOUBLE_EQ(cost_of(p, op, {.row_count = 5}).flops, 5 * 2 * 3 * 2 * 20);
}

// Qwen3.5-35B: 2 KiB of bf16 a position and full layer, 2 MiB of state a DeltaNet layer.
TEST(Cost, CountsCachesAndStates) {
  SmallModel model;
  Program& p = model.program;
  p.kv_caches = {{"cache", 2, 256, KvFormat::bf16}};
  p.delta_states = {{"state", 16, 32, 128, 128, 4}};
  const Op attention = Attention{{0}, {0}, 16, 1, {{0}}};
  const Cost attended = cost_of(p, attention, {.row_count = 4, .context = 1000});
  EXPECT_EQ(attended.state_bytes, 1000 * 2048);
  EXPECT_EQ(attended.flops, 4.0 * 1000 * 16 * 256 * 4);
  EXPECT_EQ(cost_of(p, WriteKv{{0}, {0}, {0}}, {.row_count = 3}).state_bytes, 3 * 2048);
  Attention windowed = std::get<Attention>(attention);
  windowed.window = 128;
  EXPECT_EQ(cost_of(p, windowed, {.row_count = 4, .context = 1000}).state_bytes, 128 * 2048);
  EXPECT_EQ(cost_of(p, windowed, {.row_count = 4, .context = 100}).state_bytes, 100 * 2048);
  p.kv_caches[0].format = KvFormat::fp8;
  EXPECT_EQ(cost_of(p, attention, {.row_count = 4, .context = 1000}).state_bytes, 1000 * 1024);
  const Op rule = DeltaRule{{0}, {0}, {0}, {0}, {0}, {0}, {{0}}};
  EXPECT_EQ(cost_of(p, rule, {.sequence_count = 3, .row_count = 64}).state_bytes, 4 * 2.0 * 1024 * 1024);
}

}  // namespace
}  // namespace fourfold::backend
