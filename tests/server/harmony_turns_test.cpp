// gpt-oss's template and its channels: calls and thoughts through every protocol, conversations, forms.
#include <gtest/gtest.h>

#include <bit>

#include "tests/server/families.h"

namespace fourfold::server {
namespace {

const std::vector<std::string> kHarmonyTokens{"<|start|>",     "<|end|>",    "<|message|>", "<|channel|>",
                                              "<|constrain|>", "<|return|>", "<|call|>"};

TEST(CallFormats, Harmony) {
  const ServedModel model = model_of({"gpt-oss", kHarmonyTokens, {}, "<|call|>"});
  EXPECT_EQ(model.chat_template->call_format(), text::CallFormat::harmony);
  const std::string thought = "<|channel|>analysis<|message|>It rains?<|end|><|start|>assistant";
  const std::string call =
      "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
      R"({"city": "Rome", "days": 3})";
  expect_call(model, thought + "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" + call);
  expect_forced(model, "", call);
  expect_forced(model, thought, call);
  const auto said =
      parsed(answer_of(model, kChat, chat_body(), thought + "<|channel|>final<|message|>Yes.", 1));
  EXPECT_EQ(text_at(said, "choices.0.message.content"), "Yes.");
  EXPECT_EQ(text_at(said, "choices.0.message.reasoning_content"), "It rains?");
  EXPECT_EQ(text_at(said, "choices.0.finish_reason"), "stop");
  // Cut off in the call: no whole arguments, and words for those that only take whole ones.
  const std::string half = call.substr(0, call.size() - 1);
  const auto cut = parsed(answer_of(model, kMessages, messages_body(), half, 1, false));
  EXPECT_EQ(text_at(cut, "content.0.text"),
            R"([a call of weather that is not whole: {"city": "Rome", "days": 3])");
  // A stop string ends the text, not the thoughts before it in one piece with it.
  const auto stopped = parsed(answer_of(model, kChat, chat_body(R"(, "stop": ["?<"])"),
                                        thought + "<|channel|>final<|message|><Yes?<No", 1));
  EXPECT_EQ(text_at(stopped, "choices.0.message.reasoning_content"), "It rains?");
  EXPECT_EQ(text_at(stopped, "choices.0.message.content"), "<Yes");
}

std::string harmony_prompt(const std::string& body) {
  static const ServedModel model = model_of({"gpt-oss", kHarmonyTokens, {}, "<|call|>"});
  return model.tokenizer.decode(make_exchange(kChat, body, model)->submissions()[0].request.prompt);
}

TEST(CallFormats, HarmonyConversations) {
  for (const auto& [asked, shown] :
       {std::pair("none", "low"), std::pair("minimal", "low"), std::pair("low", "low"),
        std::pair("medium", "medium"), std::pair("high", "high"), std::pair("max", "high")})
    EXPECT_NE(harmony_prompt(chat_body(fourfold::format(R"(, "reasoning_effort": "{}")", asked)))
                  .find(fourfold::format("Reasoning: {}\n", shown)),
              std::string::npos)
        << asked;
  EXPECT_NE(harmony_prompt(chat_body(R"(, "chat_template_kwargs": {"enable_thinking": false})"))
                .find("Reasoning: low"),
            std::string::npos);
  // Two calls of one turn are two messages, each with its result behind it.
  const std::string prompt =
      harmony_prompt(R"({"messages": [{"role": "user", "content": "Go."}, {"role": "assistant",
    "content": "Words.", "reasoning_content": "A thought.", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "a", "arguments": "{\"x\": 1}"}},
      {"id": "2", "type": "function", "function": {"name": "b", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "2", "content": "second"}, {"role": "tool", "tool_call_id": "1", "content": "first"}],
    "tools": [{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "b"}}]})");
  const std::string tail =
      "<|start|>assistant<|channel|>analysis<|message|>A thought.\n\nWords.<|end|>"
      "<|start|>assistant to=functions.a<|channel|>commentary json<|message|>{\"x\": 1}<|call|>"
      "<|start|>functions.a to=assistant<|channel|>commentary<|message|>\"first\"<|end|>"
      "<|start|>assistant to=functions.b<|channel|>commentary json<|message|>{}<|call|>"
      "<|start|>functions.b to=assistant<|channel|>commentary<|message|>\"second\"<|end|><|start|>assistant";
  EXPECT_TRUE(prompt.ends_with(tail)) << prompt;
  // What says of no call that it answers it stands behind them all.
  const std::string unnamed = harmony_prompt(
      R"({"messages": [{"role": "user", "content": "Go."}, {"role": "assistant", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "a", "arguments": "{}"}}]},
    {"role": "tool", "content": "of nobody"}, {"role": "tool", "tool_call_id": "1", "content": "first"}],
    "tools": [{"type": "function", "function": {"name": "a"}}]})");
  const std::size_t first = unnamed.find("\"first\"");
  EXPECT_NE(first, std::string::npos) << unnamed;
  EXPECT_NE(unnamed.find("\"of nobody\"", first), std::string::npos) << unnamed;
}

// A form stands in the final message, behind a thought or without one.
TEST(CallFormats, HarmonyForms) {
  const ServedModel model = model_of({"gpt-oss", kHarmonyTokens, {}, "<|return|>"});
  const std::string body =
      R"({"messages": [{"role": "user", "content": "Go."}], "guided_choice": ["yes", "no"]})";
  for (const std::string thought :
       {"", "<|channel|>analysis<|message|>Perhaps no.<|end|><|start|>assistant"}) {
    auto submissions = make_exchange(kChat, body, model)->submissions();
    auto& guide = submissions[0].guide;
    std::vector<std::uint64_t> bits(static_cast<std::size_t>(model.token_limit + 63) / 64);
    for (const text::TokenId id :
         model.tokenizer.encode(thought + "<|channel|>final<|message|>yes<|return|>")) {
      guide->allowed(bits);
      ASSERT_TRUE(bits[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1)
          << model.tokenizer.token_bytes(id);
      guide->accept(id);
    }
  }
  auto submissions = make_exchange(kChat, body, model)->submissions();
  auto& guide = submissions[0].guide;
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(model.token_limit + 63) / 64);
  guide->allowed(bits);
  std::int64_t allowed = 0;
  for (const std::uint64_t word : bits) allowed += std::popcount(word);
  EXPECT_EQ(allowed, 1);  // <|channel|> alone
}

}  // namespace
}  // namespace fourfold::server
