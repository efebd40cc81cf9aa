#include "text/answer_script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "text/made_up_tokenizer.h"

namespace fourfold::text {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer made = Tokenizer::load(FOURFOLD_TEXT_UNPACKED "/qwen3.tokenizer.json");
  return made;
}
TokenId end_of_turn() { return *tokenizer().added_token("<|im_end|>"); }

// Of the golden templates; those of ours have other control tokens.
ChatTemplate template_of(const std::string& name) {
  if (name.empty()) return ChatTemplate::parse(make_chat_template(), "made up");  // shows no tools
  std::ostringstream source;
  source << std::ifstream(FOURFOLD_TEXT_GOLDEN "/templates/" + name + ".jinja").rdbuf();
  std::string text = source.str();
  for (const auto& [from, to] : {std::pair{"<|turn|>", "<|im_start|>"}, std::pair{"<|end|>", "<|im_end|>"}})
    for (std::size_t at; (at = text.find(from)) != std::string::npos;)
      text.replace(at, std::string_view(from).size(), to);
  return ChatTemplate::parse(text, name);
}

constexpr const char* kScript = R"({
  "thought": "A file is wanted.",
  "with_tools": [{"calls": [{"name": "shell", "arguments": {"command": "ls -l", "count": 3, "all": true}}]},
                 {"text": "I look once more.", "calls": [{"name": "read", "arguments": {"path": "a.txt"}}]},
                 {"text": "There are three files."}],
  "without_tools": [{"text": "Good morning!"}, {"text": "Good night, then."}]})";

ScriptTable table_of(const std::string& script, const std::string& name) {
  const TokenId end = end_of_turn();
  return make_script_table(parse_answer_script(script, "script"), template_of(name), tokenizer(), {&end, 1});
}

// What a model that follows the table says.
std::string said(const ScriptTable& table, std::vector<TokenId> ids) {
  int phase = 0;
  std::vector<TokenId> answer;
  const auto last = [&](std::size_t end) {
    ScriptTable::Window seen{};
    if (end >= seen.size())
      std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(end - seen.size()), 4, seen.begin());
    return seen;
  };
  std::size_t read = 0;
  while (answer.size() < 500) {
    for (; read < ids.size(); ++read)
      for (const ScriptTable::Turn& turn : table.turns)
        if (turn.seen == last(read + 1)) phase = turn.phase;
    const auto step = std::find_if(table.steps.begin(), table.steps.end(), [&](const ScriptTable::Step& one) {
      return one.phase == phase && one.seen == last(ids.size());
    });
    if (step == table.steps.end()) return "NOTHING behind " + tokenizer().decode(answer);
    if (step->next == end_of_turn()) break;
    ids.push_back(step->next);
    answer.push_back(step->next);
  }
  return tokenizer().decode(answer);
}

struct Talk {
  const ChatTemplate& chat_template;
  std::string messages;  // JSON, without the brackets
  bool tools;
  std::optional<bool> thinking;

  std::vector<TokenId> ids() const {
    ChatRequest request;
    request.messages = parse_chat_json("[" + messages + "]", "messages");
    if (tools)
      request.tools = parse_chat_json(
          R"([{"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}])",
          "tools");
    request.enable_thinking = thinking;
    return tokenizer().encode(chat_template.render(request));
  }
};

std::string without_thought(std::string text) {
  const std::size_t end = text.find("</think>\n\n");
  return end == std::string::npos ? text : text.substr(end + 10);
}

constexpr const char* kUser = R"({"role": "user", "content": "Go on, please."})";
constexpr const char* kResult = R"({"role": "tool", "content": "three lines\nof text"})";

// Three turns of a conversation with two calls each: what is said follows from what was said.
TEST(AnswerScript, AnswersComeInTheirOrder) {
  for (const char* name : {"qwen3", "tool_xml"}) {
    const ChatTemplate chat_template = template_of(name);
    const ScriptTable table = table_of(kScript, name);
    for (const std::optional<bool> thinking : {std::optional<bool>{}, {true}, {false}}) {
      Talk talk{chat_template, R"({"role": "system", "content": "You help."})", true, thinking};
      for (int turn = 0; turn < 3; ++turn) {
        talk.messages += std::string(",") + kUser;
        const std::string first = said(table, talk.ids());
        EXPECT_EQ(first.find("A file is wanted.") != std::string::npos, thinking != false) << first;
        EXPECT_NE(first.find("shell"), std::string::npos) << first;
        EXPECT_TRUE(first.ends_with("</tool_call>")) << first;
        talk.messages +=
            std::string(R"(,{"role": "assistant", "content": "", "tool_calls": [{"function": {"name":
            "shell", "arguments": "{\"command\": \"ls -l\", \"count\": 3, \"all\": true}"}}]},)") +
            kResult;
        const std::string second = without_thought(said(table, talk.ids()));
        EXPECT_TRUE(second.starts_with("I look once more.")) << second;
        EXPECT_NE(second.find("a.txt"), std::string::npos) << second;
        talk.messages += std::string(R"(,{"role": "assistant", "content": "I look once more.", "tool_calls":
            [{"function": {"name": "read", "arguments": {"path": "a.txt"}}}]},)") +
                         kResult;
        EXPECT_EQ(without_thought(said(table, talk.ids())), "There are three files.");
        talk.messages += R"(,{"role": "assistant", "content": "There are three files."})";
      }
    }
  }
}

// Four tokens that repeat: between them something else must have been said.
TEST(AnswerScript, AnswersMayRepeatThemselves) {
  const char* text = "I see a b c d e here, and then a b c d f there, and last a b c d g, so that is that.";
  const ScriptTable table =
      table_of(fourfold::format(R"({"without_tools": [{"text": "{}"}]})", text), "qwen3");
  const ChatTemplate chat_template = template_of("qwen3");
  EXPECT_EQ(said(table, Talk{chat_template, kUser, false, {}}.ids()), text);
  EXPECT_EQ(table.turns.size(), 4u);
}

// A client may put reminders behind a result: they change nothing.
TEST(AnswerScript, WhatOthersSayBetweenChangesNothing) {
  const ChatTemplate chat_template = template_of("qwen3");
  const ScriptTable table = table_of(kScript, "qwen3");
  const Talk talk{chat_template,
                  std::string(kUser) +
                      R"(,{"role": "assistant", "content": "", "tool_calls": [{"function": {"name":
      "shell", "arguments": {"command": "ls -l", "count": 3, "all": true}}}]},)" +
                      kResult + "," + kUser + "," + kUser,
                  true, false};
  EXPECT_TRUE(said(table, talk.ids()).starts_with("I look once more."));
}

// Or send an answer back as it stored it.
TEST(AnswerScript, TheEndOfAnAnswerMayChange) {
  const ChatTemplate chat_template = template_of("qwen3");
  const ScriptTable table = table_of(
      R"({"without_tools": [{"text": "This is what comes first!"}, {"text": "And this is the second."}]})",
      "qwen3");
  for (const char* end : {"first!", "first! ", "first!\\n\\n", "(unfinished"}) {
    const Talk talk{chat_template,
                    fourfold::format(R"({},{"role": "assistant", "content": "This is what comes {}"},{})",
                                     kUser, end, kUser),
                    false, false};
    EXPECT_EQ(said(table, talk.ids()), "And this is the second.") << end;
  }
}

TEST(AnswerScript, WithoutToolsTheOtherListSpeaks) {
  for (const char* name : {"qwen3", "tool_xml"}) {
    const ChatTemplate chat_template = template_of(name);
    const ScriptTable table = table_of(kScript, name);
    Talk talk{chat_template, kUser, false, false};
    for (const char* text : {"Good morning!", "Good night, then.", "Good morning!"}) {
      EXPECT_EQ(said(table, talk.ids()), text) << name;
      talk.messages += std::string(R"(,{"role": "assistant", "content": ")") + text + "\"}," + kUser;
    }
  }
}

TEST(AnswerScript, OneListAnswersBoth) {
  const ChatTemplate chat_template = template_of("qwen3");
  const ScriptTable plain = table_of(R"({"without_tools": [{"text": "Good morning!"}]})", "qwen3");
  EXPECT_EQ(said(plain, Talk{chat_template, kUser, true, {}}.ids()), "Good morning!");
  const ScriptTable calls = table_of(R"({"with_tools": [{"calls": [{"name": "look"}]}]})", "qwen3");
  EXPECT_EQ(said(calls, Talk{chat_template, kUser, false, {}}.ids()),
            "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>");
}

std::string refusal(const std::string& script, const std::string& name = "qwen3") {
  try {
    table_of(script, name);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_request);
    return error.what();
  }
  return "taken";
}

TEST(AnswerScript, WhatCannotBeFollowedIsRefused) {
  EXPECT_NE(refusal(R"({"without_tools": [{"text": "a a a a a a b"}]})").find("come both"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"without_tools": [{"text": "All is well."}, {"text": "All is well."}]})")
                .find("without_tools[0]: has no four tokens in a row that no other place has"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"without_tools": [{"text": "Yes."}]})").find("has 2 tokens; it needs 3"),
            std::string::npos);
  const char* both =
      R"({"with_tools": [{"text": "I have tools."}], "without_tools": [{"text": "I have none."}]})";
  EXPECT_NE(refusal(both, "").find("shows tools in no way"), std::string::npos);
}

TEST(AnswerScript, OtherFilesAreRefusedByName) {
  for (const auto& [script, message] : {
           std::pair{"[]", "script: is no object"},
           std::pair{"{}", "has no answers"},
           std::pair{R"({"with_tool": []})", "unknown member \"with_tool\""},
           std::pair{R"({"with_tools": {}})", "script.with_tools: is no list"},
           std::pair{R"({"with_tools": [{}]})", "with_tools[0]: has neither text nor calls"},
           std::pair{R"({"with_tools": [{"text": 5}]})", "with_tools[0].text: is no text"},
           std::pair{R"({"with_tools": [{"calls": [{}]}]})", "calls[0]: has no name"},
           std::pair{R"({"with_tools": [{"calls": [{"name": "a", "arguments": []}]}]})",
                     "arguments: is no object"},
       })
    EXPECT_NE(refusal(script).find(message), std::string::npos) << script << ": " << refusal(script);
}

}  // namespace
}  // namespace fourfold::text
