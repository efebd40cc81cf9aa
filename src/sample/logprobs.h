// Log-probabilities as the model gives them: the softmax of its logits, before bias, penalties and filters.
#pragma once

#include <span>
#include <vector>

#include "sample/params.h"

namespace fourfold::sample {

struct TokenLogprob {
  TokenId id = 0;
  double logprob = 0;
};

struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> best;  // the most probable first, the lower id first among equals
};

Logprobs measure_logprobs(std::span<const float> logits, TokenId chosen, int count);

}  // namespace fourfold::sample
