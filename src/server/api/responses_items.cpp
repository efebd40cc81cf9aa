#include "server/api/responses_items.h"

#include "server/api/openai_parts.h"

namespace fourfold::server::api {

std::string_view id_prefix(EventKind kind) {
  return kind == EventKind::thinking ? "rs_" : kind == EventKind::text ? "msg_" : "fc_";
}

void write_part(JsonWriter& json, const ResponseItem& item, const LogprobForm& form, bool begun) {
  const bool says = item.kind == EventKind::text;
  json.begin_object().member("type", says ? "output_text" : "reasoning_text");
  json.member("text", begun ? std::string_view() : std::string_view(item.text));
  if (says) {
    json.key("annotations").begin_array().end_array().key("logprobs");
    write_logprob_list(json, begun ? std::vector<sample::Sampled>{} : item.logprobs, form.top_count,
                       *form.tokenizer);
  }
  json.end_object();
}

void write_item(JsonWriter& json, const ResponseItem& item, const LogprobForm& form, bool begun) {
  const std::string_view status = begun ? "in_progress" : item.complete ? "completed" : "incomplete";
  json.begin_object().member("id", item.id);
  if (item.kind == EventKind::call_begin) {
    json.member("type", "function_call").member("status", status);
    json.member("call_id", item.call_id).member("name", item.name);
    if (!item.space.empty()) json.member("namespace", item.space);
    json.member("arguments", begun ? std::string_view() : std::string_view(item.text));
  } else {
    const bool says = item.kind == EventKind::text;
    json.member("type", says ? "message" : "reasoning").member("status", status);
    if (says) {
      json.member("role", "assistant");
    } else {
      json.key("summary").begin_array().end_array();
    }
    json.key("content").begin_array();
    if (!begun) write_part(json, item, form);
    json.end_array();
  }
  json.end_object();
}

}  // namespace fourfold::server::api
