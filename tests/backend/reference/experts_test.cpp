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
  run_experts(set, 0, Role::prefill, in, experts, weights, out);
  const auto swish = [](double x) { return x / (1 + std::exp(-x)); };
  const double first = 3 * swish(1.5) * 3;
  const double second = 2 * swish(0.75) * -1.5;
  EXPECT_NEAR(out[0], 0.25 * first + 0.75 * second, 4 * 0x1p-22);
  // A rank that has the second expert alone.
  run_experts(std::span(set).subspan(1), 1, Role::prefill, in, experts, weights, out);
  EXPECT_NEAR(out[0], 0.75 * second, 4 * 0x1p-22);
}

}  // namespace
}  // namespace fourfold::backend::reference
