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

// What lm-eval sends: the prompt's tokens and one more, four lists of equal length.
TEST(CompletionsExchange, EchoWithLogprobs) {
  const auto ids = tokens_of("abc");
  ASSERT_EQ(ids.size(), 3u);
  const std::string body =
      R"({"model": "tiny", "prompt": [[)" + std::to_string(ids[0]) + "," + std::to_string(ids[1]) + "," +
      std::to_string(ids[2]) +
      R"(]], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true)";
  const auto submissions = make_exchange(kRoute, body + "}", test_model())->submissions();
  EXPECT_EQ(submissions[0].request.prompt_logprobs, 1);
  EXPECT_EQ(submissions[0].request.max_tokens, 1);
  const Script script{.answer = "d", .finish = engine::Finish::max_tokens};
  const auto answer = parsed(ask(kRoute, body + "}", script));
  EXPECT_EQ(text_at(answer, "choices.0.text"), "abcd");
  const auto logprobs = at(answer, "choices.0.logprobs");
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    EXPECT_EQ(at(logprobs, list).sequence()->items.size(), 4u) << list;
  EXPECT_EQ(text_at(logprobs, "token_logprobs.0"), "(null)");
  EXPECT_EQ(text_at(logprobs, "top_logprobs.0"), "(null)");
  EXPECT_EQ(at(logprobs, "token_logprobs.1").real(), -2.5);
  EXPECT_EQ(at(logprobs, "token_logprobs.3").real(), -0.5);
  EXPECT_EQ(text_at(logprobs, "tokens.2"), "c");
  EXPECT_EQ(at(logprobs, "text_offset.3").integer(), 3);
  EXPECT_EQ(at(logprobs, "top_logprobs.1").dict()->items().size(), 1u);
  // Without an answer, and as a stream: the prompt comes first, with its log-probabilities.
  const Script nothing{.answer = "", .finish = engine::Finish::max_tokens};
  const auto bare =
      parsed(ask(kRoute, R"({"prompt": "abc", "max_tokens": 0, "logprobs": 0, "echo": true})", nothing));
  EXPECT_EQ(text_at(bare, "choices.0.text"), "abc");
  EXPECT_EQ(text_at(bare, "choices.0.finish_reason"), "length");
  EXPECT_EQ(at(bare, "choices.0.logprobs.tokens").sequence()->items.size(), 3u);
  EXPECT_EQ(at(bare, "usage.completion_tokens").integer(), 0);
  const std::string stream = ask(kRoute, body + R"(, "stream": true})", script);
  EXPECT_NE(
      stream.find(R"("text":"abc","logprobs":{"tokens":["a","b","c"],"token_logprobs":[null,-2.5,-2.5])"),
      std::string::npos)
      << stream;
  EXPECT_NE(stream.find(R"("text":"d","logprobs":{"tokens":["d"])"), std::string::npos) << stream;
  EXPECT_NE(stream.find(R"("text_offset":[3])"), std::string::npos) << stream;
}

TEST(CompletionsExchange, PromptLogprobs) {
  const auto ids = tokens_of("ab");
  const std::string body = R"({"prompt": ["ab", "ba"], "n": 2, "prompt_logprobs": 1})";
  const auto submissions = make_exchange(kRoute, body, test_model())->submissions();
  ASSERT_EQ(submissions.size(), 4u);  // once a prompt
  EXPECT_EQ(submissions[0].request.prompt_logprobs, 1);
  EXPECT_FALSE(submissions[1].request.prompt_logprobs);
  EXPECT_EQ(submissions[2].request.prompt_logprobs, 1);
  const auto answer = parsed(ask(kRoute, body, {.answer = "x"}));
  for (const std::string choice : {"choices.0", "choices.1"}) {
    EXPECT_EQ(text_at(answer, choice + ".prompt_logprobs.0"), "(null)");
    const auto second = at(answer, choice + ".prompt_logprobs.1");
    ASSERT_EQ(second.dict()->items().size(), 2u);
    const auto own = at(second, std::to_string(ids[1]));
    EXPECT_EQ(at(own, "logprob").real(), -2.5);
    EXPECT_EQ(at(own, "rank").integer(), 2);
    EXPECT_EQ(text_at(own, "decoded_token"), "b");
    EXPECT_EQ(at(second, "7.rank").integer(), 1);
    EXPECT_EQ(text_at(answer, choice + ".logprobs"), "(null)");
  }
  EXPECT_EQ(text_at(answer, "choices.2.prompt_logprobs.1." + std::to_string(ids[0]) + ".decoded_token"), "a");
  const auto alone = parsed(ask(kRoute, R"({"prompt": "ab", "prompt_logprobs": 0})", {.answer = "x"}));
  EXPECT_EQ(at(alone, "choices.0.prompt_logprobs.1").dict()->items().size(), 1u);
}

TEST(CompletionsExchange, PromptLogprobsAreBounded) {
  std::string prompts = "[";
  for (int i = 0; i < 200; ++i) prompts += (i == 0 ? "\"" : ",\"") + std::string(400, 'a') + "\"";
  const auto error = [&](const std::string& field) {
    return refusal(kRoute, R"({"max_tokens": 1, "prompt": )" + prompts + "], " + field + "}");
  };
  EXPECT_EQ(error(R"("prompt_logprobs": 1)").status, 200);
  EXPECT_EQ(error(R"("logprobs": 20)").status, 200);
  EXPECT_EQ(error(R"("logprobs": 0, "echo": true, "stream": true)").status, 200);
  EXPECT_NE(error(R"("logprobs": 1, "echo": true, "stream": true)").body.find("100000 together in a stream"),
            std::string::npos);
  const std::string alike =
      R"({"prompt": ")" + std::string(500, 'a') + R"(", "logprobs": 20, "echo": true, "stream": true, "n": )";
  EXPECT_EQ(refusal(kRoute, alike + "9}").status, 200);
  EXPECT_NE(refusal(kRoute, alike + "10}").body.find("in 10 answers"), std::string::npos)
      << "each shows them";
  for (const char* field : {R"("prompt_logprobs": 20)", R"("logprobs": 20, "echo": true)"}) {
    EXPECT_EQ(error(field).status, 400) << field;
    EXPECT_NE(error(field).body.find("20 alternatives to each of 80000 tokens"), std::string::npos)
        << error(field).body;
  }
}

TEST(CompletionsExchange, IdsOfTokens) {
  const std::string body = R"({"prompt": "ab", "return_token_ids": true, "logprobs": 1,
                               "return_tokens_as_token_ids": true)";
  const auto ids = tokens_of("ab");
  const auto answer = parsed(ask(kRoute, body + "}", {.answer = "cd"}));
  EXPECT_EQ(at(answer, "choices.0.prompt_token_ids.1").integer(), ids[1]);
  EXPECT_EQ(at(answer, "choices.0.token_ids.0").integer(), tokens_of("c")[0]);
  EXPECT_EQ(at(answer, "choices.0.token_ids.2").integer(), test_model().stop_ids[0]);  // the end counts
  EXPECT_EQ(text_at(answer, "choices.0.logprobs.tokens.1"), "token_id:" + std::to_string(tokens_of("d")[0]));
  EXPECT_EQ(text_at(answer, "choices.0.logprobs.tokens.2"), "(missing)");
  const std::string stream = ask(kRoute, body + R"(, "stream": true})", {.answer = "cd"});
  const std::string first =
      R"("token_ids":[)" + std::to_string(tokens_of("c")[0]) + R"(],"prompt_token_ids":[)";
  EXPECT_NE(stream.find(first), std::string::npos) << stream;
  EXPECT_EQ(stream.find("prompt_token_ids", stream.find("prompt_token_ids") + 1), std::string::npos)
      << stream;
}

TEST(CompletionsExchange, PromptsAreTruncatedWhenAsked) {
  const auto prompt = [](const std::string& fields) {
    const std::string body = R"({"prompt": "abcdef", "echo": true, )" + fields + "}";
    return text_at(parsed(ask(kRoute, body, {.answer = "!"})), "choices.0.text");
  };
  const auto ids = tokens_of("abcdef");
  const auto last = [&](std::ptrdiff_t count) {
    return test_model().tokenizer.decode(std::vector(ids.end() - count, ids.end())) + "!";
  };
  ASSERT_GT(ids.size(), 3u);
  EXPECT_EQ(prompt(R"("truncate_prompt_tokens": 2)"), last(2));
  EXPECT_EQ(prompt(R"("truncate_prompt_tokens": 60)"), "abcdef!");
  EXPECT_EQ(prompt(R"("truncate_prompt_tokens": -1, "max_tokens": 597)"), last(3));
  // An answer longer than the context leaves the prompt all but one of its tokens.
  EXPECT_EQ(prompt(R"("truncate_prompt_tokens": -1, "max_tokens": 600)"), "abcdef!");
  EXPECT_EQ(prompt(R"("truncate_prompt_tokens": -1, "max_tokens": 100000)"), "abcdef!");
  const std::string cut = R"({"prompt": "abcdef", "truncate_prompt_tokens": 2, "max_tokens": 1})";
  EXPECT_EQ(notes_of(kRoute, cut), fourfold::format("truncate_prompt_tokens={} ", ids.size() - 2));
  EXPECT_EQ(make_exchange(kRoute, cut, test_model())->notes.headers()[0].first, "X-Fourfold-Changed");
  ServedModel strict = test_model();
  strict.strict = true;
  EXPECT_EQ(make_exchange(kRoute, cut, strict)->submissions()[0].request.prompt.size(), 2u)
      << "asked for, and done";
  EXPECT_EQ(notes_of(kRoute, R"({"prompt": "abcdef", "truncate_prompt_tokens": 60})"), "");
  EXPECT_NE(refusal(kRoute, R"({"prompt": "a", "truncate_prompt_tokens": 0})").body.find("at least 1"),
            std::string::npos);
}

// Shown with their ends, which are hidden otherwise.
TEST(CompletionsExchange, StopsAndControlTokensMayBeShown) {
  const auto text = [](const std::string& fields, const std::string& answer) {
    return text_at(parsed(ask(kRoute, R"({"prompt": "x", )" + fields + "}", {.answer = answer})),
                   "choices.0.text");
  };
  EXPECT_EQ(text(R"("stop": "c")", "abcd"), "ab");
  EXPECT_EQ(text(R"("stop": "c", "include_stop_str_in_output": true)", "abcd"), "abc");
  EXPECT_EQ(text(R"("stop": "c", "min_tokens": 3)", "abcdc"), "abcd");
  EXPECT_EQ(text(R"("skip_special_tokens": true)", "a<|im_start|>b"), "ab");
  EXPECT_EQ(text(R"("skip_special_tokens": false)", "a<|im_start|>b"), "a<|im_start|>b");
  EXPECT_EQ(text(R"("skip_special_tokens": false, "include_stop_str_in_output": true)", "ab"),
            "ab<|im_end|>");
  EXPECT_EQ(text(R"("spaces_between_special_tokens": false)", "ab"), "ab");
}

// What load generators send: nothing of it is refused or left out. The first two bodies are guidellm 0.8.1's,
// the next two those of `vllm bench serve`.
TEST(CompletionsExchange, RequestsOfLoadGenerators) {
  const std::string plain(kRoute), chat = "/v1/chat/completions";
  const std::string guidellm =
      R"("stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true},)"
      R"( "stop": null, "ignore_eos": true)";
  const std::string vllm =
      R"("repetition_penalty": 1.0, "stream": true, "stream_options": {"include_usage": true},)"
      R"( "ignore_eos": true, "temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0)";
  const std::string parts = R"([{"role": "user", "content": [{"type": "text", "text": "a"}]}])";
  const std::vector<std::pair<std::string, std::string>> requests = {
      {plain, guidellm + R"(, "max_tokens": 16, "prompt": "a")"},
      {chat, guidellm + R"(, "max_completion_tokens": 16, "messages": )" + parts},
      {plain, vllm + R"(, "max_tokens": 16, "logprobs": null, "prompt": "a")"},
      {chat, vllm + R"(, "max_completion_tokens": 16, "messages": )" + parts},
      {plain, R"("ignore_eos": true, "min_tokens": 16, "max_tokens": 16, "prompt": "a")"},
      {plain, R"("length_penalty": 1.0, "use_beam_search": false, "best_of": 1, "prompt": "a")"},
      {plain, R"("early_stopping": false, "skip_special_tokens": true, "n": 1, "prompt": "a")"},
  };
  for (const auto& [route, fields] : requests) {
    const std::string body = R"({"model": "tiny", )" + fields + "}";
    EXPECT_EQ(refusal(route, body).body, "") << body;
    EXPECT_EQ(notes_of(route, body), "") << body;
    for (const std::int64_t id : make_exchange(route, body, test_model())->submissions()[0].request.stop_ids)
      EXPECT_EQ(body.find("ignore_eos"), std::string::npos) << id << " ends " << body;
  }
}

// Each as it is read, so that one that is too long ends the work on a list of them.
TEST(CompletionsExchange, PromptsOfAListAreMeasuredOneByOne) {
  const std::string list = "[\"" + std::string(1500, 'a') + "\", 5]";
  const HttpError refused = refusal(kRoute, R"({"prompt": )" + list + "}");
  EXPECT_NE(refused.body.find("prompt is too long: 1500 tokens"), std::string::npos) << refused.body;
  EXPECT_NE(
      refusal(kRoute, R"({"truncate_prompt_tokens": 9, "prompt": )" + list + "}").body.find("prompt[1] is 5"),
      std::string::npos);
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
      {R"({"prompt": "a", "max_tokens": 0})", "max_tokens is 0; it must be an integer, at least 1"},
      {R"({"prompt": "a", "echo": true, "max_tokens": -1})", "at least 0"},
      {R"({"prompt": "a", "prompt_logprobs": 1, "stream": true})", "prompt_logprobs is 1, which no stream"},
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
