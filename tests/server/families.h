// Models with a family's own template and tokens, and what every protocol makes of what they say.
#pragma once

#include <boost/json.hpp>

#include "json/parse.h"
#include "tests/server/support.h"

namespace fourfold::server {

namespace bj = boost::json;

// The small vocabulary with a family's own tokens behind it.
inline text::Tokenizer tokenizer_with(const std::vector<std::string>& special,
                                      const std::vector<std::string>& plain,
                                      const std::vector<std::string>& without) {
  bj::value file = json::parse_file(FOURFOLD_SOURCE_DIR "/tests/golden/text/qwen35.tokenizer.json",
                                    {.text_bytes_max = std::size_t{1} << 24});
  bj::array& added = file.as_object().at("added_tokens").as_array();
  for (bj::value& token : added)
    for (const std::string& content : without)
      if (token.as_object().at("content").as_string() == content)
        token.as_object()["content"] = "no " + content;
  std::int64_t id = added.back().as_object().at("id").as_int64();
  const auto add = [&](const std::string& content, bool is_special) {
    for (const bj::value& known : added)
      if (known.as_object().at("content").as_string() == content) return;
    added.push_back(bj::object{{"id", ++id},
                               {"content", content},
                               {"single_word", false},
                               {"lstrip", false},
                               {"rstrip", false},
                               {"normalized", false},
                               {"special", is_special}});
  };
  for (const std::string& content : special) add(content, true);
  for (const std::string& content : plain) add(content, false);
  return text::Tokenizer::parse(bj::serialize(file), "tokenizer.json");
}

struct Family {
  std::string name;
  std::vector<std::string> special, plain;
  std::string stop;  // one of the special ones
};

// without: tokens of the small vocabulary that the family does not have.
inline ServedModel model_of(const Family& family, const std::vector<std::string>& without = {}) {
  ServedModel out{.names = {"tiny"},
                  .created = 1700000000,
                  .tokenizer = tokenizer_with(family.special, family.plain, without),
                  .chat_template = {},
                  .limits = {},
                  .defaults = {},
                  .stop_ids = {}};
  out.chat_template = text::ChatTemplate::parse(
      json::read_text_file(FOURFOLD_SOURCE_DIR "/tests/golden/text/families/" + family.name + ".jinja",
                           1 << 20),
      "chat_template.jinja");
  out.chat_template->define("bos_token", "");
  out.chat_template->define("eos_token", family.stop);
  out.limits = {.vocab_size = 2048, .position_limit = 8192, .can_draft = false};
  out.stop_ids = {*out.tokenizer.added_token(family.stop)};
  out.token_limit = out.tokenizer.id_limit();
  api::prepare_forms(out);
  out.responses = std::make_shared<api::ResponseStore>(1 << 20);
  return out;
}

// The answer of a model that says this, in steps of so many tokens.
inline std::string answer_of(const ServedModel& model, std::string_view route, const std::string& body,
                             const std::string& says, std::size_t step, bool ends = true) {
  const auto exchange = make_exchange(route, body, model);
  exchange->submissions();
  std::vector<text::TokenId> ids = model.tokenizer.encode(says);
  if (ends) ids.push_back(model.stop_ids.front());
  std::string out = exchange->begin();
  for (std::size_t at = 0; at < ids.size() && !exchange->satisfied(0); at += step) {
    engine::Delivery delivery;
    for (std::size_t i = at; i < std::min(ids.size(), at + step); ++i)
      delivery.tokens.push_back({.token = ids[i], .draft_accepted = false, .logprobs = {}});
    if (at + step >= ids.size())
      delivery.finish = ends ? engine::Finish::stop_id : engine::Finish::max_tokens;
    out += exchange->take(0, delivery);
  }
  EXPECT_TRUE(exchange->done());
  return settled(exchange->streams() ? out : exchange->body());
}

inline constexpr std::string_view kChat = "/v1/chat/completions", kResponses = "/v1/responses",
                                  kMessages = "/v1/messages";
inline constexpr std::string_view kParameters =
    R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]})";

inline std::string chat_body(const std::string& more = "") {
  return R"({"messages": [{"role": "user", "content": "Rome?"}], "tools": [{"type": "function", "function":)"
         R"( {"name": "weather", "description": "d", "parameters": )" +
         std::string(kParameters) + "}}]" + more + "}";
}
inline std::string responses_body(const std::string& more = "") {
  return R"({"input": "Rome?", "tools": [{"type": "function", "name": "weather", "description": "d", "parameters": )" +
         std::string(kParameters) + "}]" + more + "}";
}
inline std::string messages_body(const std::string& more = "") {
  return R"({"max_tokens": 500, "thinking": {"type": "enabled"}, "messages": [{"role": "user", "content": "Rome?"}],)"
         R"( "tools": [{"name": "weather", "description": "d", "input_schema": )" +
         std::string(kParameters) + "}]" + more + "}";
}

// What one call of weather looks like in each protocol, behind a thought and a word.
inline void expect_call(const ServedModel& model, const std::string& says) {
  const std::string arguments = R"({"city": "Rome", "days": 3})";
  for (const std::size_t step : {1, 2, 5, 1000}) {
    SCOPED_TRACE(step);
    const auto chat = parsed(answer_of(model, kChat, chat_body(), says, step));
    EXPECT_EQ(text_at(chat, "choices.0.message.reasoning_content"), "It rains?");
    EXPECT_EQ(text_at(chat, "choices.0.message.content"), "I look.");
    EXPECT_EQ(text_at(chat, "choices.0.message.tool_calls.0.function.name"), "weather");
    EXPECT_EQ(text_at(chat, "choices.0.message.tool_calls.0.function.arguments"), arguments);
    EXPECT_EQ(text_at(chat, "choices.0.message.tool_calls.1"), "(missing)");
    EXPECT_EQ(text_at(chat, "choices.0.finish_reason"), "tool_calls");
    const auto response = parsed(answer_of(model, kResponses, responses_body(), says, step));
    EXPECT_EQ(text_at(response, "output.0.type"), "reasoning");
    EXPECT_EQ(text_at(response, "output.1.content.0.text"), "I look.");
    EXPECT_EQ(text_at(response, "output.2.name"), "weather");
    EXPECT_EQ(text_at(response, "output.2.arguments"), arguments);
    const auto message = parsed(answer_of(model, kMessages, messages_body(), says, step));
    EXPECT_EQ(text_at(message, "content.0.thinking"), "It rains?");
    EXPECT_EQ(text_at(message, "content.1.text"), "I look.");
    EXPECT_EQ(text_at(message, "content.2.name"), "weather");
    EXPECT_EQ(text_at(message, "content.2.input.city"), "Rome");
    EXPECT_EQ(text_at(message, "stop_reason"), "tool_use");
  }
}

// The prompt of a second question: a thought, a call, its result.
inline std::string history_prompt(const ServedModel& model) {
  const std::string body =
      R"({"messages": [{"role": "user", "content": "Rome?"}, {"role": "assistant", "content": "",
    "reasoning_content": "A thought.", "tool_calls": [{"id": "call_1", "type": "function", "function":
    {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}]}, {"role": "tool", "tool_call_id": "call_1",
    "content": "rain"}]})";
  return model.tokenizer.decode(make_exchange(kChat, body, model)->submissions()[0].request.prompt);
}

// A call that must come may be written, and nothing else at its beginning.
inline void expect_forced(const ServedModel& model, const std::string& before, const std::string& call) {
  const auto exchange = make_exchange(kChat, chat_body(R"(, "tool_choice": "required")"), model);
  auto submissions = exchange->submissions();
  auto& guide = submissions[0].guide;
  ASSERT_NE(guide, nullptr);
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(model.token_limit + 63) / 64);
  const auto allows = [&](text::TokenId id) {
    guide->allowed(bits);
    return (bits[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
  };
  for (const text::TokenId id : model.tokenizer.encode(before)) {
    ASSERT_TRUE(allows(id)) << model.tokenizer.token_bytes(id);
    guide->accept(id);
  }
  EXPECT_FALSE(allows(model.tokenizer.encode("I")[0]));
  for (const text::TokenId id : model.tokenizer.encode(call)) {
    ASSERT_TRUE(allows(id)) << model.tokenizer.token_bytes(id);
    EXPECT_FALSE(allows(model.stop_ids[0]));
    guide->accept(id);
  }
  EXPECT_TRUE(allows(model.stop_ids[0]));
}

}  // namespace fourfold::server
