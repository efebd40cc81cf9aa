// The items of a response: what the answer of /v1/responses is a list of.
#pragma once

#include "base/json_writer.h"
#include "server/api/answer_exchange.h"

namespace fourfold::server::api {

struct ResponseItem {
  EventKind kind;  // thinking, text or call_begin
  std::string id;
  std::string text = {};
  std::string space = {}, name = {}, call_id = {};  // of a call; space: the namespace, empty without one
  bool complete = true;
  std::vector<sample::Sampled> logprobs = {};  // of a text, where they were asked for
};

// How much of the alternatives is written, and by whose tokens.
struct LogprobForm {
  int top_count;
  const text::Tokenizer* tokenizer;
};

std::string_view id_prefix(EventKind kind);
// The part of a text or a thought; `begun`: it is announced, and empty as yet.
void write_part(JsonWriter& json, const ResponseItem& item, const LogprobForm& form, bool begun = false);
void write_item(JsonWriter& json, const ResponseItem& item, const LogprobForm& form, bool begun = false);

}  // namespace fourfold::server::api
