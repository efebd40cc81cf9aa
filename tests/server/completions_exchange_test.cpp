#include "tests/server/support.h"

namespace fourfold::server {
namespace {

constexpr std::string_view kRoute = "/v1/completions";

TEST(CompletionsExchange, WholeAnswer) {
  EXPECT_EQ(
      ask(kRoute, R"({"prompt": "Once", "max_tokens": 5, "echo": true})",
          {.answer = " upon", .finish = engine::Finish::max_tokens}),
      R"({"id":"cmpl-ID","object":"text_completion","created":0,"model":"tiny","choices":[{"index":0,)"
      R"("text":"Once upon","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":)" +
          std::to_string(tokens_of("Once").size()) + R"(,"completion_tokens":)" +
          std::to_string(tokens_of(" upon").size()) + R"(,"total_tokens":)" +
          std::to_string(tokens_of("Once").size() + tokens_of(" upon").size()) +
          R"(,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":0}}})");
}

TEST(CompletionsExchange, Stream) {
  const std::string out = ask(kRoute, R"({"prompt": "Once", "stream": true})", {.answer = "a"});
  const std::string head =
      R"(data: {"id":"cmpl-ID","object":"text_completion","created":0,"model":"tiny","choices":[{"index":0,)";
  EXPECT_EQ(out, head + R"("text":"a","logprobs":null,"finish_reason":null}]})" + "\n\n" + head +
                     R"("text":"","logprobs":null,"finish_reason":"stop"}]})" + "\n\ndata: [DONE]\n\n");
}

TEST(CompletionsExchange, PromptsAsTextsAndIds) {
  const auto prompts = [](std::string_view prompt) {
    const std::string body = R"({"n": 2, "prompt": )" + std::string(prompt) + "}";
    std::vector<std::vector<text::TokenId>> out;
    for (const auto& one : make_exchange(kRoute, body, test_model())->submissions())
      out.push_back(one.request.prompt);
    return out;
  };
  const auto a = tokens_of("ab"), b = tokens_of("cd");
  EXPECT_EQ(prompts(R"("ab")"), (std::vector{a, a}));
  EXPECT_EQ(prompts(R"(["ab", "cd"])"), (std::vector{a, a, b, b}));
  EXPECT_EQ(prompts("[1, 2, 3.0]"), (std::vector{std::vector{1, 2, 3}, std::vector{1, 2, 3}}));
  EXPECT_EQ(prompts("[[1], [2, 3]]").back(), (std::vector{2, 3}));
  const auto answer = parsed(ask(kRoute, R"({"prompt": ["ab", "cd"], "n": 2})", {.answer = "x"}));
  EXPECT_EQ(at(answer, "choices.3.index").integer(), 3);
  EXPECT_EQ(at(answer, "usage.prompt_tokens").integer(), std::ssize(a) + std::ssize(b));
}

TEST(CompletionsExchange, ThinkingIsText) {
  const auto answer = parsed(ask(kRoute, R"({"prompt": "x"})", {.answer = "a</think>b<tool_call>"}));
  EXPECT_EQ(text_at(answer, "choices.0.text"), "a</think>b<tool_call>");
}

TEST(CompletionsExchange, Logprobs) {
  const auto answer = parsed(ask(kRoute, R"({"prompt": "x", "logprobs": 1})", {.answer = "ab</think>"}));
  EXPECT_EQ(text_at(answer, "choices.0.logprobs.tokens.1"), "b");
  EXPECT_EQ(at(answer, "choices.0.logprobs.token_logprobs.1").real(), -0.5);
  EXPECT_EQ(at(answer, "choices.0.logprobs.top_logprobs.0.a").real(), -0.5);
  EXPECT_EQ(at(answer, "choices.0.logprobs.text_offset.2").integer(), 2);
}

TEST(CompletionsExchange, Refusals) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{}", "prompt is missing"},
      {R"({"prompt": ""})", "prompt is empty"},
      {R"({"prompt": []})", "prompt is empty"},
      {R"({"prompt": [[]]})", "prompt[0] is empty"},
      {R"({"prompt": 3})", "prompt is 3"},
      {R"({"prompt": [-1]})", "prompt[0] is -1; it must be a token id, at least 0 and below 1024"},
      {R"({"prompt": [1, 1024]})", "prompt[1] is 1024"},
      {R"({"prompt": [4294967296]})", "prompt[0] is 4294967296"},
      {R"({"prompt": [1.5]})", "prompt[0] is 1.5"},
      {R"({"prompt": [true]})", "prompt[0] is true"},
      {R"({"prompt": ["a", 1]})", "prompt[1] is 1"},
      {R"({"prompt": "a", "logprobs": 1000000})", "at most 20"},
      {R"({"prompt": "a", "echo": true, "logprobs": 1})", "echo with logprobs"},
      {R"({"prompt": "a", "suffix": "b"})", "suffix"},
      {R"({"prompt": "a", "best_of": 1000000})", "best_of is 1000000"},
  };
  for (const auto& [body, message] : cases) {
    const HttpError error = refusal(kRoute, body);
    EXPECT_EQ(error.status, 400) << body;
    EXPECT_NE(error.body.find(message), std::string::npos) << body << " " << error.body;
  }
  std::string many = "[";
  for (int i = 0; i < 600; ++i) many += i == 0 ? "1" : ",1";
  const HttpError full = refusal(kRoute, R"({"prompt": )" + many + "]}");
  EXPECT_NE(full.body.find("context_length_exceeded"), std::string::npos) << full.body;
}

}  // namespace
}  // namespace fourfold::server
