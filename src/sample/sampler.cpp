#include "sample/sampler.h"

#include <utility>

#include "base/error.h"
#include "sample/draw.h"

namespace fourfold::sample {

Sampler::Sampler(Params params, std::int64_t vocab_size, std::int64_t token_limit)
    : params_(std::move(params)), token_limit_(token_limit) {
  require_valid(params_, vocab_size);
  if (token_limit_ < 1 || token_limit_ > vocab_size)
    fail(Code::invalid_request, "token limit {}: the vocabulary has {}", token_limit_, vocab_size);
}

Sampled Sampler::sample(std::span<const float> logits, std::int64_t position, const Draft* draft) {
  const auto u = [&](Purpose purpose) { return sample::uniform(params_.seed, position, purpose); };
  logits = choosable(logits);
  score_tokens(logits, params_, history_, scores_);
  const Distribution target = make_distribution(scores_, params_);
  Verdict verdict;
  if (draft == nullptr)
    verdict.token = target.draw(u(Purpose::token));
  else if (draft->drawn_from)
    verdict = verify_drawn_draft(target, *draft->drawn_from, draft->token, u(Purpose::acceptance),
                                 u(Purpose::replacement));
  else
    verdict = verify_chosen_draft(target, draft->token, u(Purpose::token));
  history_.note(verdict.token);
  Sampled out{verdict.token, verdict.accepted, std::nullopt};
  if (params_.logprob_count > 0) out.logprobs = measure_logprobs(logits, out.token, params_.logprob_count);
  return out;
}

std::int64_t Sampler::greedy_limit() const {
  const bool plain =
      params_.greedy() && !params_.penalises() && params_.logit_bias.empty() && params_.logprob_count == 0;
  return plain ? token_limit_ : 0;
}

Sampled Sampler::note_greedy(TokenId token, const Draft* draft) {
  history_.note(token);
  return {token, draft != nullptr && draft->token == token, std::nullopt};
}

Draft Sampler::draft(std::span<const float> logits, std::int64_t position, bool draw) {
  score_tokens(choosable(logits), params_, history_, scores_);
  if (!draw || params_.greedy()) return {best_token(scores_), std::nullopt};
  Draft out{0, make_distribution(scores_, params_)};
  out.token = out.drawn_from->draw(sample::uniform(params_.seed, position, Purpose::draft));
  return out;
}

}  // namespace fourfold::sample
