// The GPU's sampling kernels (on the simulator) choose the token that this room chooses from the same logits.
// Both take weights from base/token_weights.h and round every score once, so there is nothing to be lenient
// about: every token is compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "kernels/sampling/reference.h"
#include "sample/draw.h"
#include "sample/sampler.h"
#include "tests/kernels/sampling/choices.h"

namespace fourfold::sample {
namespace {

struct Example {
  Params params;
  std::vector<float> logits;
  std::int64_t position = 0;  // of the token to be chosen
  std::vector<TokenId> prompt, answer, drafts;
};

std::vector<float> random_logits(Random& random, std::size_t count) {
  std::vector<float> logits(count);
  const std::uint64_t kind = random.below(5);
  const double width = kind == 0 ? 8 : kind == 4 ? 0.05 : 3;
  for (float& logit : logits) {
    logit = static_cast<float>(width * random.normal());
    if (kind == 1) logit = std::round(logit);  // many equals, zeros of both signs
    if (kind == 2 && random.below(50) == 0) logit += 12;
    if (kind == 3) logit = 0;
  }
  return logits;
}

template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[random.below(values.size())];
}

Example random_example(Random& random, std::size_t vocabulary) {
  Example out;
  Params& params = out.params;
  params.temperature = one_of(random, {0.0, 0.3, 0.6, 1.0, 1.0, 1.7, 1e-3, 100.0});
  params.top_k =
      one_of<std::int64_t>(random, {0, 0, 0, 1, 2, 20, 50, 64, 79, 200, 1024, 1500, 4999, 100'000});
  params.top_p = one_of(random, {1.0, 1.0, 0.999, 0.95, 0.8, 0.5, 0.01, 1e-12});
  params.min_p = one_of(random, {0.0, 0.0, 0.05, 1e-4, 0.3, 1.0});
  params.seed = random.bits();
  out.position = static_cast<std::int64_t>(random.below(262'144));
  out.logits = random_logits(random, vocabulary);
  const auto token = [&] { return static_cast<TokenId>(random.below(vocabulary)); };
  if (random.below(2) == 0) return out;
  params.repetition_penalty = one_of(random, {1.0, 1.1, 1.3, 0.7});
  params.presence_penalty = one_of(random, {0.0, 0.5, 1.5, -1.0});
  params.frequency_penalty = one_of(random, {0.0, 0.1, 2.0, -0.3});
  for (std::uint64_t i = random.below(700); i > 0; --i) out.prompt.push_back(token());
  for (std::uint64_t i = random.below(300); i > 0; --i) out.answer.push_back(token() / 3);
  for (std::uint64_t i = random.below(5); i > 0; --i)
    out.drafts.push_back(random.below(3) == 0 && !out.answer.empty() ? out.answer.back() : token());
  if (out.drafts.size() == 4) out.drafts[2] = out.drafts[0];
  for (std::uint64_t i = random.below(40); i > 0; --i) {
    const TokenId id = token();
    const auto same = [&](const LogitBias& entry) { return entry.id == id; };
    if (std::none_of(params.logit_bias.begin(), params.logit_bias.end(), same))
      params.logit_bias.push_back({id, random.uniform(-20, 5)});
  }
  return out;
}

std::vector<sampling::Seen> history_of(const Example& example) {
  std::vector<sampling::Seen> seen;
  const auto entry = [&](TokenId token) -> sampling::Seen& {
    for (sampling::Seen& known : seen)
      if (known.token == token) return known;
    seen.push_back({token, -1, 0});
    return seen.back();
  };
  for (const LogitBias& bias : example.params.logit_bias) entry(bias.id).bias = bias.bias;
  for (const TokenId token : example.prompt) entry(token).count = 0;
  for (const TokenId token : example.answer) entry(token).count = std::max(entry(token).count, 0) + 1;
  return seen;
}

// The examples follow each other as rows of one step, each with the rows of its drafts before it.
sampling::Choices choices_of(const std::vector<Example>& examples, int tokens) {
  sampling::Choices out;
  out.tokens = tokens;
  for (const Example& example : examples) {
    const Params& params = example.params;
    for (std::size_t i = 0; i + 1 < example.drafts.size(); ++i) {
      out.logits.emplace_back();  // rows of which nobody wants logits here
      out.sampling.push_back(sampling::plain_row(0));
      out.positions.push_back(0);
      out.step_tokens.push_back(example.drafts[i]);
    }
    out.logits.push_back(example.logits);
    sampling::SampleRow row = sampling::plain_row(params.temperature);
    row.seed = params.seed;
    row.top_k = static_cast<std::int32_t>(params.top_k);
    row.top_p = params.top_p;
    row.min_p = params.min_p;
    row.repetition_penalty = params.repetition_penalty;
    row.presence_penalty = params.presence_penalty;
    row.frequency_penalty = params.frequency_penalty;
    row.draft_count = static_cast<std::int32_t>(example.drafts.size());
    if (params.penalises() || !params.logit_bias.empty()) {
      row.history = static_cast<std::int32_t>(out.histories.size());
      out.histories.push_back(history_of(example));
    }
    out.sampling.push_back(row);
    out.positions.push_back(static_cast<std::int32_t>(example.position - 1));
    out.step_tokens.push_back(example.drafts.empty() ? 0 : example.drafts.back());
  }
  return out;
}

struct Expected {
  TokenId token = 0;
  float score = 0;
};

Expected expected_of(const Example& example, int tokens) {
  History history;
  history.note_prompt(example.prompt);
  for (const TokenId token : example.answer) history.note(token);
  for (const TokenId token : example.drafts) history.note(token);
  std::vector<float> scores;
  score_tokens(std::span(example.logits).first(static_cast<std::size_t>(tokens)), example.params, history,
               scores);
  const double u = uniform(example.params.seed, example.position, Purpose::token);
  const TokenId token = make_distribution(scores, example.params).draw(u);
  return {token, scores[static_cast<std::size_t>(token)]};
}

void compare(std::size_t vocabulary, int tokens, int rounds, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << vocabulary << " logits, " << tokens << " tokens, seed " << seed);
  Random random(seed);
  for (int round = 0; round < rounds; ++round) {
    std::vector<Example> examples;
    for (int i = 0; i < 16; ++i) examples.push_back(random_example(random, vocabulary));
    sampling::Choices choices = choices_of(examples, tokens);
    choices.seed = static_cast<std::uint64_t>(round);
    const sampling::Chosen chosen = sampling::ChoiceRun(choices).sample();
    std::size_t at = 0;
    for (const Example& example : examples) {
      while (choices.logits[at].empty()) EXPECT_EQ(chosen.tokens[at++], -7);
      const Expected expected = expected_of(example, tokens);
      const Params& params = example.params;
      ASSERT_EQ(chosen.tokens[at], expected.token)
          << "round " << round << " temperature " << params.temperature << " top_k " << params.top_k
          << " top_p " << params.top_p << " min_p " << params.min_p << " penalties "
          << params.repetition_penalty << " " << params.presence_penalty << " " << params.frequency_penalty;
      ASSERT_EQ(chosen.scores[at], expected.score);
      ASSERT_EQ(chosen.faults[at], 0u);
      ++at;
    }
  }
}

TEST(DeviceSampling, ChoosesTheSameTokens) {
  compare(320, 320, 4, 1);
  compare(1000, 1000, 4, 2);
  compare(1000, 997, 2, 3);  // a padded vocabulary
  compare(5003, 5003, 4, 4);
}

// Thousands of rows against the scalar meaning that the kernels are proved by (kernels/sampling/reference.h).
TEST(DeviceSampling, TheKernelsReferenceChoosesTheSameTokens) {
  Random random(6);
  for (int round = 0; round < 4000; ++round) {
    const std::size_t vocabulary = one_of<std::size_t>(random, {3, 64, 320, 1000});
    const Example example = random_example(random, vocabulary);
    const auto tokens = static_cast<int>(vocabulary);
    const sampling::Choices choices = choices_of({example}, tokens);
    std::vector<float> scores = example.logits;
    if (!choices.histories.empty())
      sampling::score_reference(scores, tokens, choices.sampling.back(), choices.histories.front(),
                                example.drafts);
    const int chosen =
        sampling::chosen_reference<device::SimCta>(scores, tokens, choices.sampling.back(), example.position);
    ASSERT_EQ(chosen, expected_of(example, tokens).token) << "round " << round;
  }
}

TEST(DeviceSampling, ChoosesTheSameTokensOfALargeVocabulary) { compare(40'000, 39'871, 1, 5); }

// Where the answer is known to the last token although nothing but rounding decides it.
TEST(DeviceSampling, FlatRowsHaveTheSameNucleus) {
  for (const std::size_t vocabulary : {500u, 3000u, 5000u, 9000u}) {  // ranked, and searched
    std::vector<Example> examples;
    for (int i = 0; i < 8; ++i) {
      Example example;
      for (std::size_t id = 0; id < vocabulary; ++id) example.logits.push_back(id % 3 == 0 ? 0.0f : -0.0f);
      example.params.top_p = 0.9;
      if (i >= 6) example.params.top_k = static_cast<std::int64_t>(vocabulary / 2);
      example.params.seed = static_cast<std::uint64_t>(i);
      examples.push_back(example);
    }
    const sampling::Chosen chosen =
        sampling::ChoiceRun(choices_of(examples, static_cast<int>(vocabulary))).sample();
    for (std::size_t i = 0; i < examples.size(); ++i)
      EXPECT_EQ(chosen.tokens[i], expected_of(examples[i], static_cast<int>(vocabulary)).token);
  }
}

}  // namespace
}  // namespace fourfold::sample
