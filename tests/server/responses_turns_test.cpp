// Items that clients of /v1/responses send back, and tools of every kind.
#include "server/api/responses_turns.h"

#include "tests/server/support.h"

namespace fourfold::server {
namespace {

constexpr std::string_view kRoute = "/v1/responses";

std::string items(const std::string& list, const std::string& more = "") {
  return R"({"input": [{"role": "user", "content": "Hi"}, )" + list + "]" +
         (more.empty() ? "" : ", " + more) + "}";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ResponsesTurns, CallsOfOtherToolsAreShown) {
  const std::string custom = prompt_of(kRoute, items(R"(
      {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin"},
      {"type": "custom_tool_call_output", "call_id": "c", "output": "done"})"));
  EXPECT_TRUE(contains(custom, "<function=apply_patch>\n<parameter=input>\n*** Begin\n")) << custom;
  EXPECT_TRUE(contains(custom, "<tool_response>\ndone\n"));
  const std::string shell = prompt_of(kRoute, items(R"(
      {"type": "local_shell_call", "id": "i", "call_id": "c", "status": "completed",
       "action": {"type": "exec", "command": ["ls"], "env": {}}},
      {"type": "local_shell_call_output", "id": "c", "output": "a.txt"})"));
  EXPECT_TRUE(contains(shell, "<function=local_shell>")) << shell;
  EXPECT_TRUE(contains(shell, "<parameter=command>\n[\"ls\"]\n")) << shell;
  EXPECT_TRUE(contains(shell, "<tool_response>\na.txt\n"));
  const std::string mcp = prompt_of(kRoute, items(R"({"type": "mcp_call", "id": "m", "server_label": "s",
      "name": "look", "arguments": "{\"q\": 1}", "output": "found"})"));
  EXPECT_TRUE(contains(mcp, "<function=look>")) << mcp;
  EXPECT_TRUE(contains(mcp, "<tool_response>\nfound\n"));
}

TEST(ResponsesTurns, ThoughtsThatNobodyCanReadAreNone) {
  const std::string body =
      items(R"({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "gAAA"},
      {"role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}, {"role": "user", "content": "So?"})");
  EXPECT_TRUE(contains(prompt_of(kRoute, body), "<|turn|>assistant\nYes.<|end|>"));
  EXPECT_EQ(notes_of(kRoute, body), "");
}

TEST(ResponsesTurns, WhatCannotBeShownIsLeftOutAndSaid) {
  EXPECT_EQ(
      notes_of(kRoute, items(R"({"type": "web_search_call", "id": "w", "status": "completed", "action": {}},
      {"type": "image_generation_call", "id": "g", "result": "AAAA"}, {"type": "compaction", "encrypted_content": "x"},
      {"type": "something_of_2028", "a": 1})")),
      "input[].type=web_search_call input[].type=image_generation_call input[].type=compaction "
      "input[].type=something_of_2028 ");
  const std::string seen =
      items(R"({"type": "function_call", "call_id": "c", "name": "view", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "data:x"}]})");
  EXPECT_TRUE(contains(prompt_of(kRoute, seen), "[image omitted: this model reads text]"));
  EXPECT_EQ(notes_of(kRoute, seen), "input[].output[].type=input_image ");
}

constexpr const char* kTools = R"("tools": [
    {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": false},
    {"type": "namespace", "name": "agents", "description": "d", "tools": [
      {"type": "function", "name": "close", "parameters": {"type": "object", "properties": {"id": {"type": "string"}}}},
      {"type": "custom", "name": "free"}]},
    {"type": "web_search", "external_web_access": true}, {"type": "custom", "name": "patch", "format": {}},
    {"type": "local_shell"}])";

TEST(ResponsesTools, OtherKindsAreLeftOutAndSaid) {
  const std::string body = std::string(R"({"input": "Hi", )") + kTools + "}";
  EXPECT_EQ(
      notes_of(kRoute, body),
      "tools[].tools[].type=custom tools[].type=web_search tools[].type=custom tools[].type=local_shell ");
  const auto choose = [&](const std::string& choice) {
    return refusal(kRoute, std::string(R"({"input": "Hi", "tool_choice": )") + choice + ", " + kTools + "}");
  };
  EXPECT_EQ(choose(R"({"type": "function", "name": "f"})").status, 200);
  EXPECT_TRUE(contains(choose(R"({"type": "function", "name": "patch"})").body, "it was left out"));
  EXPECT_TRUE(contains(choose(R"({"type": "custom", "name": "patch"})").body, "others are left out"));
  EXPECT_TRUE(contains(choose(R"({"type": "function", "name": "g"})").body, "not among the tools"));
  const auto allow = [&](const std::string& tool) {
    return choose(R"({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", )" + tool +
                  "}]}");
  };
  EXPECT_EQ(allow(R"("name": "close", "namespace": "agents")").status, 200);
  EXPECT_TRUE(contains(allow(R"("name": "close")").body, "not among the tools"));
  EXPECT_TRUE(contains(allow(R"("name": "f", "namespace": "agents")").body, "agents.f"));
}

// Codex takes a call of such a function with its namespace beside the name, and in no other form.
TEST(ResponsesTools, FunctionsOfANamespaceCanBeCalled) {
  const std::string body = std::string(R"({"input": "Hi", )") + kTools + "}";
  EXPECT_TRUE(contains(prompt_of(kRoute, body), R"("name": "agents.close")"));
  const std::string call =
      "</think><tool_call>\n<function=agents.close>\n<parameter=id>\nx\n</parameter>\n</function>\n</"
      "tool_call>";
  const auto answer = parsed(ask(kRoute, body, {.answer = call}));
  EXPECT_EQ(text_at(answer, "output.0.name"), "close");
  EXPECT_EQ(text_at(answer, "output.0.namespace"), "agents");
  EXPECT_EQ(text_at(answer, "output.0.arguments"), R"({"id": "x"})");
  const std::string stream = ask(kRoute, R"({"stream": true, )" + body.substr(1), {.answer = call});
  EXPECT_TRUE(contains(stream, R"("name":"close","namespace":"agents")")) << stream;
  // And back.
  EXPECT_TRUE(contains(prompt_of(kRoute, items(R"({"type": "function_call", "call_id": "c", "name": "close",
      "namespace": "agents", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": "ok"})")),
                       "<function=agents.close>"));
}

TEST(ResponsesTools, ItemsMayBringTools) {
  const std::string body = items(R"({"type": "additional_tools", "role": "developer", "tools": [
      {"type": "function", "name": "late", "parameters": {"type": "object", "properties": {}}}]})");
  EXPECT_TRUE(contains(prompt_of(kRoute, body), R"("name": "late")"));
}

TEST(AllowedTools, OnlyTheseAreOffered) {
  const std::string tools =
      R"("tools": [{"type": "function", "name": "one"}, {"type": "function", "name": "two"}], "tool_choice": )";
  const auto responses = [&](const std::string& choice) {
    return R"({"input": "Hi", )" + tools + choice + "}";
  };
  const std::string only_two = responses(
      R"({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "two"}]})");
  EXPECT_TRUE(contains(prompt_of(kRoute, only_two), R"("name": "two")"));
  EXPECT_FALSE(contains(prompt_of(kRoute, only_two), R"("name": "one")"));
  const std::string chat = R"({"messages": [{"role": "user", "content": "Hi"}], "tools": [
      {"type": "function", "function": {"name": "one"}}, {"type": "function", "function": {"name": "two"}},
      {"type": "custom", "custom": {"name": "free"}}], "tool_choice": {"type": "allowed_tools", "allowed_tools":
      {"mode": "required", "tools": [{"type": "function", "function": {"name": "one"}},
      {"type": "custom", "custom": {"name": "free"}}]}}})";
  EXPECT_FALSE(contains(prompt_of("/v1/chat/completions", chat), R"("name": "two")"));
  EXPECT_EQ(notes_of("/v1/chat/completions", chat),
            "tools[].type=custom tool_choice.allowed_tools.tools[].type=custom ");
  // Required: the masks know only what is allowed.
  EXPECT_NE(make_exchange("/v1/chat/completions", chat, test_model())->submissions()[0].guide, nullptr);
  EXPECT_TRUE(contains(
      refusal(kRoute, responses(R"({"type": "allowed_tools", "mode": "auto", "tools": [{"name": "three"}]})"))
          .body,
      "not among the tools"));
  EXPECT_TRUE(contains(
      refusal(kRoute, responses(R"({"type": "allowed_tools", "mode": "required", "tools": []})")).body,
      "there are no tools"));
}

TEST(ChatTools, OtherKindsAreLeftOutAndSaid) {
  const auto with = [](const std::string& more) {
    return R"({"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function":
        {"name": "f"}}, {"type": "custom", "custom": {"name": "free"}}])" +
           more + "}";
  };
  EXPECT_EQ(notes_of("/v1/chat/completions", with("")), "tools[].type=custom ");
  EXPECT_FALSE(contains(prompt_of("/v1/chat/completions", with("")), "free"));
  EXPECT_TRUE(contains(refusal("/v1/chat/completions",
                               with(R"(, "tool_choice": {"type": "function", "function": {"name": "free"}})"))
                           .body,
                       "it was left out"));
  EXPECT_TRUE(contains(refusal("/v1/chat/completions",
                               with(R"(, "tool_choice": {"type": "custom", "custom": {"name": "free"}})"))
                           .body,
                       "others are left out"));
}

}  // namespace
}  // namespace fourfold::server
