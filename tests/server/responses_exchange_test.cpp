#include "tests/server/support.h"

namespace fourfold::server {
namespace {

constexpr std::string_view kRoute = "/v1/responses";
constexpr const char* kTools =
    R"("tools": [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties":)"
    R"( {"city": {"type": "string"}}}, "strict": true}])";
constexpr const char* kCall =
    "Hm</think>Wait.\n<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n"
    "</tool_call>";

std::string prompt_of(const std::string& body) { return server::prompt_of(kRoute, body); }

TEST(ResponsesExchange, WholeAnswer) {
  const std::string text = ask(
      kRoute,
      std::string(R"({"input": "Hi", "instructions": "Be brief.", "metadata": {"k": "v"}, )") + kTools + "}",
      {.answer = kCall});
  const auto answer = parsed(text);
  EXPECT_EQ(text_at(answer, "object"), "response");
  EXPECT_EQ(text_at(answer, "status"), "completed");
  EXPECT_EQ(text_at(answer, "output.0.type"), "reasoning");
  EXPECT_EQ(text_at(answer, "output.0.content.0.text"), "Hm");
  EXPECT_EQ(text_at(answer, "output.1.type"), "message");
  EXPECT_EQ(text_at(answer, "output.1.content.0.type"), "output_text");
  EXPECT_EQ(text_at(answer, "output.1.content.0.text"), "Wait.\n");
  EXPECT_EQ(text_at(answer, "output.2.type"), "function_call");
  EXPECT_EQ(text_at(answer, "output.2.call_id"), "call_ID");
  EXPECT_EQ(text_at(answer, "output.2.arguments"), R"({"city": "Rome"})");
  EXPECT_EQ(text_at(answer, "instructions"), "Be brief.");
  EXPECT_EQ(text_at(answer, "metadata.k"), "v");
  EXPECT_EQ(text_at(answer, "tools.0.name"), "weather");
  EXPECT_TRUE(at(answer, "store").boolean());
  EXPECT_EQ(at(answer, "usage.input_tokens_details.cached_tokens").integer(), 3);
  EXPECT_EQ(at(answer, "usage.output_tokens").integer(), std::ssize(tokens_of(kCall)) + 1);
}

TEST(ResponsesExchange, CutOff) {
  const auto answer = parsed(ask(kRoute, R"({"input": "Hi", "max_output_tokens": 20})",
                                 {.answer = "a</think>b", .finish = engine::Finish::max_tokens}));
  EXPECT_EQ(text_at(answer, "status"), "incomplete");
  EXPECT_EQ(text_at(answer, "incomplete_details.reason"), "max_output_tokens");
  EXPECT_EQ(at(answer, "max_output_tokens").integer(), 20);
  EXPECT_EQ(text_at(answer, "output.1.status"), "incomplete");
}

// "type" of each event, and that the numbers count up.
std::string event_types(const std::string& stream) {
  static const std::regex head(
      R"re(event: ([a-z_.]+)\ndata: \{"type":"([a-z_.]+)","sequence_number":([0-9]+))re");
  std::string out;
  int number = 0;
  for (std::sregex_iterator at(stream.begin(), stream.end(), head), end; at != end; ++at, ++number) {
    EXPECT_EQ((*at)[1], (*at)[2]);
    EXPECT_EQ((*at)[3], std::to_string(number));
    out += (*at)[1].str().substr(std::string_view("response.").size()) + "\n";
  }
  return out;
}

TEST(ResponsesExchange, Stream) {
  const std::string body = std::string(R"({"input": "Hi", "stream": true, )") + kTools + "}";
  const std::string stream =
      ask(kRoute, body, {.answer = kCall, .finish = engine::Finish::stop_id, .tokens_a_step = 1000});
  EXPECT_EQ(
      event_types(stream),
      "created\nin_progress\n"
      "output_item.added\ncontent_part.added\nreasoning_text.delta\nreasoning_text.done\n"
      "content_part.done\noutput_item.done\n"
      "output_item.added\ncontent_part.added\noutput_text.delta\noutput_text.done\n"
      "content_part.done\noutput_item.done\n"
      "output_item.added\nfunction_call_arguments.delta\nfunction_call_arguments.done\noutput_item.done\n"
      "completed\n");
  EXPECT_NE(stream.find(R"("delta":"{\"city\": \"Rome\"}")"), std::string::npos) << stream;
  EXPECT_EQ(stream.find("[DONE]"), std::string::npos);
  // Token by token it says the same.
  const std::string slow = ask(kRoute, body, {.answer = kCall});
  const auto tail = [](const std::string& text) {
    return std::regex_replace(text.substr(text.rfind("data: ")), std::regex("\"sequence_number\":[0-9]+"),
                              "");
  };
  EXPECT_EQ(tail(slow), tail(stream));
}

TEST(ResponsesExchange, AStreamThatBreaks) {
  const std::string stream =
      ask(kRoute, R"({"input": "Hi", "stream": true})", {.answer = "a", .finish = engine::Finish::shutdown});
  EXPECT_TRUE(event_types(stream).ends_with("output_item.done\nfailed\n")) << stream;
  EXPECT_NE(stream.find("shutting down"), std::string::npos);
}

TEST(ResponsesExchange, ItemsOfTheConversation) {
  EXPECT_EQ(
      prompt_of(R"({"instructions": "A", "input": [
      {"role": "developer", "content": "B"},
      {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
      {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "look"}]},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Moment."}], "id": "m"},
      {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{\"city\": \"Rome\"}"},
      {"type": "function_call_output", "call_id": "c", "output": "sunny"}]})"),
      "<|turn|>system\nA\n\nB<|end|>\n<|turn|>user\nWeather?<|end|>\n<|turn|>assistant\n<think>\nlook\n</"
      "think>"
      "\n\nMoment.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n"
      "</tool_call><|end|>\n<|turn|>user\n<tool_response>\nsunny\n</"
      "tool_response><|end|>\n<|turn|>assistant\n"
      "<think>\n");
  EXPECT_TRUE(prompt_of(R"({"input": "x", "reasoning": {"effort": "none"}})").ends_with("</think>\n\n"));
}

TEST(ResponsesExchange, Refusals) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{}", "input is missing"},
      {R"({"input": []})", "input is empty"},
      {R"({"input": [{"type": "item_reference", "id": "x"}]})", "send the item itself"},
      {R"({"input": "a", "previous_response_id": "resp_1"})", "not kept here, or no longer"},
      {R"({"input": "a", "conversation": "conv_1"})", "conversation is not served here"},
      {R"({"input": "a", "prompt": {"id": "p"}})", "prompt is not served here"},
      {R"({"input": "a", "background": true})", "background is true"},
      {R"({"input": "a", "truncation": "always"})", "one of disabled, auto"},
      {R"({"input": "a", "include": [1]})", "include[0] is 1"},
      {R"({"input": "a", "top_logprobs": 21})", "at most 20"},
      {R"({"input": "a", "text": {"format": {"type": "yaml"}}})", "text.format.type"},
      {R"({"input": "a", "text": {"verbosity": "endless"}})", "text.verbosity"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]})",
       "text only"},
      {R"({"input": "a", "n": 2})", "one answer"},
      {R"({"input": "a", "metadata": 3})", "metadata is 3; it must be an object"},
      {R"({"input": "a", "metadata": {"a": ")" + std::string(20'000, 'x') + "\"}}",
       "metadata has 20009 bytes of JSON"},
  };
  for (const auto& [body, message] : cases) {
    const HttpError error = refusal(kRoute, body);
    EXPECT_EQ(error.status, 400) << body;
    EXPECT_NE(error.body.find(message), std::string::npos) << body << " " << error.body;
  }
  EXPECT_EQ(refusal(kRoute, R"({"input": "a", "store": true, "previous_response_id": null})").status, 200);
}

// As Codex and others ask; what is not done is said.
TEST(ResponsesExchange, FieldsOfClientsAreTaken) {
  EXPECT_EQ(notes_of(kRoute, R"({"input": "a", "client_metadata": {"a": "b"}, "text": {"verbosity": "low"},
      "reasoning": {"effort": "max", "summary": "auto"}, "store": false, "prompt_cache_key": "k",
      "include": ["reasoning.encrypted_content", "file_search_call.results"], "max_tool_calls": 3})"),
            "");
  for (const char* effort : {"none", "minimal", "low", "medium", "high", "xhigh", "max"})
    EXPECT_EQ(
        refusal(kRoute, R"({"input": "a", "reasoning": {"effort": ")" + std::string(effort) + "\"}}").status,
        200)
        << effort;
  EXPECT_EQ(notes_of(kRoute, R"({"input": "a", "truncation": "auto"})"), "truncation=auto ");
}

TEST(ResponsesExchange, BeginsBeforeTheFirstTokenAndStaysAlive) {
  const auto exchange = make_exchange(kRoute, R"({"input": "Hi", "stream": true})", test_model());
  exchange->submissions();
  const std::string begun = exchange->begin();
  EXPECT_EQ(event_types(begun), "created\nin_progress\n");
  // One after the other: the calls of one expression have no order, and machines take them in different ones.
  std::string all = begun + exchange->keep_alive();
  all += exchange->keep_alive();
  EXPECT_EQ(event_types(all), "created\nin_progress\nin_progress\nin_progress\n");
  // What may be as long as the request is said once.
  const auto large = make_exchange(kRoute,
                                   R"({"input": "Hi", "stream": true, "instructions": "Be brief.", "metadata":
      {"key": "value"}, "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]})",
                                   test_model());
  large->submissions();
  const std::string first = large->begin(), later = large->keep_alive();
  for (const char* part : {"Be brief.", R"({"key":"value"})", R"("name":"f")"}) {
    EXPECT_NE(first.find(part), std::string::npos) << part;
    EXPECT_EQ(later.find(part), std::string::npos) << later;
  }
}

// An answer repeats what its request brought: that is part of what it holds.
TEST(ResponsesExchange, KnowsHowLongItIs) {
  const auto bytes = [](const std::string& words) {
    const std::string body =
        R"({"input": "Hi", "tool_choice": "none", "tools": [{"type": "function", "name": "f",)"
        R"( "description": ")" +
        words + R"("}]})";
    return make_exchange(kRoute, body, test_model())->long_bytes();
  };
  EXPECT_LT(bytes("a"), 10'000u);
  EXPECT_GT(bytes(std::string(600'000, 'a')), 1'800'000u);
}

TEST(ResponsesExchange, FieldsAResponseHasNoPlaceForAreRefused) {
  for (const char* field :
       {R"("echo": true)", R"("prompt_logprobs": 0)", R"("return_token_ids": true)",
        R"("return_tokens_as_token_ids": true)", R"("echo": true, "max_output_tokens": 0)"})
    EXPECT_EQ(refusal(kRoute, std::string(R"({"input": "a", )") + field + "}").status, 400) << field;
  for (const char* field : {R"("echo": false)", R"("prompt_logprobs": null)"})
    EXPECT_EQ(refusal(kRoute, std::string(R"({"input": "a", )") + field + "}").status, 200) << field;
}

TEST(ResponsesExchange, LogprobsAreOfTheTextAlone) {
  const std::string body = std::string(R"({"input": "Hi", "top_logprobs": 1, "include":)") +
                           R"( ["message.output_text.logprobs"], )" + kTools + "}";
  for (const std::size_t tokens_a_step : {1, 3, 1000}) {
    const auto answer = parsed(ask(kRoute, body, {.answer = kCall, .tokens_a_step = tokens_a_step}));
    const auto list = at(answer, "output.1.content.0.logprobs");
    std::string text;
    for (const auto& token : list.sequence()->items) {
      text += text_at(token, "token");
      EXPECT_EQ(at(token, "logprob").number(), -0.5);
      EXPECT_EQ(at(token, "top_logprobs").sequence()->items.size(), 1u);
    }
    EXPECT_EQ(text, "Wait.\n") << tokens_a_step;
    EXPECT_EQ(at(answer, "top_logprobs").integer(), 1);
  }
  const std::string stream = ask(kRoute, R"({"stream": true, )" + body.substr(1), {.answer = kCall});
  EXPECT_NE(stream.find(R"("delta":".","logprobs":[{"token":".","logprob":-0.5)"), std::string::npos)
      << stream;
  EXPECT_EQ(text_at(parsed(ask(kRoute, R"({"input": "Hi"})", {.answer = "a</think>b"})),
                    "output.1.content.0.logprobs.0"),
            "(missing)");
}

TEST(ResponsesExchange, CountsTokens) {
  const std::string body = R"({"input": "Hi", "instructions": "Be brief."})";
  const auto exchange = make_exchange("/v1/responses/input_tokens", body, test_model());
  EXPECT_TRUE(exchange->submissions().empty());
  ASSERT_TRUE(exchange->done());
  const auto prompt = make_exchange(kRoute, body, test_model())->submissions()[0].request.prompt;
  EXPECT_EQ(exchange->body(),
            fourfold::format(R"({"object":"response.input_tokens","input_tokens":{}})", prompt.size()));
  // Longer than the context is no reason not to count.
  EXPECT_EQ(refusal("/v1/responses/input_tokens", R"({"input": ")" + std::string(9000, 'q') + "\"}").status,
            200);
}

}  // namespace
}  // namespace fourfold::server
