#include "sample/distribution.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "base/error.h"
#include "base/token_weights.h"

namespace fourfold::sample {
namespace {

struct Scored {
  TokenId id;
  double score;
};

// By score, the lower id first among equals: a total order, so what is kept never depends on an algorithm.
bool ranks_before(const Scored& a, const Scored& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

// The `count` best in order of rank. One pass with a small buffer: a vocabulary has hundreds of thousands of
// tokens, and the best few dozen are wanted.
std::vector<Scored> best_tokens(std::span<const double> scores, std::size_t count) {
  count = std::min(count, scores.size());
  std::vector<Scored> kept;
  const std::size_t room = 2 * count + 64;
  kept.reserve(room);
  const auto shrink = [&] {
    std::nth_element(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(count) - 1, kept.end(),
                     ranks_before);
    kept.resize(count);
  };
  bool full = false;
  double worst = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    // Ids ascend, so a score equal to the worst one kept ranks behind it.
    if (full && scores[i] <= worst) continue;
    kept.push_back({static_cast<TokenId>(i), scores[i]});
    if (kept.size() < room) continue;
    shrink();
    full = true;
    worst = kept[count - 1].score;
  }
  if (kept.size() > count) shrink();
  std::sort(kept.begin(), kept.end(), ranks_before);
  return kept;
}

using sampling::HostMath;
using sampling::Scale;

std::uint64_t weight_of(double score, const Scale& scale, double min_p) {
  return sampling::weight_of<HostMath>(score, scale, min_p);
}

std::vector<Candidate> by_id(std::span<const Scored> ranked, const Scale& scale, double min_p) {
  std::vector<Candidate> candidates;
  candidates.reserve(ranked.size());
  for (const Scored& token : ranked) candidates.push_back({token.id, weight_of(token.score, scale, min_p)});
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  return candidates;
}

// How many of the ranked tokens reach `need` together; more than there are when they do not.
std::size_t nucleus(std::span<const Scored> ranked, const Scale& scale, std::uint64_t need) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    sum += weight_of(ranked[i].score, scale, 0);
    if (sum >= need) return i + 1;
  }
  return ranked.size() + 1;
}

// top-k and top-p. Without top-k the nucleus is looked for among ever more of the best.
std::vector<Scored> keep_best(std::span<const double> scores, const Params& params, const Scale& scale) {
  const bool limited = params.top_k > 0;
  std::size_t count = limited ? static_cast<std::size_t>(params.top_k) : 64;
  if (limited && params.top_p == 1) return best_tokens(scores, count);
  std::uint64_t total = 0;
  if (!limited)
    for (const double score : scores) total += weight_of(score, scale, 0);
  for (;; count *= 8) {
    std::vector<Scored> ranked = best_tokens(scores, count);
    if (limited)
      for (const Scored& token : ranked) total += weight_of(token.score, scale, 0);
    const std::size_t wanted = nucleus(ranked, scale, sampling::nucleus_of<HostMath>(total, params.top_p));
    if (wanted > ranked.size() && !limited && ranked.size() < scores.size()) continue;
    ranked.resize(std::min(wanted, ranked.size()));
    return ranked;
  }
}

// All exponent bits set is NaN or infinite. Asked of all logits at once, which is quick, and of each only
// when there is one to be named.
void require_finite(std::span<const float> logits) {
  constexpr std::uint32_t exponent = 0x7F800000;
  const auto is_bad = [](float x) { return (std::bit_cast<std::uint32_t>(x) & exponent) == exponent; };
  std::uint32_t any = 0;
  for (const float x : logits) any |= is_bad(x) ? 1u : 0u;
  if (any == 0) return;
  const auto bad = std::find_if(logits.begin(), logits.end(), is_bad);
  fail_with_hint(Code::internal,
                 "The checkpoint or a kernel is at fault: compare the model with --backend reference.",
                 "the logit of token {} is {}; no token can be chosen from it", bad - logits.begin(),
                 std::isnan(*bad) ? "NaN"
                 : *bad > 0       ? "infinite"
                                  : "minus infinity");
}

}  // namespace

Distribution::Distribution(std::vector<Candidate> candidates) : candidates_(std::move(candidates)) {
  for (const Candidate& candidate : candidates_) total_ += candidate.weight;
}

double Distribution::probability(TokenId id) const {
  const auto found =
      std::lower_bound(candidates_.begin(), candidates_.end(), id,
                       [](const Candidate& candidate, TokenId wanted) { return candidate.id < wanted; });
  return found != candidates_.end() && found->id == id
             ? static_cast<double>(found->weight) / static_cast<double>(total_)
             : 0;
}

TokenId Distribution::draw(double u) const {
  check(total_ > 0, "there is something to draw", candidates_.size(), total_);
  const std::uint64_t target = sampling::target_in(total_, static_cast<std::uint64_t>(u * 0x1p53));
  std::uint64_t sum = 0;
  TokenId last = candidates_.front().id;
  for (const Candidate& candidate : candidates_) {
    sum += candidate.weight;
    last = candidate.id;
    if (target < sum) break;
  }
  return last;
}

void score_tokens(std::span<const float> logits, const Params& params, const History& history,
                  std::vector<double>& scores) {
  require_finite(logits);
  scores.assign(logits.begin(), logits.end());
  for (const LogitBias& entry : params.logit_bias)
    if (static_cast<std::size_t>(entry.id) < scores.size())
      scores[static_cast<std::size_t>(entry.id)] += entry.bias;
  if (params.penalises()) history.penalise(params, scores);
  if (params.logit_bias.empty() && !params.penalises()) return;
  // A score is an f32 as its logit is: GPUs keep the one where the other was (kernels/sampling).
  for (double& score : scores) score = static_cast<float>(score);
}

TokenId best_token(std::span<const double> scores) {
  return static_cast<TokenId>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

Distribution make_distribution(std::span<const double> scores, const Params& params) {
  const TokenId first = best_token(scores);
  if (params.greedy()) return Distribution({{first, sampling::kWholeWeight}});
  const Scale scale =
      sampling::scale_of<HostMath>(scores[static_cast<std::size_t>(first)], params.temperature);
  std::vector<Candidate> candidates;
  if (params.top_k > 0 || params.top_p < 1) {
    candidates = by_id(keep_best(scores, params, scale), scale, params.min_p);
  } else {
    candidates.reserve(scores.size());
    for (std::size_t i = 0; i < scores.size(); ++i)
      candidates.push_back({static_cast<TokenId>(i), weight_of(scores[i], scale, params.min_p)});
  }
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.weight == 0; });
  return Distribution(std::move(candidates));
}

}  // namespace fourfold::sample
