#include "sample/sampler.h"

#include <limits>
#include <set>

#include "base/random.h"
#include "sample/draw.h"
#include "tests/sample/support.h"

namespace fourfold::sample {
namespace {

std::vector<float> random_logits(std::uint64_t seed, int count = 40) {
  Random random(seed);
  std::vector<float> logits;
  for (int i = 0; i < count; ++i) logits.push_back(static_cast<float>(2 * random.normal()));
  return logits;
}

Params seeded(std::uint64_t seed) {
  Params params;
  params.seed = seed;
  return params;
}

TEST(Draw, NumbersDependOnSeedPositionAndPurpose) {
  std::set<double> seen;
  for (const std::uint64_t seed : {0, 1, 2})
    for (const std::int64_t position : {0, 1, 63, 64, 262143})
      for (const Purpose purpose :
           {Purpose::token, Purpose::draft, Purpose::acceptance, Purpose::replacement}) {
        const double u = uniform(seed, position, purpose);
        EXPECT_EQ(u, uniform(seed, position, purpose));
        EXPECT_TRUE(u >= 0 && u < 1);
        seen.insert(u);
      }
  EXPECT_EQ(seen.size(), 3u * 5u * 4u);
}

TEST(Sampler, TheSameSeedAndPositionGiveTheSameToken) {
  const std::vector<float> logits = random_logits(1);
  std::set<TokenId> tokens;
  for (std::int64_t position = 0; position < 200; ++position) {
    const TokenId token = Sampler(seeded(7), 40, 40).sample(logits, position).token;
    EXPECT_EQ(Sampler(seeded(7), 40, 40).sample(logits, position).token, token);
    tokens.insert(token);
  }
  EXPECT_GT(tokens.size(), 5u);
  int different = 0;
  for (std::int64_t position = 0; position < 200; ++position)
    different += Sampler(seeded(7), 40, 40).sample(logits, position).token !=
                 Sampler(seeded(8), 40, 40).sample(logits, position).token;
  EXPECT_GT(different, 50);
}

TEST(Sampler, TemperatureZeroIsTheBestToken) {
  Params params = seeded(3);
  params.temperature = 0;
  Sampler sampler(params, 4, 4);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 4, 4, 0}, 10).token, 1);
}

TEST(Sampler, NothingBeyondTheTokenLimitIsChosen) {
  Params params = seeded(3);
  params.temperature = 0;
  EXPECT_EQ(Sampler(params, 4, 2).sample(std::vector<float>{1, 4, 9, 9}, 0).token, 1);
  // What lies beyond may be anything: padding rows of a head are not always numbers.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Sampler(params, 4, 2).sample(std::vector<float>{1, 4, nan, nan}, 0).token, 1);
  expect_refusal({"token limit 5", "4"}, [&] { Sampler(params, 4, 5); });
}

TEST(Sampler, KnowsWhetherAnyTokenIsAllowed) {
  const std::vector<std::uint64_t> low{0, 1}, high{0, 8}, none{0, 0};
  const Sampler of_64({}, 128, 64), of_67({}, 128, 67), of_128({}, 128, 128);
  EXPECT_FALSE(of_64.allows_any(low));
  EXPECT_TRUE(of_67.allows_any(low));
  EXPECT_FALSE(of_67.allows_any(high));
  EXPECT_TRUE(of_128.allows_any(high));
  EXPECT_FALSE(of_128.allows_any(none));
}

TEST(Sampler, PenaltiesFollowTheAnswer) {
  Params params = seeded(3);
  params.temperature = 0;
  params.presence_penalty = 2;
  Sampler sampler(params, 3, 3);
  const std::vector<float> logits{2, 1.5, 1};
  EXPECT_EQ(sampler.sample(logits, 0).token, 0);
  EXPECT_EQ(sampler.sample(logits, 1).token, 1);
  EXPECT_EQ(sampler.sample(logits, 2).token, 2);
}

// Whoever chooses elsewhere needs the history as it is, and a token chosen there is noted as one chosen here.
TEST(Sampler, TellsItsHistory) {
  Params params = seeded(3);
  params.logit_bias = {{7, 2}, {1, -1}};
  Sampler biased(params, 9, 9);
  biased.note_prompt(std::vector<TokenId>{1, 2});
  ASSERT_EQ(biased.seen().size(), 2u) << "without penalties only biases matter";
  params.presence_penalty = 1;
  Sampler sampler(params, 9, 9);
  sampler.note_prompt(std::vector<TokenId>{1, 2});
  const Draft draft{2, std::nullopt};
  EXPECT_TRUE(sampler.note_chosen(2, &draft).draft_accepted);
  EXPECT_FALSE(sampler.note_chosen(5, &draft).draft_accepted);
  const std::vector<Seen> seen = sampler.seen();
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_LE(std::ssize(seen), sampler.seen_count());
  const TokenId tokens[] = {1, 2, 5, 7};
  const std::int64_t counts[] = {0, 1, 1, -1};
  const double biases[] = {-1, 0, 0, 2};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(seen[i].token, tokens[i]);
    EXPECT_EQ(seen[i].count, counts[i]) << tokens[i];
    EXPECT_EQ(seen[i].bias, biases[i]) << tokens[i];
  }
}

TEST(Sampler, LogprobsComeWhenAsked) {
  EXPECT_FALSE(Sampler(seeded(1), 40, 40).sample(random_logits(2), 0).logprobs.has_value());
  Params params = seeded(1);
  params.logprob_count = 2;
  const Sampled sampled = Sampler(params, 40, 40).sample(random_logits(2), 0);
  ASSERT_TRUE(sampled.logprobs.has_value());
  EXPECT_EQ(sampled.logprobs->chosen.id, sampled.token);
  EXPECT_EQ(sampled.logprobs->best.size(), 2u);
}

TEST(Sampler, BrokenLogitsAreAnErrorAndNotAToken) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Sampler sampler(seeded(1), 3, 3);
  expect_refusal(
      {"token 1", "NaN"},
      [&] {
        sampler.sample(std::vector<float>{0, nan, 0}, 0);
      },
      Code::internal);
  Params greedy;
  greedy.temperature = 0;
  Sampler best(greedy, 3, 3);
  expect_refusal(
      {"token 1"},
      [&] {
        best.sample(std::vector<float>{0, nan, 0}, 0);
      },
      Code::internal);
}

// A whole step of drafting and verifying, many times at its own position, against the target's softmax.
TEST(Sampler, DraftedTokensAreDistributedAsTheTarget) {
  const std::vector<float> target = random_logits(5, 12);
  const std::vector<float> drafting = random_logits(6, 12);
  const std::vector<double> exact = softmax({target.begin(), target.end()});
  for (const bool draw : {false, true}) {
    Sampler drafter(seeded(21), 12, 12);
    std::vector<std::int64_t> counts(12);
    std::int64_t accepted = 0;
    for (int i = 0; i < kDraws; ++i) {
      const Draft draft = drafter.draft(drafting, i, draw);
      EXPECT_EQ(draft.drawn_from.has_value(), draw);
      const Sampled sampled = Sampler(seeded(21), 12, 12).sample(target, i, &draft);
      ++counts[sampled.token];
      accepted += sampled.draft_accepted;
    }
    const ChiSquare result = chi_square(counts, exact);
    EXPECT_TRUE(result.fits()) << result.value << " with " << result.degrees << " degrees";
    EXPECT_GT(accepted, 0);
    EXPECT_LT(accepted, kDraws);
  }
}

TEST(Sampler, AtTemperatureZeroADraftStandsWhenItIsTheBest) {
  Params params;
  params.temperature = 0;
  for (const bool draw : {false, true}) {
    Sampler sampler(params, 3, 3);
    const Draft draft = sampler.draft(std::vector<float>{0, 5, 1}, 4, draw);
    EXPECT_EQ(draft.token, 1);
    EXPECT_TRUE(sampler.sample(std::vector<float>{0, 2, 1}, 4, &draft).draft_accepted);
    const Sampled other = sampler.sample(std::vector<float>{3, 2, 1}, 4, &draft);
    EXPECT_FALSE(other.draft_accepted);
    EXPECT_EQ(other.token, 0);
  }
}

}  // namespace
}  // namespace fourfold::sample
