// /v1/completions: text that goes on, without a chat.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/sampling_limits.h"
#include "server/api/guides.h"
#include "server/api/logprobs_json.h"
#include "server/api/openai_parts.h"
#include "server/api/routes.h"

namespace fourfold::server::api {
namespace {

constexpr std::size_t kChoicesMax = 256;  // prompts times n

class CompletionsExchange final : public AnswerExchange {
 public:
  CompletionsExchange(const ServedModel& model, Plan plan, Notes& noted)
      : AnswerExchange(model, std::move(plan), noted),
        id_(new_id("cmpl-")),
        created_(std::time(nullptr)),
        offsets_(choices().size()),
        prompt_shown_(choices().size()) {}

 private:
  void begin_body(JsonWriter& json) const {
    json.begin_object().member("id", id_).member("object", "text_completion").member("created", created_);
    json.member("model", model_name()).key("choices").begin_array();
  }

  std::vector<sample::Sampled> prompt_tokens(std::size_t index) const {
    return echoed_tokens(prompt_of(index).ids, prompt_logprobs(index));
  }

  // tokens, ids: those whose text this is.
  void write_choice(JsonWriter& json, std::size_t index, std::string_view text,
                    const std::vector<sample::Sampled>& tokens, const std::vector<text::TokenId>& ids,
                    std::string_view finish_reason) {
    const Generation& generation = plan().generation;
    json.begin_object().member("index", index).member("text", text).key("logprobs");
    if (!generation.logprobs || (streams() && tokens.empty())) {
      json.value(nullptr);
    } else {
      write_text_logprobs(json, tokens, generation.top_logprobs,
                          TokenNames(model().tokenizer, generation.tokens_as_ids), offsets_[index]);
    }
    json.key("finish_reason");
    if (finish_reason.empty()) {
      json.value(nullptr);
    } else {
      json.value(finish_reason);
    }
    if (generation.prompt_logprobs)
      write_prompt_logprobs(json.key("prompt_logprobs"), prompt_logprobs(index), *generation.prompt_logprobs,
                            model().tokenizer);
    if (generation.token_ids) {
      write_ids(json.key("token_ids"), ids);
      if (!prompt_shown_[index]) write_ids(json.key("prompt_token_ids"), prompt_of(index).ids);
      prompt_shown_[index] = true;
    }
    json.end_object();
  }

  std::string chunk(std::size_t index, std::string_view text, const std::vector<sample::Sampled>& tokens,
                    const std::vector<text::TokenId>& ids, std::string_view finish_reason = {}) {
    JsonWriter json;
    begin_body(json);
    write_choice(json, index, text, tokens, ids, finish_reason);
    json.end_array();
    if (plan().generation.usage_always) {
      write_usage(json.key("usage"), counts());
    } else if (plan().generation.usage_at_end) {
      json.member("usage", nullptr);
    }
    json.end_object();
    return sse(json.finish());
  }

  std::string begin_choice(std::size_t index) override {
    if (!plan().generation.echo) return {};
    return chunk(index, prompt_of(index).text, prompt_tokens(index), {});
  }
  std::string show(std::size_t index, const std::vector<AnswerEvent>& events) override {
    std::string out;
    for (const AnswerEvent& event : events)
      out += chunk(index, event.text, choice(index).take_logprobs(), choice(index).take_ids());
    return out;
  }
  std::string end_choice(std::size_t index) override {
    return chunk(index, "", choice(index).take_logprobs(), choice(index).take_ids(),
                 finish_reason(choice(index)));
  }
  std::string end_stream() override {
    std::string out;
    if (plan().generation.usage_at_end) {
      JsonWriter json;
      begin_body(json);
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

  std::string whole() override {
    JsonWriter json;
    begin_body(json);
    for (std::size_t i = 0; i < choices().size(); ++i) {
      const bool echo = plan().generation.echo;
      std::string text = echo ? prompt_of(i).text : std::string();
      for (const AnswerItem& item : choice(i).items()) text += item.text;
      std::vector<sample::Sampled> tokens;
      if (echo && plan().generation.logprobs) tokens = prompt_tokens(i);
      std::ranges::move(choice(i).take_logprobs(), std::back_inserter(tokens));
      write_choice(json, i, text, tokens, choice(i).take_ids(), finish_reason(choice(i)));
    }
    json.end_array();
    write_usage(json.key("usage"), counts());
    json.end_object();
    return json.finish();
  }

  static std::string_view finish_reason(const Choice& choice) {
    return choice.ending() == Ending::length ? "length" : "stop";
  }

  std::string id_;
  std::int64_t created_;
  std::vector<std::size_t> offsets_;  // of the next token's text, for each choice
  std::vector<bool> prompt_shown_;    // its ids
};

// Each as it is read: of a list of prompts that are all too long, one is tokenised.
Prompt checked(Prompt prompt, const Generation& generation, const ServedModel& model) {
  if (!generation.truncate_prompt) answer_room(prompt, generation, model);
  return prompt;
}

Prompt prompt_of_text(const std::string& text, const ServedModel& model, bool special) {
  require_near_context(text.size(), "prompt", model);
  Prompt out{"prompt", model.tokenizer.encode(text, {.add_special_tokens = special}), text};
  if (out.ids.empty()) refuse("prompt", "prompt is empty; it must have at least one token");
  return out;
}

Prompt prompt_of_ids(const std::vector<Json>& list, const std::string& name, const ServedModel& model) {
  if (list.empty()) refuse("prompt", "{} is empty; it must have at least one token", name);
  Prompt out{"prompt", read_ids(list, name, model)};
  out.text = model.tokenizer.decode(out.ids);
  return out;
}

// A text, ids, or a list of either.
std::vector<Prompt> read_prompts(Fields& fields, const Generation& generation, const ServedModel& model) {
  const bool special = fields.boolean("add_special_tokens").value_or(true);
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr)
    refuse_missing("prompt", "prompt is missing; it must be a string, token ids, or an array of either");
  if (prompt->is_text()) return {prompt_of_text(prompt->text(), model, special)};
  if (!prompt->is_sequence())
    refuse("prompt", "prompt is {}; it must be a string, token ids, or an array of either", shown(*prompt));
  const std::vector<Json>& items = prompt->sequence()->items;
  if (items.empty()) refuse("prompt", "prompt is empty; it must have at least one token");
  if (items.front().is_number()) return {prompt_of_ids(items, "prompt", model)};
  if (items.size() > kChoicesMax)
    refuse("prompt", "prompt has {} texts; at most {}", items.size(), kChoicesMax);
  std::vector<Prompt> out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string place = fourfold::format("prompt[{}]", i);
    if (items[i].is_text()) {
      out.push_back(checked(prompt_of_text(items[i].text(), model, special), generation, model));
    } else if (items[i].is_sequence()) {
      out.push_back(checked(prompt_of_ids(items[i].sequence()->items, place, model), generation, model));
    } else {
      refuse("prompt", "{} is {}; it must be a string or token ids", place, shown(items[i]));
    }
  }
  return out;
}

}  // namespace

std::unique_ptr<Exchange> make_completions_exchange(const Json& body, const ServedModel& model,
                                                    const RequestContext& context, Notes& notes) {
  Fields fields(body, "", notes);
  require_model(fields, model);
  Plan plan;
  plan.generation = read_generation(fields, model);
  plan.prompts = read_prompts(fields, plan.generation, model);
  if (const auto count = fields.integer("logprobs", 0, kLogprobsMax)) {
    plan.generation.logprobs = true;
    plan.generation.top_logprobs = static_cast<int>(*count);
  }
  if (!fields.text("suffix").value_or("").empty())
    refuse("suffix", "suffix is not empty; this server does not fill in");
  const auto total = plan.prompts.size() * static_cast<std::size_t>(plan.generation.answer_count);
  if (total > kChoicesMax)
    refuse("n", "{} prompts with n = {} are {} answers; at most {}", plan.prompts.size(),
           plan.generation.answer_count, total, kChoicesMax);
  plan.make_guide = make_guide(read_form(fields), plan.tools, plan.generation, model, context, notes);
  fields.finish();
  return std::make_unique<CompletionsExchange>(model, std::move(plan), notes);
}

}  // namespace fourfold::server::api
