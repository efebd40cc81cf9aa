// Anthropic's /v1/messages: the answer is a list of blocks, each of which is opened, filled and closed in a
// stream; and /v1/messages/count_tokens.
#include <algorithm>

#include "server/api/done_exchange.h"
#include "server/api/messages_input.h"
#include "server/api/request_error.h"
#include "server/api/routes.h"
#include "server/http_message.h"

namespace fourfold::server::api {
namespace {

class MessagesExchange final : public AnswerExchange {
 public:
  MessagesExchange(const ServedModel& model, Plan plan, Notes& noted)
      : AnswerExchange(model, std::move(plan), noted), id_(new_id("msg_")) {}

 private:
  void write_usage(JsonWriter& json) const {
    const TokenCounts tokens = counts();
    json.begin_object().member("input_tokens", tokens.prompt - tokens.cached);
    json.member("cache_creation_input_tokens", 0).member("cache_read_input_tokens", tokens.cached);
    json.member("output_tokens", tokens.answer).end_object();
  }

  // Half a call cannot be run: an answer that has no other has none.
  bool made_calls() const {
    return std::ranges::any_of(choices()[0].items(), [](const AnswerItem& item) {
      return item.kind == EventKind::call_begin && item.complete;
    });
  }

  std::string_view stop_reason() const {
    switch (choices()[0].ending()) {
      case Ending::length: return "max_tokens";
      case Ending::stop_string: return "stop_sequence";
      default: return made_calls() ? "tool_use" : "end_turn";
    }
  }

  void write_stop(JsonWriter& json) const {
    json.member("stop_reason", stop_reason()).key("stop_sequence");
    if (choices()[0].ending() == Ending::stop_string) {
      json.value(choices()[0].stop());
    } else {
      json.value(nullptr);
    }
  }

  void begin_message(JsonWriter& json) const {
    json.begin_object().member("id", id_).member("type", "message").member("role", "assistant");
    json.member("model", model_name()).key("content").begin_array();
  }

  template <class Write>
  std::string event(std::string_view type, const Write& write) const {
    JsonWriter json;
    json.begin_object().member("type", type);
    write(json);
    json.end_object();
    return sse(type, json.finish());
  }

  std::string begin_stream() override {
    return event("message_start",
                 [&](JsonWriter& json) {
                   begin_message(json.key("message"));
                   json.end_array().member("stop_reason", nullptr).member("stop_sequence", nullptr);
                   write_usage(json.key("usage"));
                   json.end_object();
                 }) +
           event("ping", [](JsonWriter&) {});
  }

  std::string keep_alive() override {
    return event("ping", [](JsonWriter&) {});
  }

  std::string open_block(const AnswerEvent& from) {
    open_ = from.kind;
    return event("content_block_start", [&](JsonWriter& json) {
      json.member("index", block_index_).key("content_block").begin_object();
      if (from.kind == EventKind::thinking) {
        json.member("type", "thinking").member("thinking", "").member("signature", "");
      } else if (from.kind == EventKind::text) {
        json.member("type", "text").member("text", "");
      } else {
        json.member("type", "tool_use").member("id", from.call_id).member("name", from.text);
        json.key("input").begin_object().end_object();
      }
      json.end_object();
    });
  }

  std::string close_block() {
    if (!open_) return {};
    open_.reset();
    const int index = block_index_++;
    return event("content_block_stop", [&](JsonWriter& json) { json.member("index", index); });
  }

  std::string show(std::size_t, const std::vector<AnswerEvent>& events) override {
    std::string out;
    for (const AnswerEvent& from : events) {
      const bool fills = from.kind == EventKind::call_arguments || from.kind == EventKind::call_end;
      if (!fills && (from.kind == EventKind::call_begin || open_ != from.kind)) {
        out += close_block();
        out += open_block(from);
      }
      if (from.kind == EventKind::call_end) out += close_block();
      if (from.kind == EventKind::call_end || from.kind == EventKind::call_begin) continue;
      const bool says = from.kind == EventKind::text, thinks = from.kind == EventKind::thinking;
      out += event("content_block_delta", [&](JsonWriter& json) {
        json.member("index", block_index_).key("delta").begin_object();
        json.member("type", says ? "text_delta" : thinks ? "thinking_delta" : "input_json_delta");
        json.member(says ? "text" : thinks ? "thinking" : "partial_json", from.text).end_object();
      });
    }
    return out;
  }

  std::string end_choice(std::size_t) override { return close_block(); }

  std::string end_stream() override {
    return event("message_delta",
                 [&](JsonWriter& json) {
                   write_stop(json.key("delta").begin_object());
                   write_usage(json.end_object().key("usage"));
                 }) +
           event("message_stop", [](JsonWriter&) {});
  }

  std::string break_stream(const HttpError& error) override { return sse("error", error.body); }

  std::string error_body(const std::string& message, int status, std::string_view code) const override {
    return server::error_body(ErrorShape::anthropic, status, message, code);
  }

  std::string whole() override {
    JsonWriter json;
    begin_message(json);
    for (const AnswerItem& item : choices()[0].items()) write_block(json, item);
    json.end_array();
    write_stop(json);
    write_usage(json.key("usage"));
    json.end_object();
    return json.finish();
  }

  void write_block(JsonWriter& json, const AnswerItem& item) const {
    json.begin_object();
    if (item.kind == EventKind::call_begin && !item.complete) {
      // Broken, or cut off: there is no input that could be written. What the model wrote is not dropped; it
      // is in the words that a conversation has for it.
      json.member("type", "text").member("text", words_of_broken_call(item.name, item.text));
    } else if (item.kind == EventKind::thinking) {
      json.member("type", "thinking").member("thinking", item.text).member("signature", "");
    } else if (item.kind == EventKind::text) {
      json.member("type", "text").member("text", item.text);
    } else {
      json.member("type", "tool_use").member("id", item.call_id).member("name", item.name).key("input");
      json.json(item.text);  // a whole object, in the digits a stream has
    }
    json.end_object();
  }

  std::string id_;
  std::optional<EventKind> open_;
  int block_index_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> make_messages_exchange(const Json& body, const ServedModel& model,
                                                 const RequestContext& context, Notes& notes) {
  return std::make_unique<MessagesExchange>(
      model, read_anthropic(body, model, context, notes, PromptUse::answer), notes);
}

std::unique_ptr<Exchange> make_count_exchange(const Json& body, const ServedModel& model,
                                              const RequestContext& context, Notes& notes) {
  const Plan plan = read_anthropic(body, model, context, notes, PromptUse::count);
  JsonWriter json;
  json.begin_object().member("input_tokens", plan.prompts[0].ids.size()).end_object();
  return std::make_unique<DoneExchange>(json.finish());
}

}  // namespace fourfold::server::api
