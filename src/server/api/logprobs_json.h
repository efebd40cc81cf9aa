// Log-probabilities and ids of tokens as /v1/completions and vLLM's extensions show them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "sample/sampler.h"
#include "text/tokenizer.h"

namespace fourfold::server::api {

// What a token is called: its text, whose bytes need not be characters, or "token_id:5".
class TokenNames {
 public:
  TokenNames(const text::Tokenizer& tokenizer, bool as_ids) : tokenizer_(&tokenizer), as_ids_(as_ids) {}
  std::string operator()(text::TokenId id) const;
  // Characters of its text.
  std::size_t length(text::TokenId id) const;

 private:
  const text::Tokenizer* tokenizer_;
  bool as_ids_;
};

// A prompt's tokens beside those of its answer; the first has no log-probability.
std::vector<sample::Sampled> echoed_tokens(std::span<const text::TokenId> prompt,
                                           const std::vector<sample::Logprobs>& logprobs);

// OpenAI's four lists of equal length: tokens, token_logprobs, top_logprobs, text_offset. `offset` is where
// the first token's text begins, and is moved on.
void write_text_logprobs(JsonWriter& json, const std::vector<sample::Sampled>& tokens, int top_count,
                         const TokenNames& names, std::size_t& offset);

// vLLM's prompt_logprobs: null for the first token, then an object of id, {logprob, rank, decoded_token}: the
// token itself, then the most probable ones.
void write_prompt_logprobs(JsonWriter& json, const std::vector<sample::Logprobs>& logprobs, int top_count,
                           const text::Tokenizer& tokenizer);

void write_ids(JsonWriter& json, std::span<const text::TokenId> ids);

}  // namespace fourfold::server::api
