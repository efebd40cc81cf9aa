#include "backend/reference/experts.h"

#include "tests/backend/support.h"

namespace fourfold::backend::reference {
namespace {

struct Choice {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
  Choice(std::vector<float> logits, std::int64_t count, bool normalize) : experts(count), weights(count) {
    top_k_experts(TopKExperts{{}, count, normalize, {}, {}}, logits, experts, weights);
  }
};

TEST(TopKExperts, BestFirstAndTiesToTheLowerIndex) {
  const Choice choice({1, 5, 2, 5, 4}, 3, true);
  EXPECT_EQ(choice.experts, (std::vector<std::int32_t>{1, 3, 4}));
  EXPECT_EQ(choice.weights[0], choice.weights[1]);
  EXPECT_NEAR(choice.weights[0] + choice.weights[1] + choice.weights[2], 1, 2 * 0x1p-24);
  EXPECT_FLOAT_EQ(choice.weights[2] / choice.weights[0], std::exp(-1.0f));
}

TEST(TopKExperts, NaNComesLast) {
  const float nan = std::nanf("");
  EXPECT_EQ(Choice({nan, 1, nan, -INFINITY, 2}, 5, true).experts, (std::vector<std::int32_t>{4, 1, 3, 0, 2}));
}

TEST(TopKExperts, WithoutRenormalisingWeightsAreOfAll) {
  const Choice choice({std::log(1.0f), std::log(2.0f), std::log(5.0f)}, 2, false);
  EXPECT_FLOAT_EQ(choice.weights[0], 5.0f / 8);
  EXPECT_FLOAT_EQ(choice.weights[1], 2.0f / 8);
}

TEST(TopKExperts, LargeLogitsDoNotOverflow) {
  const Choice choice({1e30f, -1e30f, 1e30f}, 2, true);
  EXPECT_EQ(choice.experts, (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(choice.weights, (std::vector<float>{0.5f, 0.5f}));
}

struct Sigmoids {
  std::int64_t count;
  std::int64_t group_count = 1;
  std::int64_t groups_kept = 1;
  bool normalize = true;
  double scale = 1;
};
struct SigmoidChoice {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
  SigmoidChoice(std::vector<float> logits, const std::vector<float>& bias, const Sigmoids& router)
      : experts(router.count), weights(router.count) {
    TopKExperts op{{}, router.count, router.normalize, {}, {}};
    op.score = RouterScore::sigmoid;
    op.group_count = router.group_count;
    op.groups_kept = router.groups_kept;
    op.scale = router.scale;
    top_k_experts(op, logits, experts, weights, bias);
  }
};
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

TEST(TopKExperts, TheBiasChoosesAndDoesNotWeigh) {
  const SigmoidChoice choice({2, 1, 0, -1}, {0, 0, 0, 1}, {.count = 2, .normalize = false, .scale = 2.5});
  EXPECT_EQ(choice.experts, (std::vector<std::int32_t>{3, 0}));
  EXPECT_FLOAT_EQ(choice.weights[0], static_cast<float>(2.5 * sigmoid_of(-1)));
  EXPECT_FLOAT_EQ(choice.weights[1], static_cast<float>(2.5 * sigmoid_of(2)));
  const SigmoidChoice shared({2, 1, 0, -1}, {0, 0, 0, 1}, {.count = 2, .scale = 2.5});
  EXPECT_FLOAT_EQ(shared.weights[0] + shared.weights[1], 2.5f);
  EXPECT_FLOAT_EQ(shared.weights[0] / shared.weights[1], static_cast<float>(sigmoid_of(-1) / sigmoid_of(2)));
}

// Scores that are zero in every number format share nothing, instead of dividing by zero.
TEST(TopKExperts, ASumOfZerosIsGuarded) {
  const SigmoidChoice choice({-1000, -1000, -1000}, {}, {.count = 2});
  EXPECT_EQ(choice.experts, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(choice.weights, (std::vector<float>{0, 0}));
}

// The best expert is in a group whose second is poor: two good ones rank higher. Ties go to the lower group.
TEST(TopKExperts, GroupsRankByTheirTwoBest) {
  const std::vector<float> logits{3, -9, 1, 1, 1, 1, -9, -9};
  EXPECT_EQ(SigmoidChoice(logits, {}, {.count = 2, .group_count = 4, .groups_kept = 1}).experts,
            (std::vector<std::int32_t>{2, 3}));
  EXPECT_EQ(SigmoidChoice(logits, {}, {.count = 3, .group_count = 4, .groups_kept = 2}).experts,
            (std::vector<std::int32_t>{2, 3, 4}));
  EXPECT_EQ(SigmoidChoice(logits, {}, {.count = 3, .group_count = 4, .groups_kept = 3}).experts,
            (std::vector<std::int32_t>{0, 2, 3}));
  // The bias counts in the rank: the last group is lifted over the others.
  EXPECT_EQ(SigmoidChoice(logits, {0, 0, 0, 0, 0, 0, 2, 1}, {.count = 2, .group_count = 4, .groups_kept = 1})
                .experts,
            (std::vector<std::int32_t>{6, 7}));
  const float nan = std::nanf("");
  EXPECT_EQ(
      SigmoidChoice({nan, 5, 1, 1, nan, nan}, {}, {.count = 2, .group_count = 3, .groups_kept = 1}).experts,
      (std::vector<std::int32_t>{2, 3}));
}

// Experts whose matrices are 1x1, so the sum can be written down.
TEST(RunExperts, AddsEachExpertByItsWeight) {
  std::vector<Weight> cells;
  for (const float x : {1.0f, 2.0f, 3.0f, 0.5f, -1.0f, 2.0f}) {
    cells.push_back({Rows(1, 1), InputFormat::f32, {1, 1}});
    cells.back().rows.cells = {x};
  }
  const std::vector<ExpertWeights> set{{&cells[0], &cells[1], &cells[2]}, {&cells[3], &cells[4], &cells[5]}};
  const std::vector<float> in{1.5f};
  const std::vector<std::int32_t> experts{1, 0};
  const std::vector<float> weights{0.75f, 0.25f};
  std::vector<float> out(1);
  run_experts({}, set, 0, Role::prefill, in, experts, weights, out);
  const auto swish = [](double x) { return x / (1 + std::exp(-x)); };
  const double first = 3 * swish(1.5) * 3;
  const double second = 2 * swish(0.75) * -1.5;
  EXPECT_NEAR(out[0], 0.25 * first + 0.75 * second, 4 * 0x1p-22);
  // A rank that has the second expert alone.
  run_experts({}, std::span(set).subspan(1), 1, Role::prefill, in, experts, weights, out);
  EXPECT_NEAR(out[0], 0.75 * second, 4 * 0x1p-22);
}

// 1x1 experts with biases: gate beyond the limit above, far below zero, and up beyond it on either side.
TEST(RunExperts, AddsBiasesAndClamps) {
  std::vector<Weight> cells;
  for (const float x : {1.0f, 2.0f, 3.0f}) {
    cells.push_back({Rows(1, 1), InputFormat::f32, {1, 1}});
    cells.back().rows.cells = {x};
  }
  const std::vector<float> gate_bias{0.25f}, up_bias{-0.5f}, down_bias{0.125f};
  const std::vector<ExpertWeights> set{{&cells[0], &cells[1], &cells[2], gate_bias, up_bias, down_bias}};
  const RunExperts op{{}, {}, {}, {}, {}, GluKind::clamped, 1.702, 7};
  for (const float x : {1.5f, 9.0f, -9.0f}) {
    const std::vector<float> in{x}, weights{0.75f};
    const std::vector<std::int32_t> experts{0};
    std::vector<float> out(1);
    run_experts(op, set, 0, Role::prefill, in, experts, weights, out);
    const double g = std::min(x + 0.25, 7.0);
    const double u = std::clamp(2 * x - 0.5, -7.0, 7.0);
    const double inner = g / (1 + std::exp(-1.702 * g)) * (u + 1);
    // Roundings to f32 of the inner number, of three times it, and of the sums: all below 256.
    EXPECT_NEAR(out[0], 0.75 * (3 * inner + 0.125), 8 * 0x1p-17) << x;
  }
}

}  // namespace
}  // namespace fourfold::backend::reference
