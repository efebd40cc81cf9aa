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

// A token that this request treats in its own way.
struct Seen {
  TokenId token = 0;
  std::int64_t count = 0;  // in the answer; 0: in the prompt only; -1: neither, it has a bias only
  double bias = 0;
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
  // internal when the logits are not finite. allowed: bit t % 64 of word t / 64 says whether token t may be
  // chosen; empty: all may.
  Sampled sample(std::span<const float> logits, std::int64_t position, const Draft* draft = nullptr,
                 std::span<const std::uint64_t> allowed = {});

  // Whether any token that can be chosen is among these.
  bool allows_any(std::span<const std::uint64_t> allowed) const;

  // A token may be chosen elsewhere by the same rules (base/token_weights.h), unless its log-probability is
  // wanted, and noted here: as sample, without logits. A draft that was drawn needs logits.
  Sampled note_chosen(TokenId token, const Draft* draft = nullptr);
  bool wants_logits() const { return params_.logprob_count > 0; }
  std::int64_t token_limit() const { return token_limit_; }

  // Whether choices depend on more than their logits: then whoever chooses elsewhere needs seen(), and notes
  // what was chosen as this does.
  bool needs_history() const { return params_.penalises() || !params_.logit_bias.empty(); }
  std::vector<Seen> seen() const;
  // At least as many as seen() has, now and however many of the tokens noted it has to hold.
  std::int64_t seen_count() const { return history_.size() + std::ssize(params_.logit_bias); }

  // A draft for `position` from the draft layer's logits: its most probable token, or with `draw` and a
  // temperature one drawn from its distribution.
  Draft draft(std::span<const float> logits, std::int64_t position, bool draw);

 private:
  void forbid_others(std::span<const std::uint64_t> allowed);
  std::span<const float> choosable(std::span<const float> logits) const {
    return logits.first(static_cast<std::size_t>(token_limit_));
  }

  Params params_;
  std::int64_t token_limit_;
  History history_;
  std::vector<float> scores_;  // of the token being chosen
};

}  // namespace fourfold::sample
