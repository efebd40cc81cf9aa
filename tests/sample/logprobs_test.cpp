#include "sample/logprobs.h"

#include "tests/sample/support.h"

namespace fourfold::sample {
namespace {

TEST(Logprobs, AreTheLogOfTheSoftmax) {
  const std::vector<float> logits{1, 3, -2, 3, 0};
  const std::vector<double> exact = softmax({1, 3, -2, 3, 0});
  const Logprobs got = measure_logprobs(logits, 2, 3);
  EXPECT_EQ(got.chosen.id, 2);
  EXPECT_NEAR(got.chosen.logprob, std::log(exact[2]), 1e-12);
  ASSERT_EQ(got.best.size(), 3u);
  const TokenId order[] = {1, 3, 0};  // equals by id
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(got.best[i].id, order[i]);
    EXPECT_NEAR(got.best[i].logprob, std::log(exact[order[i]]), 1e-12);
  }
}

TEST(Logprobs, LargeLogitsDoNotOverflowAndManyAreAllThereAre) {
  const Logprobs got = measure_logprobs(std::vector<float>{1000, -1000}, 1, 20);
  EXPECT_EQ(got.chosen.logprob, -2000);
  ASSERT_EQ(got.best.size(), 2u);
  EXPECT_EQ(got.best[0].logprob, 0);
}

}  // namespace
}  // namespace fourfold::sample
