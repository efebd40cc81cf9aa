// /v1/chat/completions.
#include "base/sampling_limits.h"
#include "server/api/guides.h"
#include "server/api/logprobs_json.h"
#include "server/api/openai_parts.h"
#include "server/api/routes.h"

namespace fourfold::server::api {
namespace {

struct ChatPlan {
  Plan plan;
  bool show_thinking = true;
};

class ChatExchange final : public AnswerExchange {
 public:
  ChatExchange(const ServedModel& model, ChatPlan plan, Notes& noted)
      : AnswerExchange(model, std::move(plan.plan), noted),
        id_(new_id("chatcmpl-")),
        created_(std::time(nullptr)),
        show_thinking_(plan.show_thinking),
        call_index_(choices().size(), -1) {}

 private:
  void begin_chunk(JsonWriter& json, std::string_view object) const {
    json.begin_object();
    json.member("id", id_).member("object", object).member("created", created_);
    json.member("model", model_name()).key("choices").begin_array();
  }

  // One chunk of one choice; `write` fills the delta. The first one has none of its tokens.
  template <class Write>
  std::string chunk(std::size_t index, const Write& write, std::string_view finish_reason = {},
                    const std::vector<sample::Sampled>& logprobs = {}, bool is_first = false) {
    JsonWriter json;
    begin_chunk(json, "chat.completion.chunk");
    json.begin_object().member("index", index).key("delta").begin_object();
    write(json);
    json.end_object().key("logprobs");
    if (logprobs.empty()) {
      json.value(nullptr);
    } else {
      write_chat_logprobs(json, logprobs, plan().generation.top_logprobs, model().tokenizer,
                          plan().generation.tokens_as_ids);
    }
    if (plan().generation.token_ids && !is_first) write_ids(json.key("token_ids"), choice(index).take_ids());
    json.key("finish_reason");
    if (finish_reason.empty()) {
      json.value(nullptr);
    } else {
      json.value(finish_reason);
    }
    json.end_object().end_array();
    if (plan().generation.usage_always) {
      write_usage(json.key("usage"), counts());
    } else if (plan().generation.usage_at_end) {
      json.member("usage", nullptr);
    }
    if (plan().generation.token_ids && is_first)
      write_ids(json.key("prompt_token_ids"), prompt_of(index).ids);
    json.end_object();
    return sse(json.finish());
  }

  std::string begin_choice(std::size_t index) override {
    return chunk(
        index, [](JsonWriter& json) { json.member("role", "assistant").member("content", ""); }, {}, {},
        /*is_first=*/true);
  }

  void write_delta(JsonWriter& json, std::size_t index, const AnswerEvent& event) {
    if (event.kind == EventKind::thinking) {
      json.member("reasoning_content", event.text).member("reasoning", event.text);
    } else if (event.kind == EventKind::text) {
      json.member("content", event.text);
    } else {
      const bool begins = event.kind == EventKind::call_begin;
      json.key("tool_calls").begin_array().begin_object().member("index", call_index_[index]);
      if (begins) json.member("id", event.call_id).member("type", "function");
      json.key("function").begin_object();
      if (begins) json.member("name", event.text);
      json.member("arguments", begins ? std::string_view() : std::string_view(event.text));
      json.end_object().end_object().end_array();
    }
  }

  std::string show(std::size_t index, const std::vector<AnswerEvent>& events) override {
    std::string out;
    for (const AnswerEvent& event : events) {
      if (event.kind == EventKind::call_end) continue;
      if (event.kind == EventKind::thinking && !show_thinking_) continue;
      if (event.kind == EventKind::call_begin) ++call_index_[index];
      out += chunk(
          index, [&](JsonWriter& json) { write_delta(json, index, event); }, {},
          choice(index).take_logprobs());
    }
    return out;
  }

  std::string end_choice(std::size_t index) override {
    return chunk(
        index, [](JsonWriter&) {}, finish_reason(choice(index)), choice(index).take_logprobs());
  }

  std::string end_stream() override {
    std::string out;
    if (plan().generation.usage_at_end) {
      JsonWriter json;
      begin_chunk(json, "chat.completion.chunk");
      json.end_array();
      write_usage(json.key("usage"), counts());
      json.end_object();
      out += sse(json.finish());
    }
    return out += sse("[DONE]");
  }

  std::string break_stream(const HttpError& error) override { return sse(error.body) + sse("[DONE]"); }

  std::string error_body(const std::string& message, int status, std::string_view code) const override {
    return failure_body(message, status, code);
  }

  static std::string_view finish_reason(const Choice& choice) {
    if (choice.ending() == Ending::length) return "length";
    return choice.made_calls() ? "tool_calls" : "stop";
  }

  void write_message(JsonWriter& json, const Choice& choice) const {
    std::string thinking, content;
    bool calls = false;
    for (const AnswerItem& item : choice.items()) {
      if (item.kind == EventKind::thinking) thinking += item.text;
      if (item.kind == EventKind::text) content += item.text;
      calls = calls || item.kind == EventKind::call_begin;
    }
    json.begin_object().member("role", "assistant").key("content");
    if (content.empty() && (calls || !thinking.empty())) {
      json.value(nullptr);
    } else {
      json.value(content);
    }
    json.member("refusal", nullptr);
    if (!thinking.empty() && show_thinking_)
      json.member("reasoning_content", thinking).member("reasoning", thinking);
    if (calls) {
      json.key("tool_calls").begin_array();
      for (const AnswerItem& item : choice.items()) {
        if (item.kind != EventKind::call_begin) continue;
        json.begin_object().member("id", item.call_id).member("type", "function");
        json.key("function").begin_object().member("name", item.name).member("arguments", item.text);
        json.end_object().end_object();
      }
      json.end_array();
    }
    json.end_object();
  }

  std::string whole() override {
    JsonWriter json;
    begin_chunk(json, "chat.completion");
    for (std::size_t i = 0; i < choices().size(); ++i) {
      json.begin_object().member("index", i).key("message");
      write_message(json, choice(i));
      json.key("logprobs");
      if (plan().generation.logprobs) {
        write_chat_logprobs(json, choice(i).take_logprobs(), plan().generation.top_logprobs,
                            model().tokenizer, plan().generation.tokens_as_ids);
      } else {
        json.value(nullptr);
      }
      if (plan().generation.token_ids) write_ids(json.key("token_ids"), choice(i).take_ids());
      json.member("finish_reason", finish_reason(choice(i))).end_object();
    }
    json.end_array();
    write_usage(json.key("usage"), counts());
    if (const auto count = plan().generation.prompt_logprobs)
      write_prompt_logprobs(json.key("prompt_logprobs"), prompt_logprobs(0), *count, model().tokenizer);
    if (plan().generation.token_ids) write_ids(json.key("prompt_token_ids"), prompt_of(0).ids);
    json.end_object();
    return json.finish();
  }

  std::string id_;
  std::int64_t created_;
  bool show_thinking_;
  std::vector<int> call_index_;  // of the call on its way, for each choice
};

void read_logprobs(Fields& fields, Generation& out) {
  out.logprobs = fields.boolean("logprobs").value_or(false);
  if (const auto count = fields.integer("top_logprobs", 0, kLogprobsMax)) {
    if (!out.logprobs && *count > 0)
      refuse("top_logprobs", "top_logprobs is {}, but logprobs is not true", *count);
    out.top_logprobs = static_cast<int>(*count);
  }
}

void refuse_other_media(Fields& fields) {
  if (const auto* modalities = fields.list("modalities"))
    for (const Json& one : *modalities)
      if (!one.is_text() || one.text() != "text")
        refuse("modalities", "modalities names {}; this model writes text only", shown(one));
}

ChatPlan read_chat(const Json& body, const ServedModel& model, const RequestContext& context, Notes& notes) {
  Fields fields(body, "", notes);
  require_model(fields, model);
  ChatPlan out;
  Plan& plan = out.plan;
  plan.generation = read_generation(fields, model);
  read_max_tokens(fields, "max_completion_tokens", plan.generation);
  read_logprobs(fields, plan.generation);
  Conversation conversation;
  conversation.turns = read_messages(fields);
  plan.tools = read_chat_tools(fields, conversation.tools);
  read_template_fields(fields, conversation);
  out.show_thinking = fields.boolean("include_reasoning").value_or(true);
  read_verbosity(fields, conversation);
  refuse_other_media(fields);
  // What was there before tools.
  if (const auto* functions = fields.list("functions"); functions != nullptr && !functions->empty())
    refuse("functions", "functions is not served here; send the same as tools");
  if (fields.find("web_search_options") != nullptr)
    notes.add(NoteKind::tool, "web_search_options", "web_search");
  fields.ignore({"function_call", "audio", "prompt_cache_options"});
  fields.only_false({"echo", "add_special_tokens"});
  plan.make_guide = make_guide(read_form(fields), plan.tools, plan.generation, model, context, notes);
  fields.finish();
  plan.split_thinking = true;
  plan.prompts.push_back(render_prompt(conversation, model));
  return out;
}

}  // namespace

std::unique_ptr<Exchange> make_chat_exchange(const Json& body, const ServedModel& model,
                                             const RequestContext& context, Notes& notes) {
  return std::make_unique<ChatExchange>(model, read_chat(body, model, context, notes), notes);
}

}  // namespace fourfold::server::api
