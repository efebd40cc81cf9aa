// The definitions, on timelines whose numbers can be worked out on paper.
#include "loadgen/measures.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "loadgen/arrivals.h"
#include "loadgen/report.h"

namespace fourfold::loadgen {
namespace {

// 4 chunks at 0.5, 0.6, 0.8, 1.2; the last token at 1.25.
Timeline request(double sent, std::optional<std::int64_t> tokens) {
  Timeline line;
  line.sent = sent;
  for (const double at : {0.5, 0.6, 0.8, 1.2}) line.chunks.push_back(sent + at);
  line.first_answer = sent + 0.8;
  line.last = line.over = sent + 1.25;
  line.output_tokens = tokens;
  line.prompt_tokens = 100;
  return line;
}

TEST(Measures, FollowTheDefinitions) {
  const std::vector<std::vector<Timeline>> runs{{request(100, 7), request(100.75, 7)}};
  const Measures m = measure(runs, {});
  EXPECT_EQ(m.requests, 2);
  EXPECT_EQ(m.failed, 0);
  EXPECT_DOUBLE_EQ(m.seconds, 2.0);  // 100 to 102
  EXPECT_NEAR(m.ttft_ms.p50, 500, 1e-9);
  EXPECT_NEAR(m.e2el_ms.p50, 1250, 1e-9);
  EXPECT_NEAR(m.tpot_ms.p50, 750.0 / 6, 1e-9);  // tokens, not chunks
  EXPECT_EQ(m.itl_ms.count, 6);
  EXPECT_NEAR(m.itl_ms.mean, 700.0 / 3, 1e-9);  // chunks, not tokens
  EXPECT_NEAR(m.itl_ms.p50, 200, 1e-9);
  EXPECT_NEAR(m.answer_ms.p50, 800, 1e-9);
  EXPECT_DOUBLE_EQ(m.output_per_s, 7.0);  // 14 tokens in 2 s, the prompts' 200 not counted
  EXPECT_NEAR(m.user_per_s, 8.0, 1e-9);   // 6 tokens in 0.75 s
  EXPECT_DOUBLE_EQ(m.requests_per_s, 1.0);
  EXPECT_DOUBLE_EQ(m.tokens_per_chunk, 14.0 / 8);
  EXPECT_EQ(m.prompt_tokens, 200);
  EXPECT_FALSE(m.counted_by_chunks);
  EXPECT_FALSE(m.goodput_per_s.has_value());
  EXPECT_FALSE(m.acceptance_length.has_value());
}

TEST(Measures, RunsFollowEachOther) {
  const std::vector<std::vector<Timeline>> runs{{request(0, 7)}, {request(1000, 7)}};
  const Measures m = measure(runs, {});
  EXPECT_DOUBLE_EQ(m.seconds, 2.5);  // not the pause between them
  EXPECT_DOUBLE_EQ(m.output_per_s, 14 / 2.5);
}

TEST(Measures, WithoutUsageChunksAreCountedAndSaid) {
  const std::vector<std::vector<Timeline>> runs{{request(0, std::nullopt)}};
  const Measures m = measure(runs, {});
  EXPECT_TRUE(m.counted_by_chunks);
  EXPECT_EQ(m.output_tokens, 4);
  EXPECT_NEAR(m.tpot_ms.p50, 250, 1e-9);
}

TEST(Measures, OneTokenHasNoTpot) {
  Timeline line = request(0, 1);
  line.chunks.resize(1);
  line.last = line.chunks.front();
  const std::vector<std::vector<Timeline>> runs{{line}};
  const Measures m = measure(runs, {.ttft_ms = {}, .tpot_ms = 1.0, .e2el_ms = {}});
  EXPECT_EQ(m.tpot_ms.count, 0);
  EXPECT_EQ(m.itl_ms.count, 0);
  EXPECT_DOUBLE_EQ(*m.goodput_per_s, 2.0);  // nothing to hold against the limit; 1 request in 0.5 s
}

TEST(Measures, GoodputNeedsEveryLimit) {
  const std::vector<std::vector<Timeline>> runs{{request(0, 7), request(0.75, 4)}};  // TPOT 125 and 250, 2 s
  const auto good = [&](Limits limits) { return *measure(runs, limits).goodput_per_s; };
  EXPECT_DOUBLE_EQ(good({.ttft_ms = 501.0, .tpot_ms = {}, .e2el_ms = {}}), 1.0);
  EXPECT_DOUBLE_EQ(good({.ttft_ms = 499.0, .tpot_ms = {}, .e2el_ms = {}}), 0.0);
  EXPECT_DOUBLE_EQ(good({.ttft_ms = 501.0, .tpot_ms = 126.0, .e2el_ms = {}}), 0.5);
  EXPECT_DOUBLE_EQ(good({.ttft_ms = 501.0, .tpot_ms = 126.0, .e2el_ms = 1249.0}), 0.0);
}

TEST(Measures, FailuresAreCountedByNameAndMeasureNothing) {
  Timeline broken = request(0, 7);
  broken.failure = "status 429: full";
  const std::vector<std::vector<Timeline>> runs{{broken, request(0, 7), broken}};
  const Measures m = measure(runs, {.ttft_ms = 1e9, .tpot_ms = {}, .e2el_ms = {}});
  EXPECT_EQ(m.requests, 3);
  EXPECT_EQ(m.failed, 2);
  EXPECT_EQ(m.failures.at("status 429: full"), 2);
  EXPECT_EQ(m.ttft_ms.count, 1);
  EXPECT_EQ(m.output_tokens, 7);
  EXPECT_DOUBLE_EQ(*m.goodput_per_s, 1 / 1.25);
  const std::vector<std::vector<Timeline>> none{{broken}};
  EXPECT_EQ(measure(none, {.ttft_ms = 1.0, .tpot_ms = {}, .e2el_ms = {}}).goodput_per_s, 0.0);
}

TEST(Measures, AcceptanceLengthIsTokensAStep) {
  Timeline one = request(0, 10), two = request(0, 20);
  one.accepted_tokens = 5, two.accepted_tokens = 15;  // 5 + 5 steps gave 30 tokens
  const std::vector<std::vector<Timeline>> runs{{one, two}};
  EXPECT_DOUBLE_EQ(*measure(runs, {}).acceptance_length, 3.0);
}

TEST(Summary, InterpolatesAsNumpyDoes) {
  const Summary s = summarize({4, 1, 3, 2});
  EXPECT_EQ(s.count, 4);
  EXPECT_DOUBLE_EQ(s.mean, 2.5);
  EXPECT_DOUBLE_EQ(s.p50, 2.5);
  EXPECT_NEAR(s.p90, 3.7, 1e-12);
  EXPECT_NEAR(s.p99, 3.97, 1e-12);
  EXPECT_DOUBLE_EQ(s.max, 4);
  EXPECT_EQ(summarize({}).count, 0);
  EXPECT_EQ(percentile({}, 0.5), 0);
  EXPECT_DOUBLE_EQ(summarize({7}).p99, 7);
}

TEST(Summary, VariationIsTheSamplesDeviationOverTheMean) {
  const double values[] = {9, 10, 11};
  EXPECT_DOUBLE_EQ(*variation(values), 0.1);
  EXPECT_FALSE(variation({values, 1}).has_value());
}

TEST(Arrivals, HaveTheRateAndTheBurstinessAskedFor) {
  constexpr int count = 40'000;
  for (const double shape : {0.3, 1.0, 4.0}) {
    const std::vector<double> times = arrivals(count, 50, shape, 7);
    EXPECT_EQ(times, arrivals(count, 50, shape, 7));
    EXPECT_NE(times, arrivals(count, 50, shape, 8));
    double mean = 0, squares = 0;
    for (int i = 1; i < count; ++i) {
      const double gap = times[i] - times[i - 1];
      ASSERT_GE(gap, 0);
      mean += gap / (count - 1), squares += gap * gap / (count - 1);
    }
    // Gaps of a gamma distribution have variance mean^2 / shape. The mean of n such gaps deviates by
    // mean / sqrt(n shape), their squares' mean by at most a few times that: five deviations of each.
    const double deviation = 1 / std::sqrt(count * shape);
    EXPECT_NEAR(mean * 50, 1, 5 * deviation) << shape;
    const double fourth =
        (1 + shape) * (2 + shape) * (3 + shape) / (shape * shape * shape);  // E gap^4 / mean^4
    const double second = (1 + shape) / shape;
    EXPECT_NEAR(squares * 2500, second, 5 * std::sqrt((fourth - second * second) / count)) << shape;
  }
  EXPECT_EQ(arrivals(3, INFINITY, 1, 1), (std::vector<double>{0, 0, 0}));
  EXPECT_THROW(arrivals(1, 0, 1, 1), Error);
  EXPECT_THROW(arrivals(1, 1, -1, 1), Error);
}

TEST(Cost, OfAMillionTokens) {
  const Cost cost =
      cost_of({.power_w = 360, .tariff_per_kwh = 0.5, .hardware_price = 8760, .life_years = 1}, 100);
  EXPECT_NEAR(cost.hours, 1e4 / 3600, 1e-12);
  EXPECT_NEAR(cost.kwh, 1.0, 1e-12);
  EXPECT_NEAR(cost.energy_price, 0.5, 1e-12);
  EXPECT_NEAR(cost.hardware_price, 1e4 / 3600, 1e-12);
  EXPECT_NEAR(cost.joules_per_token, 3.6, 1e-12);
}

}  // namespace
}  // namespace fourfold::loadgen
