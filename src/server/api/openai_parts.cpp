#include "server/api/openai_parts.h"

#include "server/api/logprobs_json.h"
#include "server/http_message.h"

namespace fourfold::server::api {
namespace {

void write_token(JsonWriter& json, const sample::TokenLogprob& token, const text::Tokenizer& tokenizer,
                 bool as_id) {
  const std::string_view bytes = tokenizer.token_bytes(token.id);
  json.member("token", TokenNames(tokenizer, as_id)(token.id))
      .member("logprob", token.logprob)
      .key("bytes")
      .begin_array();
  for (const char byte : bytes) json.value(static_cast<int>(static_cast<unsigned char>(byte)));
  json.end_array();
}

}  // namespace

void write_usage(JsonWriter& json, const TokenCounts& counts) {
  json.begin_object();
  json.member("prompt_tokens", counts.prompt).member("completion_tokens", counts.answer);
  json.member("total_tokens", counts.prompt + counts.answer);
  json.key("prompt_tokens_details").begin_object().member("cached_tokens", counts.cached).end_object();
  json.key("completion_tokens_details").begin_object().member("reasoning_tokens", counts.thinking);
  // Of drafts by the model's own MTP layer; absent where none was verified.
  if (counts.drafts_verified > 0)
    json.member("accepted_prediction_tokens", counts.drafts_accepted)
        .member("rejected_prediction_tokens", counts.drafts_verified - counts.drafts_accepted);
  json.end_object();
  json.end_object();
}

void write_chat_logprobs(JsonWriter& json, const std::vector<sample::Sampled>& tokens, int top_count,
                         const text::Tokenizer& tokenizer, bool tokens_as_ids) {
  write_logprob_list(json.begin_object().key("content"), tokens, top_count, tokenizer, tokens_as_ids);
  json.end_object();
}

void write_logprob_list(JsonWriter& json, const std::vector<sample::Sampled>& tokens, int top_count,
                        const text::Tokenizer& tokenizer, bool tokens_as_ids) {
  json.begin_array();
  for (const sample::Sampled& token : tokens) {
    if (!token.logprobs) continue;
    json.begin_object();
    write_token(json, token.logprobs->chosen, tokenizer, tokens_as_ids);
    json.key("top_logprobs").begin_array();
    for (std::size_t i = 0; i < token.logprobs->best.size() && i < static_cast<std::size_t>(top_count); ++i) {
      json.begin_object();
      write_token(json, token.logprobs->best[i], tokenizer, tokens_as_ids);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

std::string failure_body(const std::string& message, int status, std::string_view code) {
  return error_body(ErrorShape::openai, status, message, code);
}

}  // namespace fourfold::server::api
