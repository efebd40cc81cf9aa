// The normaliser of a row of logits, ln(sum of e^x): a token's log-probability is its logit less this. One
// definition for all who report log-probabilities (perplexity, prompts, answers), so that theirs agree to the
// last bit: in double precision, summed in the order of the ids.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace fourfold {

inline double log_normalizer(std::span<const float> logits) {
  const auto best = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit) - best);
  return best + std::log(total);
}

}  // namespace fourfold
