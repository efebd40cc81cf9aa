// System turns: several at the head are one, later ones keep their place, in every protocol; and the user's
// words where a template wants them in turns.
#include "server/api/system_turns.h"

#include "tests/server/support.h"

namespace fourfold::server {
namespace {

using api::Turn;

std::string shape(const std::vector<Turn>& turns) {
  std::string out;
  for (const Turn& turn : turns) out += turn.role + ": " + turn.content + "|";
  return out;
}

TEST(SystemTurns, LeadingOnesAreOne) {
  const auto settled = [](std::vector<Turn> turns) {
    return shape(api::settle_turns(std::move(turns), *test_model().chat_template));
  };
  EXPECT_EQ(settled({{"system", "a"}, {"system", "b"}, {"user", "c"}}), "system: a\n\nb|user: c|");
  EXPECT_EQ(settled({{"system", ""}, {"system", "b"}, {"user", "c"}}), "system: b|user: c|");
  EXPECT_EQ(settled({{"user", "c"}}), "user: c|");
  EXPECT_EQ(settled({{"system", "a"}, {"user", "c"}, {"system", "d"}, {"assistant", "e"}}),
            "system: a|user: c|user: <system>\nd\n</system>|assistant: e|");
}

TEST(SystemTurns, LaterOnesStayWhereTheTemplateTakesThem) {
  const auto takes = text::ChatTemplate::parse("{% for m in messages %}{{ m.content }}{% endfor %}", "t");
  EXPECT_EQ(shape(api::settle_turns({{"user", "c"}, {"system", "d"}, {"user", "e"}}, takes)),
            "user: c|system: d|user: e|");
}

// As Mistral's: what the user says must have an answer before the user says more.
TEST(SystemTurns, WordsOfTheUserAreJoinedWhereTheTemplateWantsThemInTurns) {
  const auto turns = text::ChatTemplate::parse(
      "{% set ns = namespace(count=0) %}{% for m in messages %}{% if m.role == 'user' or (m.role == "
      "'assistant' "
      "and not m.tool_calls) %}{% if (m.role == 'user') != (ns.count % 2 == 0) %}{{ raise_exception('turns') "
      "}}"
      "{% endif %}{% set ns.count = ns.count + 1 %}{% endif %}{{ m.content }}{% endfor %}",
      "t");
  EXPECT_FALSE(turns.takes_users_in_a_row());
  EXPECT_FALSE(turns.takes_users_behind_results());
  const auto settled = [&](std::vector<Turn> given) {
    return shape(api::settle_turns(std::move(given), turns));
  };
  EXPECT_EQ(settled({{"user", "a"}, {"assistant", "b"}, {"system", "c"}, {"user", "d"}}),
            "user: a|assistant: b|user: <system>\nc\n</system>\n\nd|");
  // A system turn never stands between two of the user's there: who counts past it refuses it, too.
  EXPECT_FALSE(turns.takes_later_system_turns());
  EXPECT_EQ(settled({{"user", "a"}, {"system", "c"}, {"user", "d"}}),
            "user: a\n\n<system>\nc\n</system>\n\nd|");
  EXPECT_EQ(settled({{"user", "a"}, {"tool", "r"}, {"user", "b"}, {"user", "c"}}),
            "user: a|tool: r\n\nb\n\nc|");
  EXPECT_EQ(settled({{"user", "a"}, {"tool", ""}, {"user", "b"}}), "user: a|tool: b|");
  // Others keep them apart.
  EXPECT_TRUE(test_model().chat_template->takes_users_in_a_row());
  EXPECT_TRUE(test_model().chat_template->takes_users_behind_results());
}

TEST(SystemTurns, EveryProtocolTakesThem) {
  const std::string expected =
      "<|turn|>system\none\n\ntwo<|end|>\n<|turn|>user\nHi<|end|>\n<|turn|>user\n<system>\nthree\n</"
      "system><|end|>\n"
      "<|turn|>assistant\n<think>\n\n</think>\n\n";
  EXPECT_EQ(prompt_of("/v1/chat/completions", R"({"reasoning_effort": "none", "messages": [
      {"role": "system", "content": "one"}, {"role": "developer", "content": "two"},
      {"role": "user", "content": "Hi"}, {"role": "system", "content": "three"}]})"),
            expected);
  EXPECT_EQ(prompt_of("/v1/responses", R"({"instructions": "one", "reasoning": {"effort": "none"}, "input": [
      {"role": "developer", "content": "two"}, {"role": "user", "content": "Hi"},
      {"role": "developer", "content": "three"}]})"),
            expected);
  EXPECT_EQ(prompt_of("/v1/messages", R"({"max_tokens": 9, "system": "one", "messages": [
      {"role": "system", "content": "two"}, {"role": "user", "content": "Hi"},
      {"role": "system", "content": [{"type": "text", "text": "three", "cache_control": {"type": "ephemeral"}}]}]})"),
            expected);
}

TEST(SystemTurns, WordsForOneQuestionAreGoneWithTheNext) {
  const auto with = [](const std::string& more) {
    return prompt_of("/v1/messages",
                     R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"},
        {"role": "system", "content": "now", "clear_at": "next_user_message"})" +
                         more + "]}");
  };
  EXPECT_NE(with("").find("now"), std::string::npos);
  EXPECT_NE(with(R"(, {"role": "assistant", "content": "b"})").find("now"), std::string::npos);
  EXPECT_EQ(with(R"(, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"})").find("now"),
            std::string::npos);
}

// The line differs from request to request; the prompts must not.
TEST(SystemTurns, TheBillingLineIsLeftOut) {
  EXPECT_EQ(api::without_billing_line("x-anthropic-billing-header: a;\nYou are"), "You are");
  EXPECT_EQ(api::without_billing_line("x-anthropic-billing-header: a;"), "");
  EXPECT_EQ(api::without_billing_line("You are x-anthropic-billing-header: a"),
            "You are x-anthropic-billing-header: a");
  const auto blocks = [](const std::string& line) {
    return prompt_of("/v1/messages",
                     R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "system": [
        {"type": "text", "text": "x-anthropic-billing-header: )" +
                         line + R"("}, {"type": "text", "text": "S"}]})");
  };
  EXPECT_EQ(blocks("cc_version=2.1.325.bb6; cc_entrypoint=cli;"), blocks("cc_version=2.1.325.0f3; other"));
  EXPECT_TRUE(blocks("a").starts_with("<|turn|>system\nS<|end|>"));
  const auto text = [](const std::string& line) {
    return prompt_of("/v1/chat/completions",
                     R"({"messages": [{"role": "system", "content": "x-anthropic-billing-header: )" + line +
                         R"(\nS"}, {"role": "user", "content": "Hi"}]})");
  };
  EXPECT_EQ(text("one"), text("two"));
  EXPECT_TRUE(text("a").starts_with("<|turn|>system\nS<|end|>"));
}

}  // namespace
}  // namespace fourfold::server
