// Log-probabilities as the model gives them: the softmax of its logits, before bias, penalties and filters.
#pragma once

#include <cstdint>
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
  std::int64_t rank = 0;           // of the chosen one; 1: the most probable
};

// Of one row. The whole vocabulary is what probabilities add up over; only ids below token_limit are named
// among the best, since those beyond it have no text.
Logprobs measure_logprobs(std::span<const float> logits, TokenId chosen, int count, std::int64_t token_limit);

// Of one row of logits for each of the tokens, the token behind that row. Rows are shared out to a few
// threads: a large vocabulary takes milliseconds. Throws internal when a logit is NaN or infinite.
std::vector<Logprobs> measure_rows(std::span<const float> logits, std::span<const TokenId> tokens, int count,
                                   std::int64_t token_limit);

}  // namespace fourfold::sample
