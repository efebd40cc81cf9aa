#include "sample/logprobs.h"

#include <limits>

#include "tests/sample/support.h"

namespace fourfold::sample {
namespace {

TEST(Logprobs, AreTheLogOfTheSoftmax) {
  const std::vector<float> logits{1, 3, -2, 3, 0};
  const std::vector<double> exact = softmax({1, 3, -2, 3, 0});
  const Logprobs got = measure_logprobs(logits, 2, 3, 5);
  EXPECT_EQ(got.chosen.id, 2);
  EXPECT_NEAR(got.chosen.logprob, std::log(exact[2]), 1e-12);
  EXPECT_EQ(got.rank, 5);
  EXPECT_EQ(measure_logprobs(logits, 1, 0, 5).rank, 1);
  EXPECT_EQ(measure_logprobs(logits, 3, 0, 5).rank, 2);  // equals by id
  ASSERT_EQ(got.best.size(), 3u);
  const TokenId order[] = {1, 3, 0};  // equals by id
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(got.best[i].id, order[i]);
    EXPECT_NEAR(got.best[i].logprob, std::log(exact[order[i]]), 1e-12);
  }
}

TEST(Logprobs, LargeLogitsDoNotOverflowAndManyAreAllThereAre) {
  const Logprobs got = measure_logprobs(std::vector<float>{1000, -1000}, 1, 20, 2);
  EXPECT_EQ(got.chosen.logprob, -2000);
  ASSERT_EQ(got.best.size(), 2u);
  EXPECT_EQ(got.best[0].logprob, 0);
}

// Ids beyond the limit have no text, but their share of the probability.
TEST(Logprobs, TheWholeVocabularyCountsAndTheLimitNames) {
  const std::vector<float> logits{1, 2, 5};
  const Logprobs got = measure_logprobs(logits, 0, 3, 2);
  EXPECT_NEAR(got.chosen.logprob, std::log(softmax({1, 2, 5})[0]), 1e-12);
  EXPECT_EQ(got.rank, 3);
  ASSERT_EQ(got.best.size(), 2u);
  EXPECT_EQ(got.best[0].id, 1);
}

TEST(Logprobs, OfManyRowsAreThoseOfEachAlone) {
  constexpr std::size_t kVocab = 300'000, kRows = 9;  // enough for several threads
  std::vector<float> logits(kVocab * kRows);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 2654435761u % 1000) / 64;
  std::vector<TokenId> tokens;
  for (std::size_t row = 0; row < kRows; ++row) tokens.push_back(static_cast<TokenId>(row * 30'000));
  const std::vector<Logprobs> got = measure_rows(logits, tokens, 1, kVocab);
  ASSERT_EQ(got.size(), kRows);
  for (std::size_t row = 0; row < kRows; ++row) {
    const Logprobs alone =
        measure_logprobs(std::span(logits).subspan(row * kVocab, kVocab), tokens[row], 1, kVocab);
    EXPECT_EQ(got[row].chosen.logprob, alone.chosen.logprob);
    EXPECT_EQ(got[row].rank, alone.rank);
    EXPECT_EQ(got[row].best[0].id, alone.best[0].id);
  }
  logits[7 * kVocab + 5] = std::numeric_limits<float>::quiet_NaN();
  expect_refusal(
      {"token 5", "NaN"}, [&] { measure_rows(logits, tokens, 1, kVocab); }, Code::internal);
}

}  // namespace
}  // namespace fourfold::sample
