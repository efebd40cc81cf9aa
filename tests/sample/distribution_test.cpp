#include "sample/distribution.h"

#include <limits>
#include <numeric>

#include "base/random.h"
#include "sample/draw.h"
#include "tests/sample/support.h"

namespace fourfold::sample {
namespace {

std::vector<float> random_scores(std::uint64_t seed, std::size_t count, double width = 3) {
  Random random(seed);
  std::vector<float> scores(count);
  for (float& score : scores) score = static_cast<float>(width * random.normal());
  return scores;
}

// The meaning of the filters, by full sorting.
std::vector<double> exact_probabilities(const std::vector<float>& scores, const Params& params) {
  std::vector<std::size_t> ranks(scores.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  std::sort(ranks.begin(), ranks.end(), [&](std::size_t a, std::size_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < ranks.size()) ranks.resize(params.top_k);
  std::vector<double> kept;
  for (const std::size_t id : ranks) kept.push_back(scores[id]);
  std::vector<double> probabilities = softmax(kept, params.temperature);
  double sum = 0;
  std::size_t count = 0;
  while (count < ranks.size() && (params.top_p == 1 || sum < params.top_p)) sum += probabilities[count++];
  std::vector<double> out(scores.size());
  double total = 0;
  for (std::size_t i = 0; i < count; ++i)
    if (probabilities[i] >= params.min_p * probabilities[0]) total += out[ranks[i]] = probabilities[i];
  for (double& x : out) x /= total;
  return out;
}

std::vector<Params> filters() {
  std::vector<Params> all;
  for (const double temperature : {0.3, 1.0, 1.7})
    for (const std::int64_t top_k : {0, 1, 7, 100'000})
      for (const double top_p : {1.0, 0.95, 0.5, 0.01})
        for (const double min_p : {0.0, 0.05, 1.0}) {
          Params params;
          params.temperature = temperature;
          params.top_k = top_k;
          params.top_p = top_p;
          params.min_p = min_p;
          all.push_back(params);
        }
  return all;
}

TEST(Distribution, IsWhatSortingEverythingGives) {
  for (const std::size_t vocabulary : {1, 2, 50, 3000})
    for (const Params& params : filters()) {
      const std::vector<float> scores = random_scores(vocabulary, vocabulary);
      const Distribution ours = make_distribution(scores, params);
      const std::vector<double> exact = exact_probabilities(scores, params);
      const double best = *std::max_element(exact.begin(), exact.end());
      std::size_t kept = 0;
      for (std::size_t id = 0; id < vocabulary; ++id) {
        ASSERT_NEAR(ours.probability(static_cast<TokenId>(id)), exact[id], 1e-12)
            << vocabulary << " tokens, temperature " << params.temperature << " top_k " << params.top_k
            << " top_p " << params.top_p << " min_p " << params.min_p << " token " << id;
        kept += exact[id] > best * 0x1p-45;  // a smaller weight is none
      }
      EXPECT_EQ(ours.candidates().size(), kept);
    }
}

TEST(Distribution, EqualScoresAreKeptByLowerId) {
  Params params;
  params.top_k = 3;
  const Distribution all_equal = make_distribution(std::vector<float>(1000, 2), params);
  ASSERT_EQ(all_equal.candidates().size(), 3u);
  for (TokenId id = 0; id < 3; ++id) EXPECT_EQ(all_equal.candidates()[id].id, id);
  params = {};
  params.temperature = 0;
  EXPECT_EQ(make_distribution(std::vector<float>{1, 5, 5, 2}, params).draw(0.999), 1);
}

// A nucleus far beyond the first few dozen tokens.
TEST(Distribution, FlatScoresHaveALargeNucleus) {
  Params params;
  params.top_p = 0.9;
  const Distribution flat = make_distribution(std::vector<float>(5000, 0), params);
  EXPECT_EQ(flat.candidates().size(), 4500u);
  EXPECT_EQ(flat.candidates().back().id, 4499);
}

TEST(Distribution, TinyTemperaturesDoNotOverflow) {
  Params params;
  params.temperature = std::numeric_limits<double>::denorm_min();
  const Distribution sharp = make_distribution(std::vector<float>{-300, 300, 299.999F}, params);
  EXPECT_EQ(sharp.probability(1), 1);
  EXPECT_EQ(sharp.draw(0.9999999), 1);
}

TEST(Distribution, DrawWalksTheWeightsAndNeverTakesAZero) {
  const Distribution three({{2, 0}, {4, 1}, {5, 0}, {9, 3}, {11, 0}});
  EXPECT_EQ(three.draw(0), 4);
  EXPECT_EQ(three.draw(0.2499), 4);
  EXPECT_EQ(three.draw(0.25), 9);
  EXPECT_EQ(three.draw(1 - 0x1p-53), 9);
  EXPECT_EQ(three.probability(4), 0.25);
  EXPECT_EQ(three.probability(3), 0);
}

TEST(Distribution, ChiSquareOfPlainDraws) {
  const std::vector<float> scores = random_scores(3, 60, 1.5);
  int tried = 0;
  for (const Params& params : filters()) {
    const Distribution ours = make_distribution(scores, params);
    if (ours.candidates().size() < 6) continue;  // fewer are no test
    std::vector<std::int64_t> counts(scores.size());
    for (int i = 0; i < kDraws; ++i) ++counts[ours.draw(uniform(5 + tried, i, Purpose::token))];
    const ChiSquare result = chi_square(counts, exact_probabilities(scores, params));
    EXPECT_TRUE(result.fits()) << result.value << " with " << result.degrees << " degrees; critical "
                               << chi_square_critical(result.degrees);
    // The same counts against a distribution that is off by a tenth in temperature.
    Params wrong = params;
    wrong.temperature *= 1.1;
    wrong.top_p = 1;
    wrong.min_p = 0;
    EXPECT_FALSE(chi_square(counts, exact_probabilities(scores, wrong)).fits());
    ++tried;
  }
  EXPECT_GE(tried, 20);
}

TEST(Scores, BiasThenPenalties) {
  Params params;
  params.logit_bias = {{1, -3}};
  params.repetition_penalty = 2;
  History history;
  history.note(1);
  // 2 - 3 = -1, and a negative score is multiplied.
  std::vector<float> scores{9, 9, 9, 9, 9};
  score_tokens(std::vector<float>{1, 2, 3}, params, history, scores);
  EXPECT_EQ(scores, (std::vector<float>{1, -2, 3}));
}

// Passes go by blocks: a token counts wherever it stands, the first of equals, and behind the last block.
TEST(Scores, TheBestIsFoundAtEveryPlace) {
  for (const std::size_t count : {1, 31, 32, 33, 100})
    for (std::size_t best = 0; best < count; ++best) {
      std::vector<float> scores = random_scores(count, count);
      scores[best] = 100;
      scores.back() = 100;
      EXPECT_EQ(best_token(scores), static_cast<TokenId>(best)) << count;
      Params params;
      params.top_k = 3;
      const Distribution few = make_distribution(scores, params);
      EXPECT_GT(few.probability(static_cast<TokenId>(best)), 0.49) << count;
      scores[best] = std::numeric_limits<float>::quiet_NaN();
      std::vector<float> out;
      EXPECT_THROW(score_tokens(scores, {}, {}, out), Error) << count;
    }
}

// Scores by their definition, one token after another.
TEST(Scores, AreThoseOfEachTokenAlone) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    const std::vector<float> logits = random_scores(seed, 100);
    History history;
    std::vector<std::int64_t> counts(200, -1);
    for (int i = 0; i < 30; ++i) {
      const auto token = static_cast<TokenId>(random.below(120));
      const bool in_prompt = i < 15;
      if (in_prompt)
        history.note_prompt(std::vector{token});
      else
        history.note(token);
      counts[token] = std::max<std::int64_t>(counts[token], 0) + (in_prompt ? 0 : 1);
    }
    Params params;
    params.repetition_penalty = seed % 3 == 0 ? 1 : 1.3;
    params.frequency_penalty = seed % 2 == 0 ? 0 : 0.7;
    params.presence_penalty = seed % 5 == 0 ? 0 : -0.3;
    for (TokenId id = 0; id < 10 && seed % 4 != 0; ++id)
      params.logit_bias.push_back({id * 11, 0.1 * id - 0.5});
    std::vector<float> scores;
    score_tokens(logits, params, history, scores);
    for (TokenId id = 0; id < 100; ++id) {
      double expected = logits[id];
      for (const LogitBias& bias : params.logit_bias)
        if (bias.id == id) expected += bias.bias;
      if (counts[id] >= 0) {
        expected = expected > 0 ? expected / params.repetition_penalty : expected * params.repetition_penalty;
        if (counts[id] > 0)
          expected -= params.presence_penalty + params.frequency_penalty * static_cast<double>(counts[id]);
      }
      ASSERT_EQ(scores[id], static_cast<float>(expected)) << "seed " << seed << " token " << id;
    }
  }
}

TEST(Scores, NumbersThatAreNoneAreNamed) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const auto& [value, name] : {std::pair<float, std::string>{std::nanf(""), "NaN"},
                                    {infinity, "infinite"},
                                    {-infinity, "minus infinity"}})
    expect_refusal(
        {"the logit of token 2", name},
        [&, bad = value] {
          std::vector<float> scores;
          score_tokens(std::vector<float>{0, 1, bad, 2}, {}, {}, scores);
        },
        Code::internal);
}

}  // namespace
}  // namespace fourfold::sample
