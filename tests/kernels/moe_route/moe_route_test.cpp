// The router against a plain model: sort the logits, count the pairs, write the tables down.
#include "kernels/moe_route/moe_route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/format.h"
#include "base/random.h"
#include "kernels/device/sim/cta.h"
#include "kernels/launch/sim_machine.h"
#include "tests/kernels/route_tables.h"

namespace fourfold::test {
namespace {

enum class Kind { random, ties, equal, same_experts, specials };

std::vector<float> make_logits(const RouteShape& shape, Kind kind, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> logits;
  const float inf = std::numeric_limits<float>::infinity();
  const float specials[] = {
      std::numeric_limits<float>::quiet_NaN(), -inf, -0.0f, 0.0f, 1e-40f, -1e-40f, 3e38f, -3e38f};
  for (int token = 0; token < shape.tokens; ++token)
    for (int expert = 0; expert < shape.experts; ++expert) {
      auto value = static_cast<float>(random.normal() * 4.0);
      if (kind == Kind::ties) value = static_cast<float>(random.below(3));
      if (kind == Kind::equal) value = 1.0f;
      if (kind == Kind::same_experts) value += expert % 5 == 0 ? 50.0f : 0.0f;
      if (kind == Kind::specials && random.below(3) == 0) value = specials[random.below(std::size(specials))];
      logits.push_back(value);
    }
  return logits;
}

// Ranks of one token: larger logits first, NaN after everything, ties to the lower expert. +0 comes before
// -0.
std::vector<int> ranked(const float* logits, int experts) {
  std::vector<int> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    const float x = logits[a], y = logits[b];
    if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
    if (x > y || x < y) return x > y;
    if (x == 0.0f && std::signbit(x) != std::signbit(y)) return std::signbit(y);
    return a < b;
  });
  return order;
}

// Which groups are kept, by a plain loop: of what each one's two best sum to, the largest, the first of
// equals.
std::vector<bool> kept_groups(const RouteShape& shape, const std::vector<float>& scores) {
  if (shape.rule.groups == 1) return {true};  // may be of one expert, which has no second best
  const int size = shape.experts / shape.rule.groups;
  std::vector<float> sums;
  for (int group = 0; group < shape.rule.groups; ++group) {
    const float* const own = scores.data() + group * size;
    const std::vector<int> order = ranked(own, size);
    sums.push_back(own[order[0]] + own[order[1]]);
  }
  std::vector<bool> kept(sums.size());
  const std::vector<int> order = ranked(sums.data(), shape.rule.groups);
  for (int i = 0; i < shape.rule.groups_kept; ++i)
    kept[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = true;
  return kept;
}

// The experts of one token in the order of their choice: at least top_k of them.
std::vector<int> chosen(const RouteShape& shape, const float* logits, const std::vector<float>& bias) {
  if (!shape.rule.sigmoid) return ranked(logits, shape.experts);
  std::vector<float> scores;
  for (int expert = 0; expert < shape.experts; ++expert)
    scores.push_back(moe_route::sigmoid_score<device::SimCta>(logits[expert]) +
                     (bias.empty() ? 0.0f : bias[static_cast<std::size_t>(expert)]));
  const std::vector<bool> kept = kept_groups(shape, scores);
  std::vector<int> order = ranked(scores.data(), shape.experts);
  std::erase_if(order, [&](int expert) {
    return !kept[static_cast<std::size_t>(expert / (shape.experts / shape.rule.groups))];
  });
  return order;
}

// e^(l - max) in f32: the difference is rounded (|d| * 2^-24 in the exponent) and the function errs by 1.5
// ulp. The sum adds up to `terms` of them, then a reciprocal and two products round. Both share the largest
// logit, which is exact.
double weight_bound(double difference, double terms) {
  const double numerator = 3.0 + std::abs(difference), denominator = 3.0 + 90.0 + terms;
  return (numerator + denominator + 4.0) * 0x1p-24;
}

void check_weights(const RouteShape& shape, const std::vector<float>& logits, const Tables& tables) {
  for (int token = 0; token < shape.tokens; ++token) {
    const float* const row = logits.data() + token * shape.experts;
    const std::vector<int> order = ranked(row, shape.experts);
    const double largest = row[order[0]];
    double sum = 0.0;
    for (int i = 0; i < (shape.renormalise ? shape.top_k : shape.experts); ++i)
      sum += std::exp(static_cast<double>(row[order[static_cast<std::size_t>(i)]]) - largest);
    const double terms = shape.renormalise ? shape.top_k : shape.experts / 32.0 + 5.0;
    for (int rank = 0; rank < shape.top_k; ++rank) {
      const auto pair = static_cast<std::size_t>(token * shape.top_k + rank);
      const double difference = row[order[static_cast<std::size_t>(rank)]] - largest;
      const double exact = std::exp(difference) / sum * shape.rule.scale;
      // Below e^-87 the function gives zero.
      const double allowed = difference < -87.0 ? 2e-38 : exact * weight_bound(difference, terms);
      ASSERT_NEAR(tables.pair_weight[pair], exact, allowed) << "token " << token << " rank " << rank;
    }
  }
}

// A score errs by 5 units of 2^-24 (ASigmoidScoreIsAccurate), a sum of k of them by as much and a rounding
// each, then the guard, the reciprocal and two products round.
void check_sigmoid_weights(const RouteShape& shape, const std::vector<float>& logits,
                           const std::vector<float>& bias, const Tables& tables) {
  for (int token = 0; token < shape.tokens; ++token) {
    const float* const row = logits.data() + token * shape.experts;
    const std::vector<int> order = chosen(shape, row, bias);
    const auto score = [&](int rank) {
      return 1.0 / (1.0 + std::exp(-static_cast<double>(row[order[static_cast<std::size_t>(rank)]])));
    };
    double sum = 0.0;
    for (int rank = 0; rank < shape.top_k; ++rank) sum += score(rank);
    for (int rank = 0; rank < shape.top_k; ++rank) {
      const auto pair = static_cast<std::size_t>(token * shape.top_k + rank);
      const double exact = score(rank) / (shape.renormalise ? sum : 1.0) * shape.rule.scale;
      ASSERT_NEAR(tables.pair_weight[pair], exact, exact * (5.0 + 5.0 + shape.top_k + 4.0) * 0x1p-24)
          << "token " << token << " rank " << rank;
    }
  }
}

void check_tiles(const RouteShape& shape, const std::vector<int>& counts, const std::vector<int>& first_slot,
                 const Tables& tables) {
  std::size_t at = 0;
  for (int expert = 0; expert < shape.experts; ++expert) {
    const auto e = static_cast<std::size_t>(expert);
    int covered = 0, largest = 0, smallest = shape.tile_tokens, used = 0;
    while (covered < counts[e]) {
      ASSERT_LT(at, tables.tiles.size());
      const moe::TokenTile& tile = tables.tiles[at++];
      ASSERT_EQ(tile.expert, expert);
      ASSERT_EQ(tile.first_slot, first_slot[e] + covered);
      ASSERT_EQ(tile.first_slot % moe::kSlotGroup, 0);
      ASSERT_GT(tile.count, 0);
      ASSERT_LE(tile.count, shape.tile_tokens);
      covered += tile.count;
      ++used;
      largest = std::max(largest, tile.count);
      if (covered < counts[e]) smallest = std::min(smallest, tile.count);
    }
    ASSERT_EQ(covered, counts[e]);
    // As few as N allows; all but the last the same.
    ASSERT_LE(used, (counts[e] + shape.tile_tokens - 1) / shape.tile_tokens);
    if (used > 1) {
      ASSERT_EQ(largest, smallest);
    }
  }
  EXPECT_EQ(at, tables.tiles.size());
}

void check_tables(const RouteShape& shape, const std::vector<float>& logits, const std::vector<float>& bias,
                  const Tables& tables) {
  std::vector<int> counts(static_cast<std::size_t>(shape.experts)), rank_in_expert, first_slot;
  for (int token = 0; token < shape.tokens; ++token) {
    const std::vector<int> order = chosen(shape, logits.data() + token * shape.experts, bias);
    for (int rank = 0; rank < shape.top_k; ++rank) {
      const auto pair = static_cast<std::size_t>(token * shape.top_k + rank);
      const int expert = order[static_cast<std::size_t>(rank)];
      ASSERT_EQ(tables.pair_expert[pair], expert) << "token " << token << " rank " << rank;
      rank_in_expert.push_back(counts[static_cast<std::size_t>(expert)]++);
    }
  }
  int slot = 0;
  for (const int count : counts) {
    first_slot.push_back(slot);
    slot += (count + 7) / 8 * 8;
  }
  EXPECT_LE(slot, moe::slot_limit(shape.tokens, shape.top_k, shape.experts));
  EXPECT_LE(tables.tiles.size(), static_cast<std::size_t>(moe::tile_limit(shape.tokens, shape.top_k,
                                                                          shape.experts, shape.tile_tokens)));
  for (std::size_t pair = 0; pair < tables.pair_slot.size(); ++pair) {
    const auto expert = static_cast<std::size_t>(tables.pair_expert[pair]);
    ASSERT_EQ(tables.pair_slot[pair], first_slot[expert] + rank_in_expert[pair]);
    ASSERT_EQ(tables.slot_token[pair], static_cast<int>(pair) / shape.top_k);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(tables.slot_weight[pair]),
              std::bit_cast<std::uint32_t>(tables.pair_weight[pair]));
  }
  check_tiles(shape, counts, first_slot, tables);
}

void check_route(const RouteShape& shape, Kind kind, std::uint64_t seed,
                 const std::vector<float>& bias = {}) {
  SCOPED_TRACE(format("{} tokens, {} experts, top-k {}, N {}, kind {}, seed {}", shape.tokens, shape.experts,
                      shape.top_k, shape.tile_tokens, static_cast<int>(kind), seed));
  sim::Device device;
  device.set_seed(seed);
  const auto machine = kernels::make_sim_machine(device);
  const std::vector<float> logits = make_logits(shape, kind, 100 + seed);
  RouteRun run(*machine, shape, logits, bias);
  const Tables tables = run.run();
  check_tables(shape, logits, bias, tables);
  // NaN and infinities have a place in the order, but no weight worth a bound.
  if (kind == Kind::specials) return;
  if (shape.rule.sigmoid)
    check_sigmoid_weights(shape, logits, bias, tables);
  else
    check_weights(shape, logits, tables);
}

// From one expert to 1,024, k from 1 to 32, on both sides of the borders between the forms: 16 and 64 tokens,
// 256 and 512 experts, 512 tokens.
constexpr RouteShape kShapes[] = {
    {1, 1, 1, 8},       {32, 64, 4, 16},  {5, 3, 2, 8},        {64, 8, 8, 16},    {64, 256, 8, 8},
    {17, 1024, 32, 64}, {33, 1024, 1, 8}, {64, 31, 31, 128},   {65, 1, 1, 8},     {65, 33, 4, 160},
    {70, 1024, 32, 8},  {200, 7, 7, 64},  {130, 128, 32, 256}, {81, 512, 10, 32}, {64, 512, 10, 64},
    {100, 300, 8, 8},   {32, 512, 10, 8}, {16, 256, 8, 8},     {32, 513, 3, 8},   {512, 40, 2, 16},
    {513, 40, 2, 16},   {16, 512, 10, 8}, {17, 512, 10, 8},    {17, 40, 3, 8},    {16, 257, 32, 8},
    {17, 256, 8, 8},    {16, 256, 9, 8},
};

TEST(MoeRoute, AgreesWithSortingForEveryShape) {
  for (const RouteShape& shape : kShapes) {
    check_route(shape, Kind::random, 0);
    check_route(shape, Kind::random, 7);
  }
}

TEST(MoeRoute, TiesGoToTheLowerExpert) {
  for (const RouteShape& shape : kShapes) check_route(shape, Kind::ties, 3);
  check_route({9, 100, 32, 8}, Kind::equal, 0);
  check_route({80, 64, 5, 16}, Kind::equal, 1);
}

TEST(MoeRoute, ExpertsMayHaveNoTokenOrAllOfThem) {
  check_route({64, 100, 8, 16}, Kind::same_experts, 2);
  check_route({300, 100, 8, 32}, Kind::same_experts, 4);
  check_route({260, 1024, 2, 8}, Kind::same_experts, 5);
}

TEST(MoeRoute, NanAndInfinitiesHaveAPlace) {
  for (const RouteShape& shape : kShapes) check_route(shape, Kind::specials, 6);
}

TEST(MoeRoute, WeightsWithoutRenormalisationAreTheSoftmaxOverAllExperts) {
  for (RouteShape shape : kShapes) {
    shape.renormalise = false;
    check_route(shape, Kind::random, 8);
  }
}

TEST(MoeRoute, SoftmaxWeightsMayHaveAFactor) {
  for (RouteShape shape : {RouteShape{9, 40, 6, 8}, RouteShape{17, 512, 10, 8}, RouteShape{70, 1024, 8, 16}})
    for (const bool renormalise : {true, false}) {
      shape.renormalise = renormalise;
      shape.rule.scale = 2.5f;
      check_route(shape, Kind::random, 9);
    }
}

// ---- sigmoid scores ----

RouteShape sigmoid_shape(RouteShape shape, int groups = 1, int groups_kept = 1) {
  shape.rule = {.sigmoid = true, .groups = groups, .groups_kept = groups_kept, .scale = 2.5f};
  return shape;
}

// As large as the scores themselves, and often equal.
std::vector<float> make_bias(const RouteShape& shape, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> bias;
  for (int expert = 0; expert < shape.experts; ++expert)
    bias.push_back(random.below(2) ? static_cast<float>(random.uniform(-1.0, 1.0))
                                   : 0.5f * static_cast<float>(random.below(2)));
  return bias;
}

TEST(MoeRoute, SigmoidScoresForEveryShapeWithAndWithoutABias) {
  for (const RouteShape& shape : kShapes) {
    check_route(sigmoid_shape(shape), Kind::random, 1);
    check_route(sigmoid_shape(shape), Kind::random, 2, make_bias(shape, 5));
    check_route(sigmoid_shape(shape), Kind::ties, 3, make_bias(shape, 6));
    check_route(sigmoid_shape(shape), Kind::specials, 4, make_bias(shape, 7));
  }
}

TEST(MoeRoute, SigmoidWeightsMayBeLeftAsTheyAre) {
  for (RouteShape shape : {RouteShape{9, 40, 6, 8}, RouteShape{70, 300, 8, 16}}) {
    shape.renormalise = false;
    check_route(sigmoid_shape(shape), Kind::random, 1, make_bias(shape, 8));
  }
}

// Groups that end inside a lane's experts and groups that span lanes, for each form of the ranking; all kept,
// and no more kept than the choice needs.
TEST(MoeRoute, OnlyExpertsOfTheBestGroupsAreChosen) {
  constexpr struct {
    RouteShape shape;
    int groups, kept;
  } cases[] = {{{9, 160, 6, 8}, 8, 3},  {{70, 256, 8, 16}, 8, 4},   {{16, 96, 6, 8}, 32, 2},
               {{5, 12, 2, 8}, 4, 1},   {{33, 500, 10, 8}, 5, 2},   {{17, 1024, 32, 8}, 32, 1},
               {{20, 770, 4, 8}, 7, 3}, {{16, 512, 10, 8}, 16, 16}, {{9, 6, 2, 8}, 3, 1}};
  for (const auto& [shape, groups, kept] : cases)
    for (const Kind kind : {Kind::random, Kind::ties, Kind::equal, Kind::specials}) {
      check_route(sigmoid_shape(shape, groups, kept), kind, 1);
      check_route(sigmoid_shape(shape, groups, kept), kind, 2, make_bias(shape, 9));
    }
}

TEST(MoeRoute, ASigmoidScoreIsAccurate) {
  for (int i = -8600; i <= 8600; ++i) {
    const float logit = 0.01f * static_cast<float>(i) + 1e-4f;
    const double exact = 1.0 / (1.0 + std::exp(-static_cast<double>(logit)));
    EXPECT_NEAR(moe_route::sigmoid_score<device::SimCta>(logit), exact, 5 * 0x1p-24 * exact) << logit;
  }
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(moe_route::sigmoid_score<device::SimCta>(-inf), 0.0f);
  EXPECT_EQ(moe_route::sigmoid_score<device::SimCta>(inf), 1.0f);
  EXPECT_TRUE(std::isnan(moe_route::sigmoid_score<device::SimCta>(std::nanf(""))));
}

TEST(MoeRoute, SaysWhichRulesItsKernelsDoNotHave) {
  using moe_route::refusal_of;
  const float bias = 0.0f;
  EXPECT_EQ(refusal_of({}, 8, 2), "");
  EXPECT_EQ(refusal_of({.sigmoid = true, .groups = 4, .groups_kept = 2, .choice_bias = &bias}, 8, 4), "");
  for (const moe_route::RouteRule& rule : {moe_route::RouteRule{.groups = 4, .groups_kept = 2},
                                           {.choice_bias = &bias},
                                           {.sigmoid = true, .groups = 8, .groups_kept = 2},
                                           {.sigmoid = true, .groups = 3, .groups_kept = 2},
                                           {.sigmoid = true, .groups = 0},
                                           {.sigmoid = true, .groups = 4, .groups_kept = 1},
                                           {.sigmoid = true, .groups = 4, .groups_kept = 5}})
    EXPECT_NE(refusal_of(rule, 8, 3), "") << rule.groups << " " << rule.groups_kept;
  EXPECT_NE(refusal_of({.sigmoid = true, .groups = 64, .groups_kept = 2}, 512, 3), "");
}

TEST(MoeRoute, BothFormsAgreeWhateverTheSeed) {
  // The tables are data for every later kernel: no schedule may change them.
  const RouteShape shape{90, 40, 6, 16};
  const std::vector<float> logits = make_logits(shape, Kind::random, 1);
  std::vector<std::int32_t> slots;
  std::vector<float> weights;
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u, 4u}) {
    sim::Device device;
    device.set_seed(seed);
    const auto machine = kernels::make_sim_machine(device);
    const Tables tables = RouteRun(*machine, shape, logits).run();
    if (slots.empty()) {
      slots = tables.pair_slot;
      weights = tables.pair_weight;
    }
    EXPECT_EQ(tables.pair_slot, slots);
    EXPECT_EQ(tables.pair_weight, weights);
  }
}

TEST(TopK, KeysKeepTheOrderOfFloats) {
  const float inf = std::numeric_limits<float>::infinity();
  const float ordered[] = {-inf, -3e38f, -1.0f, -1e-45f, -0.0f, 0.0f, 1e-45f, 1.0f, 3e38f, inf};
  for (std::size_t i = 1; i < std::size(ordered); ++i)
    EXPECT_LT(moe_route::order_key(ordered[i - 1]), moe_route::order_key(ordered[i]));
  for (const float value : ordered) {
    const float back = moe_route::value_of_key(moe_route::order_key(value));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(back), std::bit_cast<std::uint32_t>(value));
  }
  EXPECT_LT(moe_route::order_key(std::numeric_limits<float>::quiet_NaN()), moe_route::order_key(-inf));
}

}  // namespace
}  // namespace fourfold::test
