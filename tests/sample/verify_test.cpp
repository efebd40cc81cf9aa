// Drafts change how fast tokens come, never how they are distributed: chi-square over 100,000 draws against
// the exact distribution, seeds fixed. The same test applied to rules that are slightly wrong must fail.
#include "sample/verify.h"

#include "base/random.h"
#include "sample/draw.h"
#include "tests/sample/support.h"

namespace fourfold::sample {
namespace {

constexpr int kVocabulary = 24;

Distribution random_distribution(std::uint64_t seed, double width, int zero_every = 0) {
  Random random(seed);
  std::vector<Candidate> candidates;
  for (TokenId id = 0; id < kVocabulary; ++id) {
    const double weight = std::exp(width * random.normal());
    if (zero_every == 0 || id % zero_every != 0)
      candidates.push_back({id, static_cast<std::uint64_t>(0x1p36 * weight)});
  }
  return Distribution(std::move(candidates));
}

std::vector<double> probabilities(const Distribution& distribution) {
  std::vector<double> out;
  for (TokenId id = 0; id < kVocabulary; ++id) out.push_back(distribution.probability(id));
  return out;
}

template <class Rule>
ChiSquare test_rule(const Distribution& target, Rule rule) {
  std::vector<std::int64_t> counts(kVocabulary);
  for (int i = 0; i < kDraws; ++i) ++counts[rule(i)];
  return chi_square(counts, probabilities(target));
}

std::string numbers(const ChiSquare& result) {
  return format("chi-square {} with {} degrees; critical {}{}", result.value, result.degrees,
                chi_square_critical(result.degrees),
                result.impossible ? "; an impossible token occurred" : "");
}

// Draft distributions from nearly the target's own to one that shares few tokens with it.
std::vector<std::pair<Distribution, Distribution>> pairs() {
  std::vector<std::pair<Distribution, Distribution>> all;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    all.emplace_back(random_distribution(seed, 1), random_distribution(seed, 1.2));
    all.emplace_back(random_distribution(seed, 1), random_distribution(seed + 100, 1));
    all.emplace_back(random_distribution(seed, 1, 3), random_distribution(seed + 200, 1, 2));
    all.emplace_back(random_distribution(seed, 0.3), random_distribution(seed, 0.3));
  }
  return all;
}

TEST(Verify, DrawnDraftsGiveTheTargetsDistribution) {
  std::uint64_t seed = 1000;
  for (const auto& [target, drafted] : pairs()) {
    ++seed;
    std::int64_t accepted = 0;
    const ChiSquare result = test_rule(target, [&, &p = target, &q = drafted](int i) {
      const TokenId draft = q.draw(uniform(seed, i, Purpose::draft));
      const Verdict verdict = verify_drawn_draft(p, q, draft, uniform(seed, i, Purpose::acceptance),
                                                 uniform(seed, i, Purpose::replacement));
      EXPECT_TRUE(!verdict.accepted || verdict.token == draft);
      accepted += verdict.accepted;
      return verdict.token;
    });
    EXPECT_TRUE(result.fits()) << numbers(result);
    // Accepted as often as the two distributions overlap: five standard deviations.
    double overlap = 0;
    for (TokenId id = 0; id < kVocabulary; ++id)
      overlap += std::min(target.probability(id), drafted.probability(id));
    overlap = std::min(overlap, 1.0);
    EXPECT_NEAR(static_cast<double>(accepted) / kDraws, overlap,
                5 * std::sqrt(overlap * (1 - overlap) / kDraws) + 1e-9);
  }
}

TEST(Verify, ChosenDraftsGiveTheTargetsDistribution) {
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (const TokenId draft : {0, 5, 12}) {
      const Distribution target = random_distribution(seed, 1, 6);  // 0 and 12 are impossible
      std::int64_t accepted = 0;
      const ChiSquare result = test_rule(target, [&](int i) {
        const Verdict verdict = verify_chosen_draft(target, draft, uniform(seed, i, Purpose::token));
        accepted += verdict.accepted;
        return verdict.token;
      });
      EXPECT_TRUE(result.fits()) << numbers(result);
      const double p = target.probability(draft);
      EXPECT_NEAR(static_cast<double>(accepted) / kDraws, p, 5 * std::sqrt(p * (1 - p) / kDraws) + 1e-9);
    }
}

TEST(Verify, AChosenDraftNeverChangesTheToken) {
  const Distribution target = random_distribution(1, 1);
  for (int i = 0; i < 1000; ++i) {
    const double u = uniform(9, i, Purpose::token);
    for (const TokenId draft : {0, 3, 23}) {
      const Verdict verdict = verify_chosen_draft(target, draft, u);
      EXPECT_EQ(verdict.token, target.draw(u));
      EXPECT_EQ(verdict.accepted, verdict.token == draft);
    }
  }
}

// What people get wrong: replacing from the target itself, accepting whenever the target is larger or by its
// own probability, one number for both decisions.
TEST(Verify, TheTestNoticesWrongRules) {
  const Distribution p = random_distribution(0, 1);
  const Distribution q = random_distribution(100, 1);
  const auto u = [](int i, Purpose purpose) { return uniform(77, i, purpose); };
  const auto draft = [&](int i) { return q.draw(u(i, Purpose::draft)); };
  const auto right = [&](int i) {
    return verify_drawn_draft(p, q, draft(i), u(i, Purpose::acceptance), u(i, Purpose::replacement)).token;
  };
  EXPECT_TRUE(test_rule(p, right).fits());
  const auto replaces_from_target = [&](int i) {
    const TokenId d = draft(i);
    const bool stands = u(i, Purpose::acceptance) * q.probability(d) < p.probability(d);
    return stands ? d : p.draw(u(i, Purpose::replacement));
  };
  EXPECT_FALSE(test_rule(p, replaces_from_target).fits());
  const auto accepts_by_target = [&](int i) {
    const TokenId d = draft(i);
    return u(i, Purpose::acceptance) < p.probability(d)
               ? d
               : verify_drawn_draft(p, q, d, 1, u(i, Purpose::replacement)).token;
  };
  EXPECT_FALSE(test_rule(p, accepts_by_target).fits());
  const auto one_number = [&](int i) {
    return verify_drawn_draft(p, q, draft(i), u(i, Purpose::acceptance), u(i, Purpose::acceptance)).token;
  };
  EXPECT_FALSE(test_rule(p, one_number).fits());
}

// The test itself against the tables: the 0.1 % values for 5, 10, 23 and 100 degrees.
TEST(Verify, CriticalValuesAreThoseOfTheTables) {
  for (const auto& [degrees, value] : {std::pair{5, 20.515}, {10, 29.588}, {23, 49.728}, {100, 149.449}})
    EXPECT_NEAR(chi_square_critical(degrees) / value, 1, 0.012);
}

}  // namespace
}  // namespace fourfold::sample
