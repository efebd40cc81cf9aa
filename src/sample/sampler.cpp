#include "sample/sampler.h"

#include <limits>
#include <map>
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

bool Sampler::allows_any(std::span<const std::uint64_t> allowed) const {
  const std::size_t whole = static_cast<std::size_t>(token_limit_) / 64;
  for (std::size_t word = 0; word < whole; ++word)
    if (allowed[word] != 0) return true;
  const std::uint64_t rest = (std::uint64_t{1} << (token_limit_ % 64)) - 1;
  return rest != 0 && (allowed[whole] & rest) != 0;
}

// Their weight is 0 at any temperature, and they rank behind all others.
void Sampler::forbid_others(std::span<const std::uint64_t> allowed) {
  for (std::size_t id = 0; id < scores_.size(); ++id)
    if ((allowed[id / 64] >> (id % 64) & 1) == 0) scores_[id] = -std::numeric_limits<float>::infinity();
  if (!allows_any(allowed))
    fail(Code::internal, "none of {} tokens may come next: what guides the answer is at fault",
         scores_.size());
}

Sampled Sampler::sample(std::span<const float> logits, std::int64_t position, const Draft* draft,
                        std::span<const std::uint64_t> allowed) {
  const auto u = [&](Purpose purpose) { return sample::uniform(params_.seed, position, purpose); };
  score_tokens(choosable(logits), params_, history_, scores_);
  if (!allowed.empty()) forbid_others(allowed);
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
  if (params_.logprob_count > 0)
    out.logprobs = measure_logprobs(logits, out.token, params_.logprob_count, token_limit_);
  return out;
}

Sampled Sampler::note_chosen(TokenId token, const Draft* draft) {
  history_.note(token);
  return {token, draft != nullptr && draft->token == token, std::nullopt};
}

std::vector<Seen> Sampler::seen() const {
  std::map<TokenId, Seen> all;
  for (const LogitBias& entry : params_.logit_bias) all[entry.id] = {entry.id, -1, entry.bias};
  if (params_.penalises())
    history_.for_each([&](TokenId token, std::int64_t count) {
      Seen& seen = all.try_emplace(token, Seen{token, -1, 0}).first->second;
      seen.count = count;
    });
  std::vector<Seen> out;
  for (const auto& [token, seen] : all) out.push_back(seen);
  return out;
}

Draft Sampler::draft(std::span<const float> logits, std::int64_t position, bool draw) {
  score_tokens(choosable(logits), params_, history_, scores_);
  if (!draw || params_.greedy()) return {best_token(scores_), std::nullopt};
  Draft out{0, make_distribution(scores_, params_)};
  out.token = out.drawn_from->draw(sample::uniform(params_.seed, position, Purpose::draft));
  return out;
}

}  // namespace fourfold::sample
