#include "plan/expected_tiles.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/random.h"

namespace fourfold::plan {
namespace {

constexpr int kRoutings = 1000;

// Of one expert that a token chooses with this chance.
void add_expert(double chance, int tokens, int tile_tokens, ExpectedTiles& sum) {
  if (chance >= 1) {
    sum.experts += 1;
    sum.tiles += (tokens + tile_tokens - 1) / tile_tokens;
    return;
  }
  // P(n tokens), from the logarithm of the first: (1 - chance)^tokens may be too small for a double.
  double log_p = tokens * std::log1p(-chance);
  const double odds = std::log(chance) - std::log1p(-chance);
  double none = 0;
  for (int n = 0; n <= tokens; ++n) {
    const double p = std::exp(log_p);
    if (n == 0) none = p;
    sum.tiles += p * ((n + tile_tokens - 1) / tile_tokens);
    log_p += odds + std::log(static_cast<double>(tokens - n)) - std::log(static_cast<double>(n + 1));
  }
  sum.experts += 1 - none;
}

// Chances of being among top_k drawn without replacement in proportion to 1 / rank: 1 - exp(-weight t), with
// t such that they add up to top_k (draws as independent arrivals stopped at time t).
std::vector<double> zipf_chances(int top_k, int experts) {
  double low = 0, high = 1e6;
  const auto chance = [](double t, int rank) { return -std::expm1(-t / rank); };
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    double sum = 0;
    for (int rank = 1; rank <= experts; ++rank) sum += chance(middle, rank);
    (sum < top_k ? low : high) = middle;
  }
  std::vector<double> chances;
  for (int rank = 1; rank <= experts; ++rank) chances.push_back(chance(high, rank));
  return chances;
}

}  // namespace

ExpectedTiles expected_tiles(int tokens, int top_k, int experts, int tile_tokens, Routing routing) {
  ExpectedTiles sum;
  if (tokens == 0 || top_k == 0) return sum;
  switch (routing) {
    case Routing::same:
      return {static_cast<double>(top_k),
              static_cast<double>(top_k) * ((tokens + tile_tokens - 1) / tile_tokens)};
    case Routing::zipf:
      for (const double chance : zipf_chances(top_k, experts)) add_expert(chance, tokens, tile_tokens, sum);
      return sum;
    case Routing::uniform: break;
  }
  add_expert(static_cast<double>(top_k) / experts, tokens, tile_tokens, sum);
  return {experts * sum.experts, experts * sum.tiles};
}

double busiest_rank_experts(int experts, int experts_per_token, int ranks, int rows) {
  check(experts % ranks == 0 && experts_per_token <= experts, "experts are given out evenly", experts, ranks);
  Random random(1);
  std::vector<int> seen(static_cast<std::size_t>(experts), 0);  // by expert: the last row that chose it
  std::vector<int> count(static_cast<std::size_t>(ranks));
  std::vector<int> routing(static_cast<std::size_t>(experts), -1);  // by expert: the last routing with it
  double sum = 0;
  int stamp = 0;
  for (int trial = 0; trial < kRoutings; ++trial) {
    std::fill(count.begin(), count.end(), 0);
    for (int row = 0; row < rows; ++row) {
      ++stamp;
      for (int chosen = 0; chosen < experts_per_token;) {
        const auto expert = static_cast<std::size_t>(random.below(static_cast<std::uint64_t>(experts)));
        if (seen[expert] == stamp) continue;
        seen[expert] = stamp;
        ++chosen;
        if (routing[expert] == trial) continue;
        routing[expert] = trial;
        ++count[expert / static_cast<std::size_t>(experts / ranks)];
      }
    }
    sum += *std::max_element(count.begin(), count.end());
  }
  return sum / kRoutings;
}

}  // namespace fourfold::plan
