// Requests in the words of the server's protocols through libfourfold_engine: the chat template, tools,
// structured output, streams; in C++ and in C.
#if defined(FOURFOLD_HAS_ENGINE)
#include <fourfold/engine.h>
#include <fourfold/fourfold.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace fourfold::library {
namespace {

const std::string kFolder = std::string(FOURFOLD_SOURCE_DIR) + "/models/storyteller";
const std::string kChat = "/v1/chat/completions";

const Model& storyteller() {
  static const Model model(kFolder, {.threads = 1, .max_context = 1024, .max_sequences = 2});
  return model;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A chat of one question; `more` are further fields.
std::string chat(const std::string& question, const std::string& more) {
  return R"({"messages": [{"role": "user", "content": ")" + question + R"("}], "temperature": 0, )" + more +
         "}";
}

const std::string kTools =
    R"("tools": [{"type": "function", "function": {"name": "weather", "description": "of a place",
       "parameters": {"type": "object", "properties": {"place": {"enum": ["Rome", "Oslo"]}},
                      "required": ["place"], "additionalProperties": false}}}])";

TEST(EngineRequest, AChatGoesThroughTheTemplate) {
  GenerateOptions greedy;
  greedy.temperature = 0;
  greedy.max_tokens = 8;
  const Result wanted = storyteller().chat({{"user", "Tell me a story."}}, greedy);
  const std::string answer = storyteller().request(kChat, chat("Tell me a story.", R"("max_tokens": 8)"));
  EXPECT_TRUE(contains(answer, "\"object\":\"chat.completion\"")) << answer;
  EXPECT_TRUE(contains(answer, "\"prompt_tokens\":" + std::to_string(wanted.prompt_tokens))) << answer;
  EXPECT_TRUE(contains(answer, "\"completion_tokens\":8")) << answer;
  EXPECT_TRUE(contains(answer, "\"model\":\"storyteller\"")) << answer;
}

// The form is the schema's, whatever the model prefers.
TEST(EngineRequest, AnAnswerHasTheFormOfItsSchema) {
  const std::string schema =
      R"("response_format": {"type": "json_schema", "json_schema": {"name": "verdict", "schema":
         {"type": "object", "properties": {"verdict": {"enum": ["guilty", "free"]}},
          "required": ["verdict"], "additionalProperties": false}}})";
  const std::string answer = storyteller().request(
      kChat, chat("Is he?", schema + R"(, "max_tokens": 200, "enable_thinking": false)"));
  const bool guilty = contains(answer, R"(\"guilty\")"), free = contains(answer, R"(\"free\")");
  EXPECT_TRUE(guilty != free) << answer;
  EXPECT_TRUE(contains(answer, R"(\"verdict\")")) << answer;
  EXPECT_TRUE(contains(answer, "\"finish_reason\":\"stop\"")) << answer;
}

TEST(EngineRequest, AToolIsCalledAndItsResultRead) {
  const std::string answer = storyteller().request(
      kChat, chat("How is the weather?",
                  kTools + R"(, "tool_choice": "required", "max_tokens": 200, "enable_thinking": false,
                             "parallel_tool_calls": false)"));
  EXPECT_TRUE(contains(answer, "\"finish_reason\":\"tool_calls\"")) << answer;
  EXPECT_TRUE(contains(answer, "\"name\":\"weather\"")) << answer;
  EXPECT_TRUE(contains(answer, R"(\"Rome\")") != contains(answer, R"(\"Oslo\")")) << answer;
  const std::string back = R"({"messages": [{"role": "user", "content": "How is it in Rome?"},
    {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function",
      "function": {"name": "weather", "arguments": "{\"place\": \"Rome\"}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "rain"}], "max_tokens": 4, )" +
                           kTools + "}";
  EXPECT_TRUE(contains(storyteller().request(kChat, back), "\"role\":\"assistant\""));
}

TEST(EngineRequest, AStreamComesInEventsAndTheCallerMayEndIt) {
  std::string events;
  const std::string body = chat("Tell me a story.", R"("max_tokens": 8, "stream": true)");
  const std::string rest = storyteller().request(kChat, body, [&](std::string_view piece) {
    EXPECT_TRUE(piece.starts_with("data: ")) << piece;
    EXPECT_TRUE(piece.ends_with("\n\n")) << piece;
    events += piece;
    return true;
  });
  EXPECT_EQ(rest, "");
  EXPECT_TRUE(events.ends_with("data: [DONE]\n\n")) << events;
  int count = 0;
  storyteller().request(kChat, body, [&](std::string_view) { return ++count < 2; });
  EXPECT_EQ(count, 2) << "nothing comes behind the last that was wanted";
  EXPECT_THROW(storyteller().request(kChat, body), Failure) << "nobody takes the stream";
}

TEST(EngineRequest, TheOtherProtocolsAnswerToo) {
  EXPECT_TRUE(contains(storyteller().request("/v1/messages",
                                             R"({"model": "default", "max_tokens": 4, "messages":
                                               [{"role": "user", "content": "Hello"}]})"),
                       "\"type\":\"message\""));
  EXPECT_TRUE(
      contains(storyteller().request("/v1/responses", R"({"input": "Hello", "max_output_tokens": 16})"),
               "\"object\":\"response\""));
  // Several answers to one prompt, from several threads at once.
  const std::string body = R"({"prompt": "Once", "max_tokens": 4, "temperature": 0, "n": 2})";
  std::vector<std::thread> threads;
  std::vector<std::string> answers(3);
  for (std::string& answer : answers)
    threads.emplace_back([&] { answer = storyteller().request("/v1/completions", body); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& answer : answers) {
    EXPECT_TRUE(contains(answer, "\"index\":1")) << answer;
    EXPECT_TRUE(contains(answer, "\"completion_tokens\":8")) << answer;
  }
}

TEST(EngineRequest, WhatItDoesNotGetIsHeardOrRefused) {
  const std::string odd = chat("Hello", R"("max_tokens": 2, "sharpness": 3)");
  std::vector<std::string> notes;
  storyteller().request(kChat, odd, {}, [&](const std::string& name) { notes.push_back(name); });
  EXPECT_EQ(notes, std::vector<std::string>{"sharpness"});
  const auto message_of = [](const std::string& route, const std::string& body) -> std::string {
    try {
      storyteller().request(route, body);
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), "invalid_request");
      return failure.what();
    }
    return "no failure";
  };
  EXPECT_TRUE(contains(message_of(kChat, odd), "sharpness"));
  EXPECT_TRUE(contains(message_of("/v1/paint", "{}"), "/v1/paint"));
  EXPECT_TRUE(contains(message_of(kChat, "{\"messages\": ["), "the body"));
  EXPECT_TRUE(contains(message_of(kChat, "{}"), "messages is missing"));
  EXPECT_TRUE(contains(message_of(kChat, chat("x", R"("top_p": "hot")")), "top_p"));
}

TEST(EngineRequest, TheSameFromC) {
  const std::string body =
      chat("How is the weather?",
           kTools + R"(, "tool_choice": "required", "max_tokens": 200, "enable_thinking": false,
                      "parallel_tool_calls": false)");
  fourfold_model_options room = FOURFOLD_INIT(fourfold_model_options);
  room.threads = 1;
  room.max_context = 1024;
  room.max_sequences = 1;
  fourfold_model* model = nullptr;
  ASSERT_EQ(fourfold_model_open(kFolder.c_str(), &room, &model), FOURFOLD_OK) << fourfold_last_error();
  struct Heard {
    std::string answer, notes;
  } heard;
  fourfold_request_options options = FOURFOLD_INIT(fourfold_request_options);
  options.user = &heard;
  options.on_answer = [](void* user, const char* text, std::size_t count) -> std::int32_t {
    static_cast<Heard*>(user)->answer.append(text, count);
    return 0;
  };
  ASSERT_EQ(fourfold_request(model, kChat.c_str(), body.c_str(), &options), FOURFOLD_OK)
      << fourfold_last_error();
  EXPECT_TRUE(contains(heard.answer, "\"name\":\"weather\"")) << heard.answer;
  const std::string odd = chat("Hello", R"("max_tokens": 2, "sharpness": 3)");
  EXPECT_EQ(fourfold_request(model, kChat.c_str(), odd.c_str(), &options), FOURFOLD_INVALID_REQUEST);
  EXPECT_NE(std::strstr(fourfold_last_error(), "sharpness"), nullptr) << fourfold_last_error();
  options.on_note = [](void* user, const char* text, std::size_t count) -> std::int32_t {
    static_cast<Heard*>(user)->notes.append(text, count);
    return 0;
  };
  EXPECT_EQ(fourfold_request(model, kChat.c_str(), odd.c_str(), &options), FOURFOLD_OK);
  EXPECT_EQ(heard.notes, "sharpness");
  EXPECT_EQ(fourfold_request(model, nullptr, "{}", &options), FOURFOLD_INVALID_REQUEST);
  EXPECT_EQ(fourfold_request(model, kChat.c_str(), "{}", nullptr), FOURFOLD_INVALID_REQUEST);
  EXPECT_NE(std::strstr(fourfold_last_error(), "on_answer is null"), nullptr) << fourfold_last_error();
  fourfold_model_close(model);
}

}  // namespace
}  // namespace fourfold::library
#endif
