// One sequence's sampling: logits in, tokens out, with the history that penalties need.
#pragma once

#include <optional>
#include <span>

#include "sample/distribution.h"
#include "sample/logprobs.h"
#include "sample/verify.h"

namespace fourfold::sample {

// A proposal for the token at a position, and what it was drawn from; without a distribution it was chosen.
struct Draft {
  TokenId token = 0;
  std::optional<Distribution> drawn_from;
};

struct Sampled {
  TokenId token = 0;
  bool draft_accepted = false;
  std::optional<Logprobs> logprobs;  // when the request asks for them
};

class Sampler {
 public:
  // Only ids below token_limit are ever chosen: a vocabulary may be padded beyond the tokenizer's last id.
  // Throws invalid_request for bad parameters.
  Sampler(Params params, std::int64_t vocab_size, std::int64_t token_limit);

  const Params& params() const { return params_; }
  void note_prompt(std::span<const TokenId> tokens) { history_.note_prompt(tokens); }

  // The token at `position`, where `draft` stood if there was one; it becomes part of the history. Throws
  // internal when the logits are not finite.
  Sampled sample(std::span<const float> logits, std::int64_t position, const Draft* draft = nullptr);

  // Whether the most probable token below the result is all that this request wants of a row; 0: it is not.
  // Such tokens may be chosen elsewhere and noted here.
  std::int64_t greedy_limit() const;
  // As sample, for a token chosen so.
  Sampled note_greedy(TokenId token, const Draft* draft = nullptr);

  // A draft for `position` from the draft layer's logits: its most probable token, or with `draw` and a
  // temperature one drawn from its distribution.
  Draft draft(std::span<const float> logits, std::int64_t position, bool draw);

 private:
  std::span<const float> choosable(std::span<const float> logits) const {
    return logits.first(static_cast<std::size_t>(token_limit_));
  }

  Params params_;
  std::int64_t token_limit_;
  History history_;
  std::vector<double> scores_;  // of the token being chosen
};

}  // namespace fourfold::sample
