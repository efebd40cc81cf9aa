#include "server/api/logprobs_json.h"

#include <set>

#include "base/format.h"
#include "base/utf8.h"

namespace fourfold::server::api {
namespace {

void write_best(JsonWriter& json, const sample::Sampled& token, int top_count, const TokenNames& names) {
  if (!token.logprobs) {
    json.value(nullptr);
    return;
  }
  json.begin_object();
  std::set<std::string> written;  // parts of characters look alike
  for (std::size_t i = 0; i < token.logprobs->best.size() && i < static_cast<std::size_t>(top_count); ++i) {
    const auto& best = token.logprobs->best[i];
    const auto [name, is_new] = written.insert(names(best.id));
    if (is_new) json.member(*name, best.logprob);
  }
  json.end_object();
}

}  // namespace

std::string TokenNames::operator()(text::TokenId id) const {
  return as_ids_ ? fourfold::format("token_id:{}", id) : repaired(tokenizer_->token_bytes(id));
}

std::size_t TokenNames::length(text::TokenId id) const {
  return count_code_points(repaired(tokenizer_->token_bytes(id)));
}

std::vector<sample::Sampled> echoed_tokens(std::span<const text::TokenId> prompt,
                                           const std::vector<sample::Logprobs>& logprobs) {
  std::vector<sample::Sampled> out;
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    out.push_back({prompt[i], false, std::nullopt});
    if (i > 0 && i <= logprobs.size()) out.back().logprobs = logprobs[i - 1];
  }
  return out;
}

void write_text_logprobs(JsonWriter& json, const std::vector<sample::Sampled>& tokens, int top_count,
                         const TokenNames& names, std::size_t& offset) {
  json.begin_object().key("tokens").begin_array();
  for (const auto& token : tokens) json.value(names(token.token));
  json.end_array().key("token_logprobs").begin_array();
  for (const auto& token : tokens) {
    if (token.logprobs) {
      json.value(token.logprobs->chosen.logprob);
    } else {
      json.value(nullptr);
    }
  }
  json.end_array().key("top_logprobs").begin_array();
  for (const auto& token : tokens) write_best(json, token, top_count, names);
  json.end_array().key("text_offset").begin_array();
  for (const auto& token : tokens) {
    json.value(offset);
    offset += names.length(token.token);
  }
  json.end_array().end_object();
}

void write_prompt_logprobs(JsonWriter& json, const std::vector<sample::Logprobs>& logprobs, int top_count,
                           const text::Tokenizer& tokenizer) {
  const TokenNames names(tokenizer, false);
  const auto write = [&](const sample::TokenLogprob& token, std::int64_t rank) {
    json.key(fourfold::format("{}", token.id)).begin_object().member("logprob", token.logprob);
    json.member("rank", rank).member("decoded_token", names(token.id)).end_object();
  };
  json.begin_array().value(nullptr);
  for (const sample::Logprobs& token : logprobs) {
    json.begin_object();
    write(token.chosen, token.rank);
    for (std::size_t i = 0; i < token.best.size() && i < static_cast<std::size_t>(top_count); ++i)
      if (token.best[i].id != token.chosen.id) write(token.best[i], static_cast<std::int64_t>(i) + 1);
    json.end_object();
  }
  json.end_array();
}

void write_ids(JsonWriter& json, std::span<const text::TokenId> ids) {
  json.begin_array();
  for (const text::TokenId id : ids) json.value(id);
  json.end_array();
}

}  // namespace fourfold::server::api
