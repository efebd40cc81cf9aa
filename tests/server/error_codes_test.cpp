// What a program reads in an error: `code`, on every route that refuses or fails.
#include "server/api/request_error.h"
#include "server/json_guard.h"
#include "tests/server/support.h"

namespace fourfold::server {
namespace {

constexpr std::string_view kMessages = R"("messages": [{"role": "user", "content": "a"}])";

std::string code_in(const HttpError& error) { return text_at(parsed(error.body), "error.code"); }

TEST(ErrorCodes, OfWhatARequestMayNotAsk) {
  const auto chat = [](const std::string& more) { return "{" + std::string(kMessages) + ", " + more + "}"; };
  const std::string many = "\"" + std::string(20'000, 'x') + "\"";
  const std::vector<std::tuple<std::string, int, std::string>> cases = {
      {chat(R"("model": "gpt-4")"), 404, "model_not_found"},
      {R"({"messages": [{"role": "user", "content": )" + many + "}]}", 400, "context_length_exceeded"},
      {"{}", 400, "missing_required_parameter"},
      {R"({"messages": [{"content": "a"}]})", 400, "missing_required_parameter"},
      {chat(R"("temperature": "hot")"), 400, "invalid_type"},
      {chat(R"("top_p": 7)"), 400, "invalid_value"},
      {chat(R"("n": "two")"), 400, "invalid_type"},
      {chat(R"("n": 0)"), 400, "invalid_value"},
      {chat(R"("stream": 3)"), 400, "invalid_type"},
      {chat(R"("stop": {})"), 400, "invalid_value"},
      {chat(R"("reasoning_effort": "huge")"), 400, "invalid_value"},
      {chat(R"("use_beam_search": true)"), 400, "unsupported_value"},
      {chat(R"("temprature": 1)"), 400, "unknown_parameter"},
      {"[]", 400, "invalid_type"},
      {"{", 400, "invalid_request"}};
  for (const auto& [body, status, code] : cases) {
    const HttpError error = refusal("/v1/chat/completions", body);
    EXPECT_EQ(error.status, status) << body.substr(0, 200);
    EXPECT_EQ(code_in(error), code) << body.substr(0, 200) << error.body;
  }
  // LiteLLM's words for it, which has no eye for codes.
  const HttpError too_long = refusal("/v1/completions", "{\"prompt\": " + many + "}");
  EXPECT_NE(too_long.body.find("This model's maximum context length is 600 tokens"), std::string::npos)
      << too_long.body;
  EXPECT_EQ(code_in(refusal("/v1/completions", "{}")), "missing_required_parameter");
  EXPECT_EQ(code_in(refusal("/v1/responses", "{}")), "missing_required_parameter");
  EXPECT_EQ(code_in(refusal("/v1/responses", R"({"input": "a", "previous_response_id": "resp_1"})")),
            "previous_response_not_found");
  const HttpError anthropic = refusal("/v1/messages", "{\"max_tokens\": 0, " + std::string(kMessages) + "}");
  EXPECT_EQ(text_at(parsed(anthropic.body), "error.details.error_code"), "invalid_value") << anthropic.body;
}

TEST(ErrorCodes, OfRequestsThatAreNotTaken) {
  using engine::Trouble;
  const std::vector<std::tuple<Trouble, Code, int, std::string>> cases = {
      {Trouble::queue_full, Code::over_capacity, 503, "queue_full"},
      {Trouble::stopping, Code::over_capacity, 503, "shutting_down"},
      {Trouble::away, Code::over_capacity, 503, "rank_lost"},
      {Trouble::fault, Code::device_lost, 503, "failed"}};
  for (const auto& [trouble, kind, status, code] : cases) {
    const HttpError error = error_answer("/v1/completions", engine::NotTaken(trouble, kind, "why", "hint"));
    EXPECT_EQ(error.status, status) << code;
    EXPECT_EQ(code_in(error), code);
  }
  for (const auto& [kind, code] : {std::pair{Code::over_capacity, "overloaded"},
                                   {Code::out_of_memory, "out_of_memory"},
                                   {Code::device_lost, "failed"},
                                   {Code::io, "internal"}})
    EXPECT_EQ(code_in(error_answer("/v1/completions", Error(kind, "why"))), code);
}

// Behind the first token, too: what was away comes back, and whoever sees 503 asks again.
TEST(ErrorCodes, OfAnswersThatFail) {
  using engine::Trouble;
  const std::vector<std::tuple<Trouble, int, std::string>> cases = {{Trouble::none, 500, "internal"},
                                                                    {Trouble::away, 503, "rank_lost"},
                                                                    {Trouble::fault, 500, "failed"},
                                                                    {Trouble::stalled, 500, "stalled"}};
  for (const auto& [trouble, status, code] : cases) {
    const Script script{.answer = "a", .finish = engine::Finish::failed, .trouble = trouble};
    for (const auto& [route, body] : {std::pair{"/v1/chat/completions", "{" + std::string(kMessages)},
                                      {"/v1/completions", R"({"prompt": "a")"}}) {
      const auto exchange = make_exchange(route, std::string(body) + "}", test_model());
      EXPECT_EQ(text_at(parsed(run_script(*exchange, script)), "error.code"), code) << route;
      EXPECT_EQ(exchange->status(), status) << route;
      const std::string stream = ask(route, std::string(body) + R"(, "stream": true})", script);
      EXPECT_NE(stream.find("\"code\":\"" + code + "\""), std::string::npos) << stream;
    }
    const std::string response = ask("/v1/responses", R"({"input": "a", "stream": true})", script);
    const std::string own = code == "internal" ? "server_error" : code;
    EXPECT_NE(response.find("\"error\":{\"code\":\"" + own + "\""), std::string::npos) << response;
    const auto anthropic =
        make_exchange("/v1/messages", "{\"max_tokens\": 9, " + std::string(kMessages) + "}", test_model());
    EXPECT_EQ(text_at(parsed(run_script(*anthropic, script)), "error.details.error_code"), code);
  }
}

}  // namespace
}  // namespace fourfold::server
