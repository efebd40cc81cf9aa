// A choice in plain scalar loops: scores by the sampling rules in double precision, every token ranked, one
// drawn. Weights are those of base/token_weights.h, whose distance from e^x its test proves; everything else
// is written anew. Called by proofs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "base/token_weights.h"
#include "kernels/sampling/sampling_params.h"

namespace fourfold::sampling {

// Logits as `scores` must leave them. drafts: tokens of the step that count as part of the answer.
inline void score_reference(std::vector<float>& logits, int tokens, const SampleRow& row,
                            const std::vector<Seen>& history, const std::vector<std::int32_t>& drafts) {
  std::vector<Seen> entries = history;
  for (const std::int32_t draft : drafts) {
    const auto at =
        std::find_if(entries.begin(), entries.end(), [&](const Seen& seen) { return seen.token == draft; });
    if (at == entries.end())
      entries.push_back({draft, 1, 0.0});
    else
      at->count = std::max(at->count, 0) + 1;
  }
  for (const Seen& seen : entries) {
    if (seen.token < 0 || seen.token >= tokens) continue;
    double score = static_cast<double>(logits[seen.token]) + seen.bias;
    if (seen.count >= 0) score = score > 0 ? score / row.repetition_penalty : score * row.repetition_penalty;
    if (seen.count > 0) score -= row.presence_penalty + row.frequency_penalty * seen.count;
    logits[seen.token] = static_cast<float>(score);
  }
}

// The first of the largest, NaN left out; 0 when there is nothing else.
inline int first_largest(const std::vector<float>& scores, int tokens) {
  int best = -1;
  for (int i = 0; i < tokens; ++i)
    if (!std::isnan(scores[i]) && (best < 0 || scores[i] > scores[best])) best = i;
  return std::max(best, 0);
}
inline bool all_finite(const std::vector<float>& scores, int tokens) {
  return std::all_of(scores.begin(), scores.begin() + tokens, [](float x) { return std::isfinite(x); });
}

// position: where the chosen token will stand. Host: the exact host arithmetic (device::SimCta).
template <class Host>
int chosen_reference(const std::vector<float>& scores, int tokens, const SampleRow& row,
                     std::int64_t position) {
  const int best = first_largest(scores, tokens);
  if (row.temperature == 0.0 || !all_finite(scores, tokens)) return best;
  const Scale scale = scale_of<Host>(scores[best], row.temperature);
  std::vector<int> ranked(tokens);
  std::iota(ranked.begin(), ranked.end(), 0);
  std::sort(ranked.begin(), ranked.end(),
            [&](int a, int b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
  if (row.top_k > 0 && row.top_k < tokens) ranked.resize(row.top_k);
  if (row.top_p < 1.0) {
    std::uint64_t total = 0, reached = 0;
    for (const int token : ranked) total += weight_of<Host>(scores[token], scale, 0.0);
    const std::uint64_t need = nucleus_of<Host>(total, row.top_p);
    std::size_t kept = 0;
    while (reached < need) reached += weight_of<Host>(scores[ranked[kept++]], scale, 0.0);
    ranked.resize(kept);
  }
  std::sort(ranked.begin(), ranked.end());
  std::uint64_t total = 0, reached = 0;
  for (const int token : ranked) total += weight_of<Host>(scores[token], scale, row.min_p);
  const std::uint64_t target = target_of(row.seed, position, total);
  for (const int token : ranked) {
    reached += weight_of<Host>(scores[token], scale, row.min_p);
    if (reached > target) return token;
  }
  return -1;  // cannot be: the target is less than the total
}

}  // namespace fourfold::sampling
