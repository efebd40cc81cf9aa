#include "sample/logits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "base/error.h"

namespace fourfold::sample {
namespace {

// Passes over a vocabulary go by blocks of so many: a compiler makes a few vector instructions of each.
constexpr std::size_t kBlock = 32;

// The best of groups of tokens, of which there are about one for kBlock tokens; each token is in one group.
std::vector<float> best_of_groups(std::span<const float> scores) {
  const std::size_t block_count = scores.size() / kBlock;
  const std::size_t group_count = (block_count + kBlock - 1) / kBlock * kBlock;
  std::vector<float> best(group_count, -std::numeric_limits<float>::infinity());
  for (std::size_t block = 0; block < block_count; ++block) {
    const float* from = scores.data() + block * kBlock;
    float* to = best.data() + block / kBlock * kBlock;
    for (std::size_t i = 0; i < kBlock; ++i) to[i] = from[i] > to[i] ? from[i] : to[i];
  }
  best.insert(best.end(), scores.begin() + static_cast<std::ptrdiff_t>(block_count * kBlock), scores.end());
  return best;
}

bool any_reaches(const float* block, float limit) {
  std::uint32_t reached = 0;
  for (std::size_t i = 0; i < kBlock; ++i) reached |= block[i] >= limit ? 1u : 0u;
  return reached != 0;
}

// All exponent bits set is NaN or infinite.
constexpr std::uint32_t kExponent = 0x7F800000;
bool is_bad(float x) { return (std::bit_cast<std::uint32_t>(x) & kExponent) == kExponent; }

bool all_finite(std::span<const float> logits) {
  std::uint32_t any = 0;
  std::size_t at = 0;
  for (; at + kBlock <= logits.size(); at += kBlock)
    for (std::size_t i = 0; i < kBlock; ++i) any |= is_bad(logits[at + i]) ? 1u : 0u;
  for (; at < logits.size(); ++at) any |= is_bad(logits[at]) ? 1u : 0u;
  return any == 0;
}

}  // namespace

// A vocabulary has hundreds of thousands of tokens, and the best few dozen are wanted: as many groups have a
// best one that reaches the floor, so what lies below it is not among them.
std::vector<Scored> best_tokens(std::span<const float> scores, std::size_t count) {
  count = std::min(count, scores.size());
  if (count == 0) return {};
  float floor = -std::numeric_limits<float>::infinity();
  if (std::vector<float> groups = best_of_groups(scores); count < groups.size()) {
    const auto last = groups.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(groups.begin(), last, groups.end(), std::greater<>());
    floor = *last;
  }
  std::vector<Scored> kept;
  const auto offer = [&](std::size_t i) {
    if (scores[i] >= floor) kept.push_back({static_cast<TokenId>(i), scores[i]});
  };
  std::size_t at = 0;
  for (; at + kBlock <= scores.size(); at += kBlock) {
    if (!any_reaches(scores.data() + at, floor)) continue;
    for (std::size_t i = 0; i < kBlock; ++i) offer(at + i);
  }
  for (; at < scores.size(); ++at) offer(at);
  std::nth_element(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(count) - 1, kept.end(),
                   ranks_before);
  kept.resize(count);
  std::sort(kept.begin(), kept.end(), ranks_before);
  return kept;
}

// Asked of all logits at once, which is quick, and of each only when there is one to be named.
void require_finite(std::span<const float> logits) {
  if (all_finite(logits)) return;
  const auto bad = std::find_if(logits.begin(), logits.end(), is_bad);
  fail_with_hint(Code::internal,
                 "The checkpoint or a kernel is at fault: compare the model with --backend reference.",
                 "the logit of token {} is {}; no token can be chosen from it", bad - logits.begin(),
                 std::isnan(*bad) ? "NaN"
                 : *bad > 0       ? "infinite"
                                  : "minus infinity");
}

}  // namespace fourfold::sample
