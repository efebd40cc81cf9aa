// What a request may ask of sampling. A request is served as asked or refused; nothing is clamped.
#pragma once

#include <cstdint>
#include <vector>

namespace fourfold::sample {

using TokenId = std::int32_t;

struct LogitBias {
  TokenId id = 0;
  double bias = 0;
};

// Applied in this order: bias, penalties, temperature, top-k, top-p, min-p.
struct Params {
  std::vector<LogitBias> logit_bias;  // added to the logit, -100 to 100
  // Tokens of prompt and answer: positive logits / it, negative * it; 0.01 to 100.
  double repetition_penalty = 1;
  double presence_penalty = 0;   // off the logits of tokens that occur in the answer, -2 to 2
  double frequency_penalty = 0;  // times how often they do, -2 to 2
  double temperature = 1;        // 0: the most probable token, the first of equals
  std::int64_t top_k = 0;        // only the k most probable; 0: all
  double top_p = 1;              // only the most probable that together reach p; 1: all
  double min_p = 0;              // only those with at least min_p of the best one's probability
  std::uint64_t seed = 0;
  int logprob_count = 0;  // most probable alternatives to report with each token, 0 to 20

  bool greedy() const { return temperature == 0; }
  bool penalises() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
};

// Throws invalid_request that names the parameter, its value and its range.
void require_valid(const Params& params, std::int64_t vocab_size);

}  // namespace fourfold::sample
