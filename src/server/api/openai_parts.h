// What OpenAI's completion protocols write alike.
#pragma once

#include <ctime>
#include <string>

#include "base/json_writer.h"
#include "server/api/answer_exchange.h"
#include "server/api/request_error.h"

namespace fourfold::server::api {

void write_usage(JsonWriter& json, const TokenCounts& counts);

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}]} of chat.
void write_chat_logprobs(JsonWriter& json, const std::vector<sample::Sampled>& tokens, int top_count,
                         const text::Tokenizer& tokenizer, bool tokens_as_ids = false);

// The list alone, as responses have it.
void write_logprob_list(JsonWriter& json, const std::vector<sample::Sampled>& tokens, int top_count,
                        const text::Tokenizer& tokenizer, bool tokens_as_ids = false);

// Of an error that ended an answer that had begun.
std::string failure_body(const std::string& message, int status, std::string_view code);

}  // namespace fourfold::server::api
