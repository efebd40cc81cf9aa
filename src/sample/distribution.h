// The distribution a token is drawn from: logits after bias, penalties, temperature, top-k, top-p and min-p.
// Weights are whole numbers (base/token_weights.h), so sums are exact and a distribution is a pure function
// of its logits: GPUs that choose tokens themselves choose the same ones.
#pragma once

#include <span>
#include <vector>

#include "sample/history.h"
#include "sample/params.h"

namespace fourfold::sample {

struct Candidate {
  TokenId id = 0;
  std::uint64_t weight = 0;  // probability * total
};

class Distribution {
 public:
  Distribution() = default;
  // Ids ascend; weights are at most 2^44 each. For tests and for what is left after a rejection.
  explicit Distribution(std::vector<Candidate> candidates);

  std::span<const Candidate> candidates() const { return candidates_; }
  std::uint64_t total() const { return total_; }
  double probability(TokenId id) const;

  // The token at u of the way through the weights, u in [0, 1) in steps of 2^-53. A token of weight zero is
  // never drawn.
  TokenId draw(double u) const;

 private:
  std::vector<Candidate> candidates_;  // by id
  std::uint64_t total_ = 0;
};

// Scores: logits after bias and penalties, rounded once to f32 as GPUs do who keep the one where the other
// was (kernels/sampling), written over `scores`, whose memory is kept from token to token. Throws internal
// when a logit is NaN or infinite, naming it.
void score_tokens(std::span<const float> logits, const Params& params, const History& history,
                  std::vector<float>& scores);

// The best score, the first of equals.
TokenId best_token(std::span<const float> scores);

// With temperature 0 all weight is on the best token.
Distribution make_distribution(std::span<const float> scores, const Params& params);

}  // namespace fourfold::sample
