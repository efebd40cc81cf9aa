// /v1/responses: the answer is a list of items, each of which is announced, filled and closed in a stream.
#include "server/api/json_value_writer.h"
#include "server/api/openai_parts.h"
#include "server/api/responses_input.h"
#include "server/api/routes.h"

namespace fourfold::server::api {
namespace {

struct Item {
  EventKind kind;  // thinking, text or call_begin
  std::string id;
  std::string text;
  std::string name, call_id;
  bool complete = true;
};

std::string_view id_prefix(EventKind kind) {
  return kind == EventKind::thinking ? "rs_" : kind == EventKind::text ? "msg_" : "fc_";
}

void write_part(JsonWriter& json, const Item& item, std::string_view text) {
  json.begin_object().member("type", item.kind == EventKind::text ? "output_text" : "reasoning_text");
  json.member("text", text);
  if (item.kind == EventKind::text)
    json.key("annotations").begin_array().end_array().key("logprobs").begin_array().end_array();
  json.end_object();
}

// begun: announced, and empty as yet.
void write_item(JsonWriter& json, const Item& item, bool begun = false) {
  const std::string_view status = begun ? "in_progress" : item.complete ? "completed" : "incomplete";
  json.begin_object().member("id", item.id);
  if (item.kind == EventKind::call_begin) {
    json.member("type", "function_call").member("status", status);
    json.member("call_id", item.call_id).member("name", item.name);
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
    if (!begun) write_part(json, item, item.text);
    json.end_array();
  }
  json.end_object();
}

class ResponsesExchange final : public AnswerExchange {
 public:
  ResponsesExchange(const ServedModel& model, ResponsesRequest request, Notes& noted)
      : AnswerExchange(model, std::move(request.plan), noted),
        request_(std::move(request)),
        id_(new_id("resp_")),
        created_(std::time(nullptr)) {}

 private:
  // ---- the response object

  void write_optional(JsonWriter& json, std::string_view name, const std::optional<Json>& value,
                      std::string_view otherwise) const {
    json.key(name);
    write_value(json, value ? *value : text::jinja::parse_json(otherwise, "default"));
  }

  void write_request(JsonWriter& json) const {
    const Generation& generation = plan().generation;
    const auto text_or_null = [&](std::string_view name, const std::optional<std::string>& text) {
      json.key(name);
      if (text) {
        json.value(*text);
      } else {
        json.value(nullptr);
      }
    };
    text_or_null("instructions", request_.instructions);
    json.key("max_output_tokens");
    if (generation.max_tokens) {
      json.value(*generation.max_tokens);
    } else {
      json.value(nullptr);
    }
    json.member("model", model_name()).member("parallel_tool_calls", plan().tools.parallel);
    json.member("previous_response_id", nullptr).key("reasoning").begin_object();
    text_or_null("effort", request_.effort);
    json.member("summary", nullptr).end_object();
    json.member("store", false).member("background", false).member("truncation", "disabled");
    json.member("temperature", generation.params.temperature).member("top_p", generation.params.top_p);
    json.key("text").begin_object();
    write_optional(json, "format", request_.format, R"({"type": "text"})");
    json.end_object();
    write_optional(json, "tool_choice", request_.tool_choice, "\"auto\"");
    write_optional(json, "tools", request_.tools, "[]");
    write_optional(json, "metadata", request_.metadata, "{}");
    json.member("user", nullptr);
  }

  void write_usage_of_response(JsonWriter& json) const {
    const TokenCounts tokens = counts();
    json.begin_object().member("input_tokens", tokens.prompt);
    json.key("input_tokens_details").begin_object().member("cached_tokens", tokens.cached).end_object();
    json.member("output_tokens", tokens.answer);
    json.key("output_tokens_details").begin_object().member("reasoning_tokens", tokens.thinking).end_object();
    json.member("total_tokens", tokens.prompt + tokens.answer).end_object();
  }

  void write_response(JsonWriter& json, std::string_view status, std::string_view error = {}) const {
    json.begin_object().member("id", id_).member("object", "response").member("created_at", created_);
    json.member("status", status).key("error");
    if (error.empty()) {
      json.value(nullptr);
    } else {
      json.begin_object().member("code", "server_error").member("message", error).end_object();
    }
    json.key("incomplete_details");
    if (status == "incomplete") {
      json.begin_object().member("reason", "max_output_tokens").end_object();
    } else {
      json.value(nullptr);
    }
    write_request(json);
    json.key("output").begin_array();
    for (const Item& item : items_) write_item(json, item);
    json.end_array().key("usage");
    if (status == "in_progress") {
      json.value(nullptr);
    } else {
      write_usage_of_response(json);
    }
    json.end_object();
  }

  std::string_view final_status() const {
    return choices()[0].ending() == Ending::length ? "incomplete" : "completed";
  }

  // ---- events

  template <class Write>
  std::string event(std::string_view type, const Write& write) {
    JsonWriter json;
    json.begin_object().member("type", type).member("sequence_number", sequence_++);
    write(json);
    json.end_object();
    return sse(type, json.finish());
  }

  template <class Write>
  std::string item_event(std::string_view type, const Write& write) {
    return event(type, [&](JsonWriter& json) {
      json.member("item_id", items_.back().id).member("output_index", items_.size() - 1);
      if (items_.back().kind != EventKind::call_begin) json.member("content_index", 0);
      write(json);
    });
  }

  std::string response_event(std::string_view type, std::string_view status, std::string_view error = {}) {
    return event(type, [&](JsonWriter& json) { write_response(json.key("response"), status, error); });
  }

  std::string open_item(const AnswerEvent& from) {
    const bool calls = from.kind == EventKind::call_begin;
    items_.push_back({.kind = from.kind,
                      .id = new_id(id_prefix(from.kind)),
                      .text = {},
                      .name = calls ? from.text : std::string(),
                      .call_id = from.call_id});
    open_ = true;
    std::string out = event("response.output_item.added", [&](JsonWriter& json) {
      write_item(json.member("output_index", items_.size() - 1).key("item"), items_.back(), true);
    });
    if (!calls)
      out += item_event("response.content_part.added",
                        [&](JsonWriter& json) { write_part(json.key("part"), items_.back(), ""); });
    return out;
  }

  std::string close_item(bool complete) {
    if (!std::exchange(open_, false)) return {};
    Item& item = items_.back();
    item.complete = complete;
    std::string out;
    if (item.kind == EventKind::call_begin) {
      out += item_event("response.function_call_arguments.done", [&](JsonWriter& json) {
        json.member("name", item.name).member("arguments", item.text);
      });
    } else {
      const bool says = item.kind == EventKind::text;
      out += item_event(says ? "response.output_text.done" : "response.reasoning_text.done",
                        [&](JsonWriter& json) {
                          json.member("text", item.text);
                          if (says) json.key("logprobs").begin_array().end_array();
                        });
      out += item_event("response.content_part.done",
                        [&](JsonWriter& json) { write_part(json.key("part"), item, item.text); });
    }
    return out += event("response.output_item.done", [&](JsonWriter& json) {
             write_item(json.member("output_index", items_.size() - 1).key("item"), item);
           });
  }

  std::string begin_stream() override {
    std::string out = response_event("response.created", "in_progress");
    return out += response_event("response.in_progress", "in_progress");
  }

  std::string show(std::size_t, const std::vector<AnswerEvent>& events) override {
    std::string out;
    for (const AnswerEvent& from : events) {
      const bool fills = from.kind == EventKind::call_arguments || from.kind == EventKind::call_end;
      if (!fills && (!open_ || from.kind == EventKind::call_begin || items_.back().kind != from.kind)) {
        out += close_item(true);
        out += open_item(from);
      }
      if (from.kind == EventKind::call_end) out += close_item(true);
      if (from.kind == EventKind::call_end || from.kind == EventKind::call_begin) continue;
      items_.back().text += from.text;
      const bool says = from.kind == EventKind::text;
      out += item_event(says                               ? "response.output_text.delta"
                        : from.kind == EventKind::thinking ? "response.reasoning_text.delta"
                                                           : "response.function_call_arguments.delta",
                        [&](JsonWriter& json) {
                          json.member("delta", from.text);
                          if (says) json.key("logprobs").begin_array().end_array();
                        });
    }
    return out;
  }

  std::string end_choice(std::size_t) override {
    const Choice& answer = choices()[0];
    return close_item(answer.ending() != Ending::length &&
                      (answer.items().empty() || answer.items().back().complete));
  }

  std::string end_stream() override {
    const std::string_view status = final_status();
    return response_event(status == "completed" ? "response.completed" : "response.incomplete", status);
  }

  std::string break_stream(const HttpError& error) override {
    const auto body = text::jinja::parse_json(error.body, "error");
    const std::string message = body.dict()->find("error")->dict()->find("message")->text();
    std::string out = close_item(false);
    return out += response_event("response.failed", "failed", message);
  }

  std::string error_body(const std::string& message, int status) const override {
    return failure_body(message, status);
  }

  std::string whole() override {
    for (const AnswerItem& item : choices()[0].items())
      items_.push_back(
          {item.kind, new_id(id_prefix(item.kind)), item.text, item.name, item.call_id, item.complete});
    if (!items_.empty() && choices()[0].ending() == Ending::length) items_.back().complete = false;
    JsonWriter json;
    write_response(json, final_status());
    return json.finish();
  }

  ResponsesRequest request_;  // without its plan
  std::string id_;
  std::int64_t created_;
  std::vector<Item> items_;
  bool open_ = false;  // the last item
  std::int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> make_responses_exchange(const Json& body, const ServedModel& model,
                                                  const RequestContext& context, Notes& notes) {
  return std::make_unique<ResponsesExchange>(model, read_responses(body, model, context, notes), notes);
}

}  // namespace fourfold::server::api
