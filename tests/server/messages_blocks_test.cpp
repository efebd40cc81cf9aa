// What Anthropic's clients send beyond text: blocks, tools and fields of their betas.
#include "server/api/messages_blocks.h"

#include "tests/server/support.h"

namespace fourfold::server {
namespace {

constexpr std::string_view kRoute = "/v1/messages";

std::string user(const std::string& blocks, const std::string& more = "") {
  return R"({"max_tokens": 9, "messages": [{"role": "user", "content": [)" + blocks + "]}]" +
         (more.empty() ? "" : ", " + more) + "}";
}

// A conversation whose last turn is this result of a tool.
std::string result(const std::string& content, const std::string& more = "") {
  return R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": )" +
         content + "}]}]" + (more.empty() ? "" : ", " + more) + "}";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(MessagesBlocks, AnImageAToolReturnedIsNamed) {
  const std::string body = result(
      R"([{"type": "text", "text": "see"}, {"type": "image", "source": {"type": "base64", "media_type":)"
      R"( "image/png", "data": "AAAA"}}])");
  EXPECT_TRUE(contains(prompt_of(kRoute, body), "see[image omitted: this model reads text]"))
      << prompt_of(kRoute, body);
  EXPECT_EQ(notes_of(kRoute, body), "messages[].content[].content[].type=image ");
  const auto notes = make_exchange(kRoute, body, test_model())->notes.headers();
  EXPECT_EQ(notes[0].first, "X-Fourfold-Changed");
  // What the user shows is what the question is about.
  EXPECT_EQ(
      refusal(kRoute, user(R"({"type": "image", "source": {"type": "base64", "data": "AAAA"}})")).status,
      400);
}

TEST(MessagesBlocks, DocumentsAndSearchResultsThatAreTextAreRead) {
  EXPECT_TRUE(contains(prompt_of(kRoute, user(R"({"type": "document", "title": "T", "source": {"type": "text",
      "media_type": "text/plain", "data": "the words"}, "citations": {"enabled": true}})")),
                       "T\nthe words"));
  EXPECT_TRUE(contains(prompt_of(kRoute, user(R"({"type": "document", "source": {"type": "content", "content":
      [{"type": "text", "text": "more words"}]}})")),
                       "more words"));
  EXPECT_TRUE(contains(prompt_of(kRoute, result(R"([{"type": "search_result", "title": "T", "source": "s",
      "content": [{"type": "text", "text": "found"}]}])")),
                       "T (s)\nfound"));
  EXPECT_TRUE(contains(prompt_of(kRoute, result(R"([{"type": "document", "source": {"type": "base64",
      "media_type": "application/pdf", "data": "AAAA"}}])")),
                       "[document omitted: this model reads text]"));
}

TEST(MessagesBlocks, BlocksOfServersOwnToolsAreLeftOut) {
  const std::string body = R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "text", "text": "Found.", "citations": []}]},
      {"role": "user", "content": [{"type": "container_upload", "file_id": "f"}, {"type": "text", "text": "So?"}]}]})";
  EXPECT_TRUE(contains(prompt_of(kRoute, body), "Found.<|end|>\n<|turn|>user\nSo?"));
  EXPECT_EQ(notes_of(kRoute, body),
            "messages[].content[].type=server_tool_use messages[].content[].type=web_search_tool_result "
            "messages[].content[].type=container_upload ");
}

constexpr const char* kTools = R"("tools": [{"name": "f", "input_schema": {"type": "object"}},
    {"name": "later", "input_schema": {"type": "object"}, "defer_loading": true},
    {"type": "web_search_20260318", "name": "web_search", "max_uses": 3},
    {"type": "bash_20250124", "name": "bash"}])";

TEST(MessagesTools, OtherKindsAreLeftOutAndSaid) {
  const std::string body = user(R"({"type": "text", "text": "Hi"})",
                                std::string(kTools) + R"(, "mcp_servers": [{"type": "url", "url": "x"}])");
  EXPECT_EQ(notes_of(kRoute, body),
            "tools[].type=web_search_20260318 tools[].type=bash_20250124 mcp_servers[]=mcp ");
  const std::string prompt = prompt_of(kRoute, body);
  EXPECT_TRUE(contains(prompt, R"("name": "f")"));
  EXPECT_FALSE(contains(prompt, "bash"));
  const HttpError named =
      refusal(kRoute, user(R"({"type": "text", "text": "Hi"})",
                           std::string(kTools) + R"(, "tool_choice": {"type": "tool", "name": "bash"})"));
  EXPECT_EQ(named.status, 400);
  EXPECT_TRUE(contains(named.body, "it was left out")) << named.body;
}

TEST(MessagesTools, DeferredOnesWaitUntilTheyAreFound) {
  EXPECT_FALSE(contains(prompt_of(kRoute, result(R"("nothing")", kTools)), R"("name": "later")"));
  const std::string found =
      prompt_of(kRoute, result(R"([{"type": "tool_reference", "tool_name": "later"}])", kTools));
  EXPECT_TRUE(contains(found, R"("name": "later")"));
  EXPECT_TRUE(contains(found, "[the tool later can be called now]"));
  EXPECT_EQ(
      refusal(kRoute, result(R"("nothing")",
                             std::string(kTools) + R"(, "tool_choice": {"type": "tool", "name": "later"})"))
          .status,
      200);
}

TEST(MessagesTools, ComeAndGoInTheConversation) {
  const auto with = [](const std::string& block) {
    return prompt_of(kRoute,
                     R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}, {"role": "system",
        "content": [{"type": "text", "text": "note"}, )" +
                         block + "]}], " + kTools + "}");
  };
  EXPECT_TRUE(
      contains(with(R"({"type": "tool_addition", "tool": {"type": "tool_reference", "name": "later"}})"),
               R"("name": "later")"));
  EXPECT_FALSE(contains(with(R"({"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}})"),
                        R"("name": "f")"));
  const std::string defined =
      with(R"({"type": "tool_addition", "tool": {"type": "tool_definition", "definition":
      {"name": "fresh", "description": "new", "input_schema": {"type": "object"}}}})");
  EXPECT_TRUE(contains(defined, R"("name": "fresh")"));
  EXPECT_TRUE(contains(defined, "<system>\nnote\n</system>"));
  const std::string again =
      with(R"({"type": "tool_addition", "tool": {"type": "tool_definition", "definition":
      {"name": "f", "description": "another f", "input_schema": {"type": "object"}}}})");
  EXPECT_TRUE(contains(again, "another f"));
  EXPECT_EQ(again.find(R"("name": "f")"), again.rfind(R"("name": "f")"));
}

TEST(MessagesTools, ThatComeInTheConversationAreCounted) {
  const auto with = [](int count, int names) {
    std::string blocks;
    for (int i = 0; i < count; ++i)
      blocks +=
          (i > 0 ? "," : "") +
          fourfold::format(
              R"({"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"t{}"}}})",
              i % names);
    return refusal(
        "/v1/messages/count_tokens",
        R"({"messages":[{"role":"user","content":"a"},{"role":"system","content":[)" + blocks + "]}]}");
  };
  EXPECT_EQ(with(512, 512).status, 200);
  EXPECT_TRUE(contains(with(20'000, 20'000).body, "513 entries; at most 512"));
  EXPECT_EQ(with(20'000, 9).status, 200);
}

TEST(MessagesFields, OfBetasAreTaken) {
  const std::string body = user(R"({"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}})",
                                R"("thinking": {"type": "adaptive", "display": "omitted"},
      "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
      "output_config": {"effort": "max", "task_budget": {"type": "tokens", "total": 9}}, "speed": "fast",
      "betas": ["a"], "fallbacks": [], "diagnostics": {"previous_message_id": null}, "metadata": {"user_id": "u"})");
  EXPECT_EQ(notes_of(kRoute, body), "");
  // Adaptive: as the template does when nobody says anything.
  EXPECT_TRUE(prompt_of(kRoute, body).ends_with("<think>\n"));
}

TEST(MessagesFields, OneAnswerHasOneForm) {
  const std::string format = R"({"type": "json_schema", "schema": {"type": "object"}})";
  const HttpError refused =
      refusal(kRoute, user(R"({"type": "text", "text": "Hi"})",
                           R"("output_config": {"format": )" + format + R"(}, "output_format": )" + format));
  EXPECT_EQ(refused.status, 400);
  EXPECT_TRUE(contains(refused.body, "output_format and output_config.format")) << refused.body;
}

// What Anthropic's tool runner looks for before it goes on without a thread.
TEST(MessagesFields, ThreadsAreRefusedInTheWordsOfTheProtocol) {
  const HttpError error =
      refusal(kRoute, R"({"max_tokens": 9, "thread": {"type": "create"}, "messages": [{"role": "user",
      "content": "Hi"}]})");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(text_at(parsed(error.body), "error.type"), "invalid_request_error");
  EXPECT_EQ(text_at(parsed(error.body), "error.details.error_code"), "thread_unsupported_request");
}

TEST(MessagesExchange, PingsWhileNothingElseIsSent) {
  const auto exchange =
      make_exchange(kRoute, user(R"({"type": "text", "text": "Hi"})", R"("stream": true)"), test_model());
  EXPECT_TRUE(exchange->begin().starts_with("event: message_start\n"));
  EXPECT_EQ(exchange->begin(), "") << "once";
  EXPECT_EQ(exchange->keep_alive(), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

}  // namespace
}  // namespace fourfold::server
