// The sampling kernels on the simulator. That they choose what the sampling room chooses is proved in
// tests/sample/device_sampling_test.cpp; here are the parts, the distribution and what must not matter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/bf16.h"
#include "base/random.h"
#include "tests/kernels/sampling/choices.h"

namespace fourfold::sampling {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(std::uint64_t seed, std::size_t count, double width = 3) {
  Random random(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = static_cast<float>(width * random.normal());
  return logits;
}

Choices choices_of(std::vector<std::vector<float>> logits, int tokens) {
  Choices choices;
  choices.tokens = tokens;
  choices.logits = std::move(logits);
  choices.sampling.assign(choices.logits.size(), plain_row(0));
  choices.positions.assign(choices.logits.size(), 0);
  choices.step_tokens.assign(choices.logits.size(), 0);
  return choices;
}

// The first of the largest, NaN left out; 0 when there is nothing else.
int first_largest(const std::vector<float>& logits, int tokens) {
  int best = -1;
  for (int i = 0; i < tokens; ++i) {
    const float x = logits[static_cast<std::size_t>(i)];
    if (!std::isnan(x) && (best < 0 || x > logits[static_cast<std::size_t>(best)])) best = i;
  }
  return std::max(best, 0);
}

TEST(Argmax, IsTheFirstOfTheLargest) {
  for (const int tokens : {1, 5, 63, 64, 65, 320, 1000, 2048, 2049, 5003}) {
    const auto size = static_cast<std::size_t>(tokens) + 3;  // the padding of the vocabulary is better
    std::vector<std::vector<float>> logits;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      logits.push_back(random_logits(seed + size, size));
      if (seed == 1)
        for (float& x : logits.back()) x = std::round(x);  // equals
      if (seed == 2)
        for (float& x : logits.back()) x = x < 0 ? -0.0f : 0.0f;  // the zeros are equal
      for (std::size_t i = size - 3; i < size; ++i) logits.back()[i] = 1e9f;
    }
    logits.emplace_back();  // no choice at this place
    Choices choices = choices_of(logits, tokens);
    choices.seed = static_cast<std::uint64_t>(tokens);
    for (const bool sampled : {false, true}) {
      ChoiceRun run(choices);
      const Chosen chosen = sampled ? run.sample() : run.greedy();
      for (std::size_t i = 0; i < 4; ++i) {
        const int best = first_largest(logits[i], tokens);
        EXPECT_EQ(chosen.tokens[i], best) << tokens << " tokens, row " << i;
        EXPECT_EQ(chosen.scores[i], logits[i][static_cast<std::size_t>(best)]);
        EXPECT_EQ(chosen.faults[i], 0u);
      }
      EXPECT_EQ(chosen.tokens[4], -7);
    }
  }
}

TEST(Argmax, NumbersThatAreNoneAreReportedAndNanIsNotChosen) {
  std::vector<std::vector<float>> logits(4, random_logits(1, 3000));
  logits[0][17] = kNan;
  logits[1].assign(3000, kNan);
  logits[2][2999] = kInfinity;
  logits[3].assign(3000, -kInfinity);
  Choices choices = choices_of(logits, 3000);
  for (SampleRow& row : choices.sampling) row = plain_row(0.8);
  for (const bool sampled : {false, true}) {
    ChoiceRun run(choices);
    const Chosen chosen = sampled ? run.sample() : run.greedy();
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_EQ(chosen.tokens[i], first_largest(logits[i], 3000)) << i;
      EXPECT_EQ(chosen.faults[i], kNotFinite) << i;
    }
  }
}

TEST(Argmax, DraftsGoWhereTheNextStepReadsThem) {
  const auto logits = random_logits(3, 400);
  Choices choices = choices_of({logits, logits, {}}, 400);
  ChoiceRun run(choices);
  run.params().draft_tokens = to_device(run.device(), std::vector<std::int32_t>(6, -1), "drafts");
  run.params().draft_places = to_device(run.device(), std::vector<std::int32_t>{4, -1, 2}, "places");
  run.greedy();
  EXPECT_EQ(to_host(run.device(), run.params().draft_tokens, 6),
            (std::vector<std::int32_t>{-1, -1, -1, -1, first_largest(logits, 400), -1}));
}

// Against e^x in long double: 2^-44 of the value and half a unit, as base/token_weights.h says.
TEST(Weights, AreExponentialsWithinTheirBound) {
  Random random(4);
  for (int i = 0; i < 200'000; ++i) {
    const auto best = static_cast<float>(random.uniform(-30, 30));
    const double temperature = std::exp(random.uniform(-3, 3));
    const auto score = static_cast<float>(best - temperature * random.uniform(0, 33));
    const Scale scale = scale_of<device::SimCta>(best, temperature);
    const std::uint64_t weight = weight_of<device::SimCta>(score, scale, 0.0);
    const long double exact = std::exp((static_cast<long double>(score) - best) / temperature);
    const long double bound = exact * 0x1p-44L + 0x1p-45L;
    ASSERT_LE(std::abs(static_cast<long double>(weight) * 0x1p-44L - exact), bound) << best << " " << score;
  }
  const Scale cold = scale_of<device::SimCta>(2.0f, std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(weight_of<device::SimCta>(2.0f, cold, 1.0), kWholeWeight);
  EXPECT_EQ(weight_of<device::SimCta>(std::nextafter(2.0f, 0.0f), cold, 0.0), 0u);
}

TEST(Weights, MultiplyHigh) {
  Random random(5);
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t a = random.bits() >> random.below(64), b = random.bits() >> random.below(64);
    __extension__ using Wide = unsigned __int128;
    ASSERT_EQ(multiply_high(a, b), static_cast<std::uint64_t>(static_cast<Wide>(a) * b >> 64));
  }
}

// A choice is the same alone and anywhere in a batch, whatever the schedule.
TEST(Choose, DoesNotDependOnTheBatch) {
  Random random(6);
  std::vector<std::vector<float>> logits;
  for (std::uint64_t i = 0; i < 6; ++i) logits.push_back(random_logits(i, 2500, i % 2 == 0 ? 3 : 0.1));
  Choices batch = choices_of(logits, 2500);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    SampleRow& row = batch.sampling[i] = plain_row(1);
    row.seed = random.bits();
    row.top_k = i % 3 == 0 ? 20 : 0;
    row.top_p = i < 4 ? 0.9 : 1;
    batch.positions[i] = static_cast<std::int32_t>(random.below(1000));
  }
  const Chosen together = ChoiceRun(batch).sample();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    Choices alone = choices_of({{}, logits[i]}, 2500);
    alone.sampling[1] = batch.sampling[i];
    alone.positions[1] = batch.positions[i];
    alone.seed = 77 + i;
    EXPECT_EQ(ChoiceRun(alone).sample().tokens[1], together.tokens[i]) << i;
  }
}

// The ways of drawing the same distribution: all tokens from the sums of groups; as a top-k that is searched;
// as a nucleus of all but nothing, ranked or searched.
TEST(Choose, EveryWayDrawsTheSameToken) {
  for (const int tokens : {300, 5003}) {
    const auto logits = random_logits(7, static_cast<std::size_t>(tokens), 1);
    constexpr int draws = 6;
    Choices choices = choices_of(std::vector<std::vector<float>>(3 * draws, logits), tokens);
    for (std::size_t i = 0; i < 3 * draws; ++i) {
      SampleRow& row = choices.sampling[i] = plain_row(1);
      row.seed = i % draws;
      row.top_k = i / draws == 1 ? tokens : 0;
      row.top_p = i / draws == 2 ? 1 - 0x1p-53 : 1;
    }
    const Chosen chosen = ChoiceRun(choices).sample();
    for (std::size_t i = draws; i < 3 * draws; ++i)
      EXPECT_EQ(chosen.tokens[i], chosen.tokens[i % draws]) << i;
  }
}

// Pearson's statistic of draws at many positions against the exact probabilities; the bound is its 1 - 1e-9
// quantile by Wilson and Hilferty (z = 6). The draws must not fit a temperature that is off by a half: among
// 1,200 that moves the statistic by N * sum (p - q)^2 / q, some 200, and the bound is near 100.
TEST(Choose, DrawsAreDistributedAsTheWeights) {
  constexpr int tokens = 40, draws = 1200;
  const auto logits = random_logits(8, tokens, 1);
  Choices choices = choices_of(std::vector<std::vector<float>>(draws, logits), tokens);
  for (std::size_t i = 0; i < draws; ++i) {
    choices.sampling[i] = plain_row(0.7);
    choices.sampling[i].seed = 99;
    choices.positions[i] = static_cast<std::int32_t>(i);
  }
  const Chosen chosen = ChoiceRun(choices).sample();
  const auto statistic = [&](double temperature) {
    std::vector<double> expected(tokens), seen(tokens);
    double total = 0;
    for (std::size_t i = 0; i < tokens; ++i) total += expected[i] = std::exp(logits[i] / temperature);
    for (const std::int32_t token : chosen.tokens) seen[static_cast<std::size_t>(token)] += 1;
    double sum = 0, rest_expected = 0, rest_seen = 0;
    int degrees = 0;
    for (std::size_t i = 0; i < tokens; ++i) {
      const double wanted = expected[i] / total * draws;
      if (wanted < 10) {  // rare tokens are one class
        rest_expected += wanted;
        rest_seen += seen[i];
        continue;
      }
      sum += (seen[i] - wanted) * (seen[i] - wanted) / wanted;
      ++degrees;
    }
    sum += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
    const double spread = 2.0 / (9.0 * degrees), cube = 1 - spread + 6 * std::sqrt(spread);
    return sum / (degrees * cube * cube * cube);
  };
  EXPECT_LT(statistic(0.7), 1);
  EXPECT_GT(statistic(0.7 * 1.5), 1);
}

struct Accepted {
  std::vector<std::int32_t> emitted, accepted, next_tokens, next_rows, next_positions, counts;
  std::vector<std::uint32_t> faults;
  std::vector<Seen> seen;
};

struct AcceptCase {
  std::vector<AcceptPlace> places;
  std::vector<std::int32_t> chosen, step_tokens, positions;
  std::vector<Seen> seen;  // [histories, limit]
  std::vector<std::int32_t> counts;
  std::int32_t limit = 1;
  std::uint64_t seed = 0;
};

Accepted run_accept(const AcceptCase& test) {
  sim::Device device;
  device.set_seed(test.seed);
  std::vector<step::RowPlace> rows;
  for (const std::int32_t position : test.positions) rows.push_back({0, position, 0, 0});
  const auto sequences = test.places.size();
  const auto words = [&](std::size_t count) {
    return to_device(device, std::vector<std::int32_t>(count, -9), "out");
  };
  AcceptParams params{};
  params.places = to_device(device, test.places, "places");
  params.chosen = to_device(device, test.chosen, "chosen");
  params.step_tokens = to_device(device, test.step_tokens, "step tokens");
  params.rows = to_device(device, rows, "rows");
  params.histories = {to_device(device, test.seen, "seen"), to_device(device, test.counts, "counts"),
                      test.limit};
  params.emitted = words(sequences * (kDraftsMost + 1));
  params.accepted = words(sequences);
  params.next_tokens = words(sequences);
  params.next_rows = words(sequences);
  params.next_positions = words(sequences);
  params.faults = to_device(device, std::vector<std::uint32_t>(sequences, 9), "faults");
  kernels::run_on_sim<AcceptRow<Chip>>(device, static_cast<int>(sequences), params);
  return {to_host(device, params.emitted, sequences * (kDraftsMost + 1)),
          to_host(device, params.accepted, sequences),
          to_host(device, params.next_tokens, sequences),
          to_host(device, params.next_rows, sequences),
          to_host(device, params.next_positions, sequences),
          to_host(device, params.histories.counts, test.counts.size()),
          to_host(device, params.faults, sequences),
          to_host(device, params.histories.seen, test.seen.size())};
}

TEST(Accept, TakesDraftsUpToTheFirstThatIsNotChosen) {
  Random random(9);
  for (int round = 0; round < 6; ++round) {
    AcceptCase test;
    test.seed = static_cast<std::uint64_t>(round);
    const int drafts_most = round == 5 ? kDraftsMost : 5;
    std::vector<int> wanted;
    for (int s = 0; s < 7; ++s) {
      if (s == 3) {
        test.places.push_back({0, 0, 0, -1});
        wanted.push_back(0);
        continue;
      }
      const int drafts = round == 5 ? drafts_most : static_cast<int>(random.below(6));
      // Rows nobody chooses from lie between the sequences.
      for (std::uint64_t i = random.below(3); i > 0; --i) {
        test.step_tokens.push_back(1);
        test.positions.push_back(0);
      }
      test.places.push_back({static_cast<std::int32_t>(test.chosen.size()), drafts + 1,
                             static_cast<std::int32_t>(test.step_tokens.size()), -1});
      const auto position = static_cast<std::int32_t>(random.below(1000));
      test.step_tokens.push_back(3);
      int stand = 0;
      bool run = true;
      for (int i = 0; i <= drafts; ++i) {
        test.positions.push_back(position + i);
        test.chosen.push_back(static_cast<std::int32_t>(random.below(100)));
        if (i == drafts) break;
        const bool stands = random.below(4) != 0 || round == 5;
        test.step_tokens.push_back(test.chosen.back() + (stands ? 0 : 1));
        run = run && stands;
        stand += run ? 1 : 0;
      }
      wanted.push_back(stand);
    }
    const Accepted got = run_accept(test);
    for (std::size_t s = 0; s < test.places.size(); ++s) {
      const AcceptPlace& place = test.places[s];
      if (place.choice_count == 0) {
        EXPECT_EQ(got.accepted[s], -9);
        continue;
      }
      EXPECT_EQ(got.accepted[s], wanted[s]);
      for (int i = 0; i <= kDraftsMost; ++i)
        EXPECT_EQ(got.emitted[s * (kDraftsMost + 1) + static_cast<std::size_t>(i)],
                  i <= wanted[s] ? test.chosen[static_cast<std::size_t>(place.first_choice + i)] : -1);
      const auto row = static_cast<std::size_t>(place.first_row + wanted[s]);
      EXPECT_EQ(got.next_rows[s], static_cast<std::int32_t>(row));
      EXPECT_EQ(got.next_tokens[s], test.chosen[static_cast<std::size_t>(place.first_choice + wanted[s])]);
      EXPECT_EQ(got.next_positions[s], test.positions[row] + 1);
      EXPECT_EQ(got.faults[s], 0u);
    }
  }
}

TEST(Accept, NotesTokensInTheHistory) {
  AcceptCase test;
  // Three drafts stand, among them one token twice; the fourth does not.
  test.step_tokens = {1, 20, 30, 20, 40, 2};
  test.chosen = {20, 30, 20, 50, 60, 7};
  test.positions = {9, 10, 11, 12, 13, 4};
  test.places = {{0, 5, 0, 1}, {5, 1, 5, 0}};
  test.limit = 4;
  test.seen.assign(8, Seen{99, 5, 0.5});
  test.seen[4] = {30, -1, 1.5};  // a bias only
  test.seen[5] = {50, 0, 0.0};   // in the prompt
  test.counts = {4, 2};
  for (test.seed = 0; test.seed < 3; ++test.seed) {
    const Accepted got = run_accept(test);
    EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{3, 0}));
    EXPECT_EQ(got.counts, (std::vector<std::int32_t>{4, 3}));
    EXPECT_EQ(got.faults, (std::vector<std::uint32_t>{0, 1}));  // the second history is full
    EXPECT_EQ(got.seen[4].count, 1);
    EXPECT_EQ(got.seen[4].bias, 1.5);
    EXPECT_EQ(got.seen[5].count, 1);
    EXPECT_EQ(got.seen[6].token, 20);
    EXPECT_EQ(got.seen[6].count, 2);
    EXPECT_EQ(got.seen[6].bias, 0);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(got.seen[i].count, 5);
  }
}

TEST(Embed, RowsOfTokensAsF32) {
  Random random(10);
  for (const int columns : {64, 1024, 1032, 4096}) {
    std::vector<std::uint16_t> table(static_cast<std::size_t>(columns) * 11);
    for (auto& element : table) element = static_cast<std::uint16_t>(random.bits());
    const std::vector<std::int32_t> tokens{10, 0, -1, 3, 3};
    sim::Device device;
    EmbedParams params{to_device(device, table, "table"), to_device(device, tokens, "tokens"), nullptr, 5,
                       columns};
    params.out = to_device(device, std::vector<float>(5 * static_cast<std::size_t>(columns), -7.0f), "out");
    kernels::run_on_sim<EmbedRow<Chip>>(device, embed_blocks(params), params);
    const auto got = to_host(device, params.out, 5 * static_cast<std::size_t>(columns));
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto row = i / static_cast<std::size_t>(columns), column = i % static_cast<std::size_t>(columns);
      const float wanted =
          tokens[row] < 0 ? -7.0f
                          : to_float(Bf16{table[static_cast<std::size_t>(tokens[row] * columns) + column]});
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(wanted)) << i;
    }
  }
}

TEST(TakeRows, RowsByIndex) {
  for (const int words : {4, 1000, 1024, 2052}) {
    std::vector<std::uint32_t> from(static_cast<std::size_t>(words) * 6);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint32_t>(random_bits(1, i));
    const std::vector<std::int32_t> indices{5, -1, 0, 5};
    sim::Device device;
    auto* const out =
        to_device(device, std::vector<std::uint32_t>(4 * static_cast<std::size_t>(words), 7u), "out");
    const TakeRowsParams params{to_device(device, from, "from"), to_device(device, indices, "indices"), out,
                                4, words * 4};
    kernels::run_on_sim<TakeRowsRow<Chip>>(device, take_rows_blocks(params), params);
    const auto got = to_host(device, out, 4 * static_cast<std::size_t>(words));
    for (std::size_t i = 0; i < got.size(); ++i) {
      const int index = indices[i / static_cast<std::size_t>(words)];
      ASSERT_EQ(got[i],
                index < 0
                    ? 7u
                    : from[static_cast<std::size_t>(index * words) + i % static_cast<std::size_t>(words)]);
    }
  }
}

TEST(SamplingRows, FactsAddUp) {
  moe::for_each_row(Rows<moe::Simulated>{}, []<class Row>() {
    const plan::RowFacts facts = Row::facts();
    plan::check_row(facts);
    EXPECT_LE(facts.total_bytes, facts.limit_bytes) << facts.row;
  });
}

}  // namespace
}  // namespace fourfold::sampling
