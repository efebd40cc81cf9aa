// A model that is only its words, and exchanges run over answers that are written down.
#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "server/api/form_cache.h"
#include "server/api/response_store.h"
#include "server/exchange.h"
#include "text/jinja/json_value.h"

namespace fourfold::server {

inline constexpr std::int64_t kTestContext = 600;

inline text::ChatTemplate golden_template(const std::string& name) {
  const std::string path = FOURFOLD_SOURCE_DIR "/tests/golden/text/templates/" + name + ".jinja";
  std::FILE* file = std::fopen(path.c_str(), "rb");
  std::string source(1 << 16, '\0');
  source.resize(std::fread(source.data(), 1, source.size(), file));
  std::fclose(file);
  return text::ChatTemplate::parse(source, "/secret/folder/chat_template.jinja");
}

inline const ServedModel& test_model() {
  static const ServedModel model = [] {
    const std::string golden = FOURFOLD_SOURCE_DIR "/tests/golden/text";
    ServedModel out{.names = {"tiny", "other-name"},
                    .created = 1700000000,
                    .tokenizer = text::Tokenizer::load(golden + "/qwen35.tokenizer.json"),
                    .chat_template = {},
                    .limits = {},
                    .defaults = {},
                    .stop_ids = {}};
    out.chat_template = golden_template("tool_xml");
    out.limits = {.vocab_size = 1024, .position_limit = kTestContext, .can_draft = false};
    out.defaults.temperature = 0.6;
    out.stop_ids = {*out.tokenizer.added_token("<|im_end|>"), *out.tokenizer.added_token("<|endoftext|>")};
    out.token_limit = out.tokenizer.id_limit();
    api::prepare_forms(out);
    out.responses = std::make_shared<api::ResponseStore>(1 << 20);
    return out;
  }();
  return model;
}

// The body and status of a refusal; "" and 200 where there is none.
inline HttpError refusal(std::string_view route, std::string_view body) {
  try {
    make_exchange(route, body, test_model())->submissions();
  } catch (const Error& error) {
    return error_answer(route, error);
  }
  return {200, ""};
}

inline std::vector<text::TokenId> tokens_of(std::string_view text) {
  return test_model().tokenizer.encode(text);
}

struct Script {
  std::string answer;
  engine::Finish finish = engine::Finish::stop_id;
  std::size_t tokens_a_step = 1;
  engine::Trouble trouble = engine::Trouble::none;  // of Finish::failed
};

// Gives every choice the scripted answer, one step of each in turn; the bytes that were sent, or the body.
inline std::string run_script(Exchange& exchange, const Script& script) {
  const auto submissions = exchange.submissions();
  std::vector<text::TokenId> ids = tokens_of(script.answer);
  if (script.finish == engine::Finish::stop_id) ids.push_back(test_model().stop_ids.front());
  std::string out = exchange.begin();
  for (std::size_t at = 0; at <= ids.size(); at += script.tokens_a_step) {
    for (std::size_t choice = 0; choice < submissions.size(); ++choice) {
      if (exchange.satisfied(choice)) continue;
      const std::size_t end = std::min(ids.size(), at + script.tokens_a_step);
      if (at == end && at != ids.size()) continue;
      engine::Delivery delivery;
      for (std::size_t i = at; i < end; ++i) {
        sample::Sampled token{.token = ids[i], .draft_accepted = false, .logprobs = {}};
        if (submissions[choice].request.params.logprob_count > 0)
          token.logprobs = sample::Logprobs{{ids[i], -0.5}, {{ids[i], -0.5}, {ids[i] / 2, -1.5}}};
        delivery.tokens.push_back(token);
      }
      const std::vector<text::TokenId>& prompt = submissions[choice].request.prompt;
      if (at == 0 && submissions[choice].request.prompt_logprobs)
        for (std::size_t i = 1; i < prompt.size(); ++i)
          delivery.prompt_logprobs.push_back({{prompt[i], -2.5}, {{7, -0.25}, {prompt[i], -2.5}}, 2});
      delivery.usage.prompt_count = std::ssize(prompt);
      delivery.usage.cached_count = 3;
      if (end == ids.size()) {
        delivery.finish = script.finish;
        if (script.finish == engine::Finish::failed) delivery.error = "logits are not finite";
        delivery.trouble = script.trouble;
      }
      out += exchange.take(choice, delivery);
    }
    if (at + script.tokens_a_step >= ids.size()) break;
  }
  EXPECT_TRUE(exchange.done());
  return exchange.streams() ? out : exchange.body();
}

// Ids and times are new every time; golden answers call them ID and 0.
inline std::string settled(std::string text) {
  static const std::regex id("(chatcmpl-|cmpl-|call_|resp_|msg_|rs_|fc_|toolu_)[0-9a-f]{24}");
  static const std::regex created("\"(created|created_at)\":[0-9]+");
  return std::regex_replace(std::regex_replace(text, id, "$1ID"), created, "\"$1\":0");
}

inline std::string ask(std::string_view route, std::string_view body, const Script& script) {
  const auto exchange = make_exchange(route, body, test_model());
  return settled(run_script(*exchange, script));
}

inline text::jinja::Value parsed(std::string_view json) {
  return text::jinja::parse_json(json, "answer", text::jinja::JsonRules::request);
}

// The prompt a request becomes.
inline std::string prompt_of(std::string_view route, std::string_view body) {
  return test_model().tokenizer.decode(
      make_exchange(route, body, test_model())->submissions()[0].request.prompt);
}

// The names of what it does not get, with a blank behind each.
inline std::string notes_of(std::string_view route, std::string_view body) {
  const auto exchange = make_exchange(route, body, test_model());
  std::string out;
  for (const api::Note& note : exchange->notes.all()) out += note.name + " ";
  return out;
}

// The value at a path like "choices.0.message.content".
inline text::jinja::Value at(const text::jinja::Value& value, std::string_view path) {
  const text::jinja::Value* here = &value;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string name(path.substr(0, dot));
    path.remove_prefix(std::min(path.size(), dot + 1));
    if (here->is_sequence()) {
      const auto index = static_cast<std::size_t>(std::stoul(name));
      if (index >= here->sequence()->items.size()) return text::jinja::Value("(missing)");
      here = &here->sequence()->items[index];
    } else {
      here = here->is_dict() ? here->dict()->find(std::string_view(name)) : nullptr;
    }
    if (here == nullptr) return text::jinja::Value("(missing)");
  }
  return *here;
}

inline std::string text_at(const text::jinja::Value& value, std::string_view path) {
  const auto found = at(value, path);
  return found.is_text() ? found.text() : found.is_none() ? "(null)" : "(not text)";
}

}  // namespace fourfold::server
