#include "sample/distribution.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "base/token_weights.h"
#include "sample/logits.h"

namespace fourfold::sample {
namespace {

// Passes over a vocabulary go by blocks of so many: a compiler makes a few vector instructions of each.
constexpr std::size_t kBlock = 32;

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
std::vector<Scored> keep_best(std::span<const float> scores, const Params& params, const Scale& scale) {
  const bool limited = params.top_k > 0;
  std::size_t count = limited ? static_cast<std::size_t>(params.top_k) : 64;
  if (limited && params.top_p == 1) return best_tokens(scores, count);
  std::uint64_t total = 0;
  if (!limited)
    for (const float score : scores) total += weight_of(score, scale, 0);
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
                  std::vector<float>& scores) {
  require_finite(logits);
  scores.assign(logits.begin(), logits.end());
  if (params.penalises()) history.penalise(params, scores);
  // Over the penalty alone: bias comes first, and what is rounded is the two together.
  for (const auto& [id, bias] : params.logit_bias) {
    const auto place = static_cast<std::size_t>(id);
    if (place >= scores.size()) continue;
    const double biased = logits[place] + bias;
    const auto count = params.penalises() ? history.count(id) : std::nullopt;
    scores[place] = static_cast<float>(count ? penalised(params, biased, *count) : biased);
  }
}

TokenId best_token(std::span<const float> scores) {
  std::array<float, kBlock> best;
  best.fill(-std::numeric_limits<float>::infinity());
  std::size_t at = 0;
  for (; at + kBlock <= scores.size(); at += kBlock)
    for (std::size_t i = 0; i < kBlock; ++i) best[i] = scores[at + i] > best[i] ? scores[at + i] : best[i];
  for (; at < scores.size(); ++at) best[0] = std::max(best[0], scores[at]);
  const float most = *std::max_element(best.begin(), best.end());
  return static_cast<TokenId>(std::find(scores.begin(), scores.end(), most) - scores.begin());
}

Distribution make_distribution(std::span<const float> scores, const Params& params) {
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
