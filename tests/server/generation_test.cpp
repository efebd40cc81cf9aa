// What requests may not ask, field by field; the fields of all protocols are read by the same code.
#include "server/api/generation.h"

#include <regex>

#include "tests/server/support.h"

namespace fourfold::server {
namespace {

constexpr std::string_view kRoute = "/v1/chat/completions";

void expect_refused(const std::string& body, std::string_view param, std::string_view message) {
  const HttpError error = refusal(kRoute, body);
  EXPECT_EQ(error.status, 400) << body;
  if (error.status != 400) return;
  const auto json = parsed(error.body);
  EXPECT_EQ(text_at(json, "error.type"), "invalid_request_error");
  EXPECT_EQ(text_at(json, "error.param"), param.empty() ? "(null)" : param) << body;
  EXPECT_NE(text_at(json, "error.message").find(message), std::string::npos)
      << body << "\n  " << text_at(json, "error.message");
  EXPECT_EQ(error.body.find("/secret"), std::string::npos) << error.body;
}

void expect_field(const std::string& field, std::string_view message) {
  const std::string name = field.substr(1, field.find('"', 1) - 1);
  expect_refused(R"({"messages": [{"role": "user", "content": "a"}], )" + field + "}", name, message);
}

void expect_messages(const std::string& messages, std::string_view param, std::string_view message) {
  expect_refused(R"({"messages": )" + messages + "}", param, message);
}

TEST(Requests, BodiesThatAreNoRequest) {
  for (const char* body : {"", " ", "{", "{\"a\"", "nul", "{} x", "\xEF\xBB\xBF{}", "{\"messages\": [NaN]}"})
    expect_refused(body, "", "the body: not JSON at byte");
  expect_refused("[]", "", "the body is an array; it must be an object");
  expect_refused("null", "", "the body is null");
  expect_refused("\"x\"", "", "the body is a string");
  expect_refused("{}", "messages", "messages is missing");
  expect_refused(R"({"n": 1, "n": 2})", "", "a second member of the same name");
  expect_refused(std::string(100'000, '['), "", "more than 64 levels");
  std::string keys = "{";
  for (int i = 0; i < 600'000; ++i) keys += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
  expect_refused(keys + "}", "", "more than 524288 values");
  expect_refused("{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}", "", "invalid UTF-8");
}

TEST(Requests, Numbers) {
  for (const char* field :
       {R"("temperature": -1)", R"("temperature": 1e308)", R"("temperature": "0.7")",
        R"("temperature": true)", R"("top_p": 0)", R"("top_p": 1.1)", R"("min_p": -0.1)",
        R"("presence_penalty": 3)", R"("frequency_penalty": -2.5)", R"("repetition_penalty": 0)"})
    expect_field(field, "it must be a number");
  expect_refused(R"({"temperature": 1e999})", "", "a number beyond 1.8e308");
  for (const char* field :
       {R"("max_tokens": 0)", R"("max_tokens": -1)", R"("max_tokens": 1.5)", R"("max_tokens": "5")"})
    expect_field(field, "it must be an integer, at least 1 and");
  expect_field(R"("max_tokens": 9223372036854775808)", "it must be an integer, at least 1 and");
  expect_refused("{\"seed\": " + std::string(400, '9') + "}", "", "a number beyond 1.8e308");
  const std::string zeros(400, '0');
  for (const std::string& none :
       std::vector<std::string>{"0." + zeros, "-0." + zeros, "0." + zeros + "1", "1" + zeros + "e-900",
                                "1e-999", "1e-99999999999999999999", "0e99999999999999999999"})
    EXPECT_EQ(
        refusal(kRoute, R"({"messages": [{"role": "user", "content": "a"}], "temperature": )" + none + "}")
            .status,
        200)
        << none;
  expect_refused("{\"temperature\": 1" + zeros + "e-9}", "", "a number beyond 1.8e308");
  expect_field(R"("n": 1000000)", "at least 1 and at most 16");
  expect_field(R"("n": 0)", "at least 1");
  expect_field(R"("top_k": -2)", "at least -1");
  expect_field(R"("min_tokens": -1)", "at least 0");
  expect_field(R"("min_tokens": 5, "max_tokens": 4)",
               "min_tokens is 5; the answer may have at most 4 tokens");
  expect_field(R"("min_tokens": 600)", "min_tokens is 600; the answer may have at most");
  expect_field(R"("prompt_logprobs": 21)", "at most 20");
  expect_field(R"("prompt_logprobs": -1)", "at least 0");
  expect_field(R"("truncate_prompt_tokens": -2)", "at least -1");
  expect_field(R"("top_logprobs": 1000000)", "at most 20");
  expect_field(R"("top_logprobs": 2)", "but logprobs is not true");
  expect_field(R"("logprobs": 5)", "it must be true or false");
  EXPECT_EQ(
      refusal(kRoute, R"({"messages": [{"role": "user", "content": "a"}], "temperature": null, "n": null,
    "top_k": -1, "seed": -5, "max_tokens": 2.0, "user": "u", "metadata": {"a": "b"}, "store": true})")
          .status,
      200);
}

TEST(Requests, Context) {
  // The template's words around it are part of the prompt.
  const HttpError prompt =
      refusal(kRoute, R"({"messages": [{"role": "user", "content": ")" + std::string(5000, 'q') + "\"}]}");
  EXPECT_EQ(prompt.status, 400);
  EXPECT_EQ(text_at(parsed(prompt.body), "error.code"), "context_length_exceeded");
}

// Each protocol's own field is named, for what is tokenised and for what cannot fit by its bytes alone.
TEST(Requests, APromptThatIsTooLongNamesItsField) {
  for (const bool huge : {false, true}) {
    const std::string words = "\"" + std::string(huge ? 10'000'000 : 5'000, 'q') + "\"";
    const std::string messages = R"({"messages": [{"role": "user", "content": )" + words + "}]";
    std::string ids = "1";
    for (int i = 0; i < 600; ++i) ids += ",1";
    const std::tuple<std::string_view, std::string, std::string> requests[] = {
        {kRoute, messages + "}", "messages"},
        {"/v1/completions", R"({"prompt": )" + words + "}", "prompt"},
        {"/v1/completions", R"({"prompt": [[1], )" + (huge ? words : "[" + ids + "]") + "]}", "prompt"},
        {"/v1/responses", R"({"input": )" + words + "}", "input"},
        {"/v1/responses", R"({"input": [{"role": "user", "content": )" + words + "}]}", "input"}};
    for (const auto& [route, body, field] : requests) {
      const HttpError error = refusal(route, body);
      EXPECT_EQ(error.status, 400) << route;
      EXPECT_EQ(text_at(parsed(error.body), "error.code"), "context_length_exceeded") << route;
      EXPECT_EQ(text_at(parsed(error.body), "error.param"), field) << route;
      EXPECT_EQ(error.body.find("bytes, more than 600 tokens > 600 maximum") != std::string::npos, huge);
    }
    // Anthropic's errors have no field beside the message.
    const HttpError error = refusal("/v1/messages", messages + R"(, "max_tokens": 5})");
    EXPECT_EQ(text_at(parsed(error.body), "error.type"), "invalid_request_error");
    EXPECT_NE(error.body.find("prompt is too long"), std::string::npos);
  }
}

// The words that Claude Code looks for, and where more context comes from.
TEST(Requests, APromptThatIsTooLongNamesTheOption) {
  const std::string words =
      R"({"messages": [{"role": "user", "content": ")" + std::string(5000, 'q') + "\"}]}";
  const auto message = [&](const ServedModel& model) {
    try {
      make_exchange(kRoute, words, model);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("served");
  };
  static const std::regex head(
      "^prompt is too long: [0-9]+ tokens > 600 maximum, for prompt and answer together. This model's "
      "maximum context "
      "length is 600 tokens here. Shorten it");
  EXPECT_TRUE(std::regex_search(message(test_model()), head)) << message(test_model());
  EXPECT_EQ(message(test_model()).find("--max-context"), std::string::npos) << "the model has no more";
  ServedModel model = test_model();
  model.context_most = 40'960;
  EXPECT_TRUE(
      message(model).ends_with(", or start the server with a larger --max-context: the model has 40960"))
      << message(model);
}

TEST(Requests, MoreTokensThanFitAreCutAndSaid) {
  const std::string chat = R"("messages": [{"role": "user", "content": "a"}])";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/v1/chat/completions", R"({"max_tokens": 600, )" + chat + "}"},
      {"/v1/chat/completions", R"({"max_completion_tokens": 9223372036854775807, )" + chat + "}"},
      {"/v1/completions", R"({"max_tokens": 100000, "prompt": "a"})"},
      {"/v1/responses", R"({"max_output_tokens": 32000, "input": "a"})"},
      {"/v1/messages", R"({"max_tokens": 32000, )" + chat + "}"}};
  for (const auto& [route, body] : cases) {
    const auto exchange = make_exchange(route, body, test_model());
    const auto submissions = exchange->submissions();
    const std::int64_t room = kTestContext - std::ssize(submissions[0].request.prompt);
    EXPECT_EQ(submissions[0].request.max_tokens, room) << body;
    ASSERT_EQ(exchange->notes.all().size(), 1u) << body;
    const std::string field = body.substr(2, body.find('"', 2) - 2);
    EXPECT_EQ(exchange->notes.all()[0],
              (api::Note{api::NoteKind::length, fourfold::format("{}={}", field, room)}));
    ServedModel strict = test_model();
    strict.strict = true;
    EXPECT_THROW(make_exchange(route, body, strict), Error) << body;
  }
  const auto fits = make_exchange(kRoute, R"({"max_tokens": 50, )" + chat + "}", test_model());
  EXPECT_TRUE(fits->notes.all().empty());
  EXPECT_EQ(fits->submissions()[0].request.max_tokens, 50);
}

TEST(Requests, OneAnswerHasOneLimit) {
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"}], )";
  const HttpError refused = refusal(kRoute, chat + R"("max_tokens": 5, "max_completion_tokens": 6})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("max_tokens is 5 and max_completion_tokens is 6"), std::string::npos)
      << refused.body;
  EXPECT_EQ(refusal(kRoute, chat + R"("max_tokens": 5, "max_completion_tokens": 5})").status, 200);
  EXPECT_EQ(refusal("/v1/responses", R"({"input": "a", "max_tokens": 5, "max_output_tokens": 6})").status,
            400);
}

TEST(Requests, BiasAndStops) {
  expect_field(R"("logit_bias": {"-1": 1})", "at least 0 and below 1024");
  expect_field(R"("logit_bias": {"1024": 1})", "logit_bias names token \"1024\"");
  expect_field(R"("logit_bias": {"x": 1})", "logit_bias names token");
  expect_field(R"("logit_bias": {"1": 101})", "at most 100");
  expect_field(R"("logit_bias": {"1": "2"})", "logit_bias of token 1");
  expect_field(R"("logit_bias": {"1": 1, "01": 2})", "twice");
  expect_field(R"("logit_bias": [1])", "logit_bias is an array");
  std::string many = "{";
  for (int i = 0; i < 1025; ++i) many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
  expect_field(R"("logit_bias": )" + many + "}", "1025 entries; at most 1024");
  EXPECT_EQ(notes_of(kRoute, R"({"messages": [{"role": "user", "content": "a"}], "stop": ""})"),
            "stop=empty ");
  const auto stops_of = make_exchange(
      kRoute, R"({"messages": [{"role": "user", "content": "a"}], "stop": ["", "b", ""]})", test_model());
  EXPECT_EQ(stops_of->notes.headers()[0].second, "stop[]=empty");
  expect_field(R"("stop": 3)", "stop is 3");
  std::string stops = "[\"a\"";
  for (int i = 0; i < 64; ++i) stops += ",\"a\"";
  expect_field(R"("stop": )" + stops + "]", "65 strings; at most 64");
  expect_field(R"("stop_token_ids": [5000])", "stop_token_ids[0] is 5000");
}

TEST(Requests, Messages) {
  expect_messages("[]", "messages", "messages is empty");
  expect_messages("{}", "messages", "messages is an object");
  expect_messages("[3]", "messages[0]", "messages[0] is a number");
  expect_messages(R"([{"content": "a"}])", "messages[0].role", "messages[0].role is missing");
  expect_messages(R"([{"role": "robot", "content": "a"}])", "messages[0].role", "one of system, developer");
  expect_messages(R"([{"role": "user", "content": null}])", "messages[0].content", "is missing");
  expect_messages(R"([{"role": "user", "content": 5}])", "messages[0].content", "is 5");
  expect_messages(
      R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc"}}]}])",
      "messages[0].content[0].type", "reads text only");
  expect_messages(R"([{"role": "assistant", "content": "a"}])", "messages", "There is no question.");
}

TEST(Requests, ToolHistory) {
  const auto call = [](const std::string& function, const std::string& rest = "") {
    return R"([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"id": "x", "type": "function",
      "function": )" +
           function + "}]}" + rest + "]";
  };
  const std::string field = "messages[1].tool_calls[0].function.arguments";
  expect_messages(call(R"({"name": "f", "arguments": 3})"), field, "is 3");
  expect_messages(call(R"({"arguments": "{}"})"), "messages[1].tool_calls[0].function.name", "is missing");
  expect_messages(call(R"({"name": "f"})", R"(, {"role": "tool", "tool_call_id": "y", "content": "r"})"),
                  "messages[2]", "answers call \"y\"");
  expect_messages(R"([{"role": "user", "content": "a"}, {"role": "tool", "content": "r"}])", "messages[1]",
                  "no call stands before it");
  for (const char* good : {R"({"name": "f", "arguments": ""})", R"({"name": "f", "arguments": {"a": 1}})"})
    EXPECT_EQ(refusal(kRoute, R"({"messages": )" + call(good) + "}").status, 200) << good;
}

// A call that max_tokens cut off, sent back by a client that keeps what it got.
TEST(Requests, CallsThatAreNotWholeAreWords) {
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "So.", "tool_calls": [
        {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{\"city\": \"Ro"}},
        {"id": "y", "type": "function", "function": {"name": "g", "arguments": "[1]"}}]},
      {"role": "tool", "tool_call_id": "x", "content": "no"}]})";
  const std::string responses = R"({"input": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "So."},
      {"type": "function_call", "call_id": "x", "name": "f", "arguments": "{\"city\": \"Ro"},
      {"type": "function_call", "call_id": "y", "name": "g", "arguments": "[1]"},
      {"type": "function_call_output", "call_id": "x", "output": "no"}]})";
  for (const auto& [route, body] :
       {std::pair(kRoute, chat), {std::string_view("/v1/responses"), responses}}) {
    const auto exchange = make_exchange(route, body, test_model());
    EXPECT_EQ(test_model().tokenizer.decode(exchange->submissions()[0].request.prompt),
              "<|turn|>user\na<|end|>\n<|turn|>assistant\n<think>\n\n</think>\n\nSo.\n\n[a call of f that is "
              "not whole: {\"city\": \"Ro]\n\n[a call of g that is not whole: [1]]<|end|>\n<|turn|>user\n"
              "<tool_response>\nno\n</tool_response><|end|>\n<|turn|>assistant\n<think>\n");
  }
  const std::string messages = prompt_of("/v1/messages", R"({"max_tokens": 9, "messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": "{\"city\": \"Ro"}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "no"}]}]})");
  EXPECT_NE(messages.find("[a call of f that is not whole: {\"city\": \"Ro]"), std::string::npos) << messages;
}

// What models write and others read is a whole call here as well: integers of any size, in the digits they
// have, and a member twice.
TEST(Requests, CallsWithLargeIntegersAreWhole) {
  const auto prompt = [](const std::string& arguments) {
    return prompt_of(kRoute, R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant",
        "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": ")" +
                                 arguments +
                                 R"("}}]}, {"role": "tool", "tool_call_id": "x", "content": "r"}]})");
  };
  const std::string large = prompt(R"({\"id\": 98765432109876543210})");
  EXPECT_NE(large.find("<function=f>\n<parameter=id>\n98765432109876543210\n"), std::string::npos) << large;
  const std::string inside = prompt(R"({\"ids\": [-98765432109876543210, 9223372036854775808, 1e19]})");
  EXPECT_NE(inside.find("\n[-98765432109876543210, 9223372036854775808, 1e+19]\n"), std::string::npos)
      << inside;
  // An argument that came as an object and not as its text.
  const std::string object = prompt_of("/v1/messages", R"({"max_tokens": 9, "messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f",
        "input": {"id": 98765432109876543210}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "r"}]}]})");
  EXPECT_NE(object.find("<parameter=id>\n98765432109876543210\n"), std::string::npos) << object;
  // And where a response gives back what it was given.
  EXPECT_NE(
      ask("/v1/responses", R"({"input": "a", "metadata": {"n": 98765432109876543210}})", {.answer = "b"})
          .find(R"("metadata":{"n":98765432109876543210})"),
      std::string::npos);
  const std::string twice = prompt(R"({\"id\": 1, \"id\": 2})");
  EXPECT_NE(twice.find("<parameter=id>\n2\n"), std::string::npos) << twice;
}

TEST(Requests, WhatChatHadBeforeAndBesideTools) {
  const auto chat = [](const std::string& field) {
    return R"({"messages": [{"role": "user", "content": "a"}], )" + field + "}";
  };
  EXPECT_EQ(notes_of(kRoute, chat(R"("verbosity": "low", "functions": [], "function_call": "auto")")), "");
  expect_refused(chat(R"("verbosity": "endless")"), "verbosity", "one of low, medium, high");
  expect_refused(chat(R"("functions": [{"name": "f"}])"), "functions", "send the same as tools");
  EXPECT_EQ(notes_of(kRoute, chat(R"("web_search_options": {})")), "web_search_options=web_search ");
  const std::string custom = prompt_of(kRoute, R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "tool_calls": [{"id": "x", "type": "custom", "custom": {"name": "patch", "input": "+ b"}}]},
      {"role": "tool", "tool_call_id": "x", "content": "ok"}]})");
  EXPECT_NE(custom.find("<function=patch>\n<parameter=input>\n+ b\n"), std::string::npos) << custom;
  // Other servers' fields, near to names of ours.
  EXPECT_EQ(notes_of(kRoute, chat(R"("top_a": 0.1, "models": ["m"], "return_tokens": false)")),
            "top_a models return_tokens ");
  expect_refused(chat(R"("top_pp": 0.1)"), "top_pp", "did you mean top_p?");
}

TEST(Requests, Tools) {
  const auto tool = [](const std::string& function) {
    return R"("tools": [{"type": "function", "function": )" + function + "}]";
  };
  const auto expect = [](const std::string& field, const std::string& param, std::string_view message) {
    expect_refused(R"({"messages": [{"role": "user", "content": "a"}], )" + field + "}", param, message);
  };
  expect(tool("{}"), "tools[0].function.name", "0 bytes");
  expect(tool(R"({"name": "a b"})"), "tools[0].function.name", "cannot stand in a name");
  expect(tool(R"({"name": "a\u0000"})"), "tools[0].function.name", "cannot stand in a name");
  expect(tool(R"({"name": "a", "parameters": 3})"), "tools[0].function.name", "must be a JSON schema");
  expect(R"("tools": [{"function": {"name": "a"}}])", "tools[0].type", "tools[0].type is missing");
  expect(R"("tool_choice": "required")", "tool_choice", "there are no tools");
  expect(tool(R"({"name": "a"})") + R"(, "tool_choice": {"type": "function", "function": {"name": "b"}})",
         "tool_choice", "not among the tools");
  expect(tool(R"({"name": "a"})") + R"(, "tool_choice": "sometimes")", "tool_choice",
         "one of auto, none, required");
}

TEST(Requests, TemplateFields) {
  expect_field(R"("chat_template": "{{ 1 }}")", "not taken from requests");
  expect_refused(
      R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"messages": []}})",
      "chat_template_kwargs.messages", "cannot be set");
  expect_field(R"("chat_template_kwargs": 3)", "must be an object");
  expect_field(R"("reasoning_effort": "huge")", "one of none");
  expect_field(R"("stream_options": {"include_usage": true})", "stream is not true");
  expect_field(R"("use_beam_search": true)", "only does false");
  expect_field(R"("modalities": ["audio"])", "text only");
}

TEST(Requests, ErrorsInTheShapeOfTheirProtocol) {
  const Error full(Code::over_capacity, "the queue is full", "Try again.");
  EXPECT_EQ(error_answer("/v1/chat/completions", full).status, 503);
  EXPECT_EQ(
      error_answer("/v1/chat/completions", full).body,
      R"({"error":{"message":"the queue is full. Try again.","type":"overloaded_error","param":null,"code":"overloaded"}})");
  EXPECT_EQ(
      error_answer("/v1/messages", full).body,
      R"({"type":"error","error":{"type":"overloaded_error","message":"the queue is full. Try again.","details":{"error_code":"overloaded"}}})");
  EXPECT_EQ(error_answer("/v1/completions", Error(Code::internal, "x")).status, 500);
}

}  // namespace
}  // namespace fourfold::server
