#include "tests/server/support.h"

namespace fourfold::server {
namespace {

constexpr std::string_view kRoute = "/v1/messages";
constexpr const char* kTools =
    R"("tools": [{"name": "weather", "description": "d", "input_schema": {"type": "object", "properties":)"
    R"( {"city": {"type": "string"}}}}])";
constexpr const char* kCall =
    "Hm</think>Wait.<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</"
    "tool_call>";

std::string with(const std::string& more) {
  return R"({"model": "tiny", "max_tokens": 200, "thinking": {"type": "enabled"}, "messages": [)"
         R"({"role": "user", "content": "Hi"}])" +
         (more.empty() ? "" : ", " + more) + "}";
}

std::string prompt_of(const std::string& body) { return server::prompt_of(kRoute, body); }

// As Anthropic's own: who says nothing gets no thoughts, whatever the template would do.
TEST(MessagesExchange, ThinksOnlyWhenAsked) {
  const std::string plain = R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]})";
  EXPECT_TRUE(prompt_of(plain).ends_with("</think>\n\n")) << prompt_of(plain);
  EXPECT_TRUE(prompt_of(with("")).ends_with("<think>\n")) << prompt_of(with(""));
}

TEST(MessagesExchange, WholeAnswer) {
  const auto prompt = tokens_of("<|turn|>user\nHi<|end|>\n<|turn|>assistant\n<think>\n").size();
  EXPECT_EQ(
      ask(kRoute, with(""), {.answer = "Hm</think>Hello"}),
      fourfold::format(
          R"({"id":"msg_ID","type":"message","role":"assistant","model":"tiny","content":[{"type":"thinking",)"
          R"("thinking":"Hm","signature":""},{"type":"text","text":"Hello"}],"stop_reason":"end_turn",)"
          R"("stop_sequence":null,"usage":{"input_tokens":{},"cache_creation_input_tokens":0,)"
          R"("cache_read_input_tokens":3,"output_tokens":{}}})",
          prompt - 3, tokens_of("Hm</think>Hello").size() + 1));
}

TEST(MessagesExchange, Tools) {
  const auto answer = parsed(ask(kRoute, with(kTools), {.answer = kCall}));
  EXPECT_EQ(text_at(answer, "stop_reason"), "tool_use");
  EXPECT_EQ(text_at(answer, "content.2.type"), "tool_use");
  EXPECT_EQ(text_at(answer, "content.2.id"), "toolu_ID");
  EXPECT_EQ(text_at(answer, "content.2.input.city"), "Rome");
  // Cut off inside the call there is no call, and what the model wrote is there in words.
  const std::string half = std::string(kCall).substr(0, std::string(kCall).find("</parameter>"));
  const auto cut = parsed(ask(kRoute, with(kTools), {.answer = half, .finish = engine::Finish::max_tokens}));
  EXPECT_EQ(text_at(cut, "stop_reason"), "max_tokens");
  EXPECT_EQ(text_at(cut, "content.2.type"), "text");
  EXPECT_EQ(text_at(cut, "content.2.text"), R"([a call of weather that is not whole: {"city": "Rome])");
  EXPECT_EQ(text_at(cut, "content.3"), "(missing)");
}

// Whatever a parameter holds that is JSON, the answer has it as a stream does.
TEST(MessagesExchange, NumbersOfCallsAreNotRounded) {
  const std::string call =
      "</think><tool_call>\n<function=weather>\n<parameter=city>\n98765432109876543210\n</parameter>\n"
      "<parameter=deep>\n" +
      std::string(64, '[') + std::string(64, ']') + "\n</parameter>\n</function>\n</tool_call>";
  constexpr const char* tools =
      R"("tools": [{"name": "weather", "description": "d", "input_schema": {"type": "object", "properties":)"
      R"( {"city": {"type": "integer"}, "deep": {"type": "array"}}}}])";
  const std::string answer = ask(kRoute, with(tools), {.answer = call});
  EXPECT_NE(answer.find(R"("input":{"city": 98765432109876543210, "deep": [[[[)"), std::string::npos)
      << answer;
  EXPECT_NE(answer.find(R"("stop_reason":"tool_use")"), std::string::npos) << answer;
}

// Anthropic has none of these; where they stand they are served, as in every other request, or refused.
TEST(MessagesExchange, HowTokensAreDrawnMayBeSaidAsElsewhere) {
  const auto exchange = make_exchange(
      kRoute, with(R"("logit_bias": {"7": -5.5}, "min_p": 0.25, "seed": 3, "repetition_penalty": 1.5)"),
      test_model());
  const auto submissions = exchange->submissions();
  ASSERT_EQ(submissions.size(), 1u);
  const sample::Params& params = submissions[0].request.params;
  ASSERT_EQ(params.logit_bias.size(), 1u);
  EXPECT_EQ(params.logit_bias[0].id, 7);
  EXPECT_EQ(params.logit_bias[0].bias, -5.5);
  EXPECT_EQ(params.min_p, 0.25);
  EXPECT_EQ(params.seed, 3u);
  EXPECT_EQ(params.repetition_penalty, 1.5);
}

TEST(MessagesExchange, StopSequences) {
  const auto answer =
      parsed(ask(kRoute, with(R"("stop_sequences": ["STOP"])"), {.answer = "a</think>b STOP c"}));
  EXPECT_EQ(text_at(answer, "stop_reason"), "stop_sequence");
  EXPECT_EQ(text_at(answer, "stop_sequence"), "STOP");
  EXPECT_EQ(text_at(answer, "content.1.text"), "b ");
}

TEST(MessagesExchange, Stream) {
  const std::string stream = ask(kRoute, with(std::string(R"("stream": true, )") + kTools),
                                 {.answer = kCall, .finish = engine::Finish::stop_id, .tokens_a_step = 1000});
  std::vector<std::string> events;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    events.push_back(stream.substr(at, end - at));
    at = end + 2;
  }
  const auto expect = [&](std::size_t index, const std::string& event) {
    ASSERT_LT(index, events.size());
    EXPECT_EQ(events[index], event);
  };
  EXPECT_TRUE(events[0].starts_with(R"(event: message_start
data: {"type":"message_start","message":{"id":"msg_ID","type":"message","role":"assistant","model":"tiny",)"
                                    R"("content":[],"stop_reason":null,"stop_sequence":null,"usage":{)"))
      << events[0];
  expect(1, "event: ping\ndata: {\"type\":\"ping\"}");
  const std::string start = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":";
  const std::string delta = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":";
  const std::string stop = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":";
  expect(2, start + R"(0,"content_block":{"type":"thinking","thinking":"","signature":""}})");
  expect(3, delta + R"(0,"delta":{"type":"thinking_delta","thinking":"Hm"}})");
  expect(4, stop + "0}");
  expect(5, start + R"(1,"content_block":{"type":"text","text":""}})");
  expect(6, delta + R"(1,"delta":{"type":"text_delta","text":"Wait."}})");
  expect(7, stop + "1}");
  expect(8, start + R"(2,"content_block":{"type":"tool_use","id":"toolu_ID","name":"weather","input":{}}})");
  expect(9, delta + R"(2,"delta":{"type":"input_json_delta","partial_json":"{\"city\": \"Rome\"}"}})");
  expect(10, stop + "2}");
  EXPECT_TRUE(
      events[11].starts_with("event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"
                             R"("stop_reason":"tool_use","stop_sequence":null},"usage":{)"))
      << events[11];
  expect(12, "event: message_stop\ndata: {\"type\":\"message_stop\"}");
  EXPECT_EQ(events.size(), 13u);
}

TEST(MessagesExchange, AStreamThatBreaks) {
  const std::string stream =
      ask(kRoute, with(R"("stream": true)"), {.answer = "a", .finish = engine::Finish::failed});
  EXPECT_TRUE(stream.ends_with(
      R"(event: error
data: {"type":"error","error":{"type":"api_error","message":"the answer failed: logits are not finite","details":{"error_code":"internal"}}})"
      "\n\n"))
      << stream;
}

TEST(MessagesExchange, BlocksOfTheConversation) {
  EXPECT_EQ(prompt_of(R"({"system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
      "thinking": {"type": "disabled"}, "messages": [
      {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "look", "signature": "x"},
        {"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "Rome"}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content":
        [{"type": "text", "text": "no"}], "is_error": true}]}]})"),
            "<|turn|>system\nS<|end|>\n<|turn|>user\nWeather?<|end|>\n<|turn|>assistant\n<think>\nlook\n</"
            "think>\n\n"
            "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</"
            "tool_call><|end|>\n"
            "<|turn|>user\n<tool_response>\nError: "
            "no\n</tool_response><|end|>\n<|turn|>assistant\n<think>\n\n</think>"
            "\n\n");
  // An answer that was begun goes on.
  EXPECT_TRUE(prompt_of(R"({"messages": [{"role": "user", "content": "Count"}, {"role": "assistant",
      "content": "one, two,"}]})")
                  .ends_with("one, two,"));
}

TEST(MessagesExchange, CountsTokens) {
  const auto exchange = make_exchange("/v1/messages/count_tokens", with(""), test_model());
  EXPECT_TRUE(exchange->submissions().empty());
  ASSERT_TRUE(exchange->done());
  const auto prompt = tokens_of("<|turn|>user\nHi<|end|>\n<|turn|>assistant\n<think>\n").size();
  EXPECT_EQ(exchange->body(), fourfold::format(R"({"input_tokens":{}})", prompt));
}

TEST(MessagesExchange, Refusals) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"max_tokens": 5})", "messages is missing"},
      {R"({"messages": []})", "messages is empty"},
      {R"({"messages": [{"role": "robot", "content": "a"}]})", "one of user, assistant, system"},
      {R"({"messages": [{"role": "user", "content": []}]})", "says nothing this model could read"},
      {with(R"("compaction": {"type": "summarize"})"), "compaction is not served here"},
      {with(R"("container": "c1")"), "container is not served here"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]})",
       "messages[0].content[0].type"},
      {with(R"("tool_choice": {"type": "any"})"), "there are no tools"},
      {with(R"("max_tokens": 0)"), "the same name"},
      {with(R"("temperature": "hot")"), "temperature is"},
      {with(R"("logit_bias": {"x": 1})"), "logit_bias names token"},
      {R"({"max_tokens": 9, "thinking": {"type": "sometimes"}, "messages": [{"role": "user", "content": "Hi"}]})",
       "thinking.type"},
  };
  for (const auto& [body, message] : cases) {
    const HttpError error = refusal(kRoute, body);
    EXPECT_EQ(error.status, 400) << body;
    const auto json = parsed(error.body);
    EXPECT_EQ(text_at(json, "type"), "error");
    EXPECT_EQ(text_at(json, "error.type"), "invalid_request_error");
    EXPECT_NE(text_at(json, "error.message").find(message), std::string::npos) << body << " " << error.body;
  }
  EXPECT_EQ(refusal(kRoute, R"({"model": "claude"})").status, 404);
}

}  // namespace
}  // namespace fourfold::server
