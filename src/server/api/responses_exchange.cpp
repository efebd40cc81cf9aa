// /v1/responses: the answer is a list of items, each of which is announced, filled and closed in a stream.
#include "server/api/done_exchange.h"
#include "server/api/json_value_writer.h"
#include "server/api/openai_parts.h"
#include "server/api/response_store.h"
#include "server/api/responses_input.h"
#include "server/api/responses_items.h"
#include "server/api/responses_tools.h"
#include "server/api/routes.h"

namespace fourfold::server::api {
namespace {

class ResponsesExchange final : public AnswerExchange {
 public:
  ResponsesExchange(const ServedModel& model, ResponsesRequest request, Notes& noted)
      : AnswerExchange(model, std::move(request.plan), noted),
        request_(std::move(request)),
        id_(new_id("resp_")),
        created_(std::time(nullptr)) {
    // A stream has it in its first two events and in its last.
    JsonWriter json;
    write_request(json.begin_object(), false);
    add_long_bytes(3 * json.end_object().finish().size());
  }

 private:
  LogprobForm logprob_form() const { return {plan().generation.top_logprobs, &model().tokenizer}; }

  // ---- the response object

  void write_optional(JsonWriter& json, std::string_view name, const std::optional<Json>& value,
                      std::string_view otherwise) const {
    json.key(name);
    write_value(json, value ? *value : text::jinja::parse_json(otherwise, "default"));
  }

  // brief: without what may be as long as the request.
  void write_request(JsonWriter& json, bool brief) const {
    const Generation& generation = plan().generation;
    const auto text_or_null = [&](std::string_view name, const std::optional<std::string>& text) {
      json.key(name);
      if (text) {
        json.value(*text);
      } else {
        json.value(nullptr);
      }
    };
    text_or_null("instructions", brief ? std::nullopt : request_.instructions);
    json.key("max_output_tokens");
    if (generation.max_tokens) {
      json.value(*generation.max_tokens);
    } else {
      json.value(nullptr);
    }
    json.member("model", model_name()).member("parallel_tool_calls", plan().tools.parallel);
    text_or_null("previous_response_id", request_.previous);
    json.key("reasoning").begin_object();
    text_or_null("effort", request_.effort);
    json.member("summary", nullptr).end_object();
    json.member("store", request_.store).member("background", false).member("truncation", "disabled");
    json.member("temperature", generation.params.temperature).member("top_p", generation.params.top_p);
    json.key("text").begin_object();
    write_optional(json, "format", brief ? std::nullopt : request_.format, R"({"type": "text"})");
    if (request_.verbosity) json.member("verbosity", *request_.verbosity);
    json.end_object().member("top_logprobs", generation.top_logprobs);
    write_optional(json, "tool_choice", brief ? std::nullopt : request_.tool_choice, "\"auto\"");
    write_optional(json, "tools", brief ? std::nullopt : request_.tools, "[]");
    write_optional(json, "metadata", brief ? std::nullopt : request_.metadata, "{}");
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

  struct Failure {
    std::string code, message;
  };
  void write_response(JsonWriter& json, std::string_view status, const Failure& error = {},
                      bool brief = false) const {
    json.begin_object().member("id", id_).member("object", "response").member("created_at", created_);
    json.member("status", status).key("error");
    if (error.code.empty()) {
      json.value(nullptr);
    } else {
      // OpenAI has a word of its own for what has no other.
      const std::string_view code = error.code == "internal" ? "server_error" : error.code;
      json.begin_object().member("code", code).member("message", error.message).end_object();
    }
    json.key("incomplete_details");
    if (status == "incomplete") {
      json.begin_object().member("reason", "max_output_tokens").end_object();
    } else {
      json.value(nullptr);
    }
    write_request(json, brief);
    json.key("output").begin_array();
    // As long as it grows, events tell of what there is.
    if (status != "in_progress")
      for (const ResponseItem& item : items_) write_item(json, item, logprob_form());
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

  std::string response_event(std::string_view type, std::string_view status, const Failure& error = {}) {
    return event(type, [&](JsonWriter& json) { write_response(json.key("response"), status, error); });
  }

  ResponseItem new_item(EventKind kind, const std::string& name, const std::string& call_id) const {
    ResponseItem item{.kind = kind, .id = new_id(id_prefix(kind)), .call_id = call_id};
    std::tie(item.space, item.name) = split_name(name, plan().tools);
    return item;
  }

  std::string open_item(const AnswerEvent& from) {
    const bool calls = from.kind == EventKind::call_begin;
    items_.push_back(new_item(from.kind, calls ? from.text : std::string(), from.call_id));
    open_ = true;
    std::string out = event("response.output_item.added", [&](JsonWriter& json) {
      write_item(json.member("output_index", items_.size() - 1).key("item"), items_.back(), logprob_form(),
                 true);
    });
    if (!calls)
      out += item_event("response.content_part.added", [&](JsonWriter& json) {
        write_part(json.key("part"), items_.back(), logprob_form(), true);
      });
    return out;
  }

  void write_logprobs(JsonWriter& json, const std::vector<sample::Sampled>& tokens) const {
    write_logprob_list(json.key("logprobs"), tokens, plan().generation.top_logprobs, model().tokenizer);
  }

  std::string close_item(bool complete) {
    if (!std::exchange(open_, false)) return {};
    ResponseItem& item = items_.back();
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
                          if (says) write_logprobs(json, item.logprobs);
                        });
      out += item_event("response.content_part.done",
                        [&](JsonWriter& json) { write_part(json.key("part"), item, logprob_form()); });
    }
    return out += event("response.output_item.done", [&](JsonWriter& json) {
             write_item(json.member("output_index", items_.size() - 1).key("item"), item, logprob_form());
           });
  }

  std::string begin_stream() override {
    std::string out = response_event("response.created", "in_progress");
    return out += response_event("response.in_progress", "in_progress");
  }

  // An event and no comment: Codex counts the time between events. Its first of this kind has told of tools
  // and instructions; they are not sent again every few seconds.
  std::string keep_alive() override {
    return event("response.in_progress",
                 [&](JsonWriter& json) { write_response(json.key("response"), "in_progress", {}, true); });
  }

  std::string show(std::size_t, const std::vector<AnswerEvent>& events) override {
    std::string out;
    for (const AnswerEvent& from : events) {
      const bool fills = from.kind == EventKind::call_arguments || from.kind == EventKind::call_end;
      if (!fills && (!open_ || from.kind == EventKind::call_begin || items_.back().kind != from.kind)) {
        // A call that is still open is broken: where its arguments are whole, its end has closed it.
        out += close_item(open_ && items_.back().kind != EventKind::call_begin);
        out += open_item(from);
      }
      if (from.kind == EventKind::call_end) out += close_item(true);
      if (from.kind == EventKind::call_end || from.kind == EventKind::call_begin) continue;
      items_.back().text += from.text;
      items_.back().logprobs.insert(items_.back().logprobs.end(), from.logprobs.begin(), from.logprobs.end());
      const bool says = from.kind == EventKind::text;
      out += item_event(says                               ? "response.output_text.delta"
                        : from.kind == EventKind::thinking ? "response.reasoning_text.delta"
                                                           : "response.function_call_arguments.delta",
                        [&](JsonWriter& json) {
                          json.member("delta", from.text);
                          if (says) write_logprobs(json, from.logprobs);
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
    keep();
    return response_event(status == "completed" ? "response.completed" : "response.incomplete", status);
  }

  std::string break_stream(const HttpError& error) override {
    const auto body = text::jinja::parse_json(error.body, "error");
    const auto& fields = *body.dict()->find("error")->dict();
    const Failure failure{fields.find("code")->text(), fields.find("message")->text()};
    std::string out = close_item(false);
    return out += response_event("response.failed", "failed", failure);
  }

  std::string error_body(const std::string& message, int status, std::string_view code) const override {
    return failure_body(message, status, code);
  }

  std::string whole() override {
    for (const AnswerItem& from : choices()[0].items()) {
      ResponseItem item = new_item(from.kind, from.name, from.call_id);
      item.text = from.text;
      item.complete = from.complete;
      item.logprobs = from.logprobs;
      items_.push_back(std::move(item));
    }
    // A call knows whether it is whole.
    if (!items_.empty() && items_.back().kind != EventKind::call_begin &&
        choices()[0].ending() == Ending::length)
      items_.back().complete = false;
    keep();
    return finished_body();
  }

  std::string finished_body() const {
    JsonWriter json;
    write_response(json, final_status());
    return json.finish();
  }

  // The conversation with its answer, for requests that go on from it. What is too large is not kept, and the
  // answer says so.
  void keep() {
    if (!request_.store) return;
    std::vector<Turn> turns = std::move(request_.turns);
    Turn answer{.role = "assistant"};
    for (const AnswerItem& item : choices()[0].items()) {
      if (item.kind == EventKind::thinking) answer.thinking = answer.thinking.value_or("") + item.text;
      if (item.kind == EventKind::text) answer.content += item.text;
      if (item.kind != EventKind::call_begin) continue;
      const Json arguments(std::string_view(item.text));
      add_call(answer, {.id = item.call_id, .name = item.name, .arguments = {}}, &arguments, "arguments");
    }
    turns.push_back(std::move(answer));
    request_.store = model().responses->put(request_.tenant, id_, {std::move(turns), finished_body()});
  }

  ResponsesRequest request_;  // without its plan
  std::string id_;
  std::int64_t created_;
  std::vector<ResponseItem> items_;
  bool open_ = false;  // the last item
  std::int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> make_responses_exchange(const Json& body, const ServedModel& model,
                                                  const RequestContext& context, Notes& notes) {
  return std::make_unique<ResponsesExchange>(
      model, read_responses(body, model, context, notes, PromptUse::answer), notes);
}

std::unique_ptr<Exchange> make_input_count_exchange(const Json& body, const ServedModel& model,
                                                    const RequestContext& context, Notes& notes) {
  const ResponsesRequest request = read_responses(body, model, context, notes, PromptUse::count);
  JsonWriter json;
  json.begin_object().member("object", "response.input_tokens");
  json.member("input_tokens", request.plan.prompts[0].ids.size()).end_object();
  return std::make_unique<DoneExchange>(json.finish());
}

}  // namespace fourfold::server::api
