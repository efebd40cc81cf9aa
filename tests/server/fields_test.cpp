// Fields nobody knows: noted on every route and at every depth, refused where they look misspelt.
#include "server/api/fields.h"

#include "tests/server/support.h"

namespace fourfold::server {
namespace {

const std::set<std::string, std::less<>> kKnown = {"n",     "id",     "raw",   "user",        "stop",
                                                   "seed",  "tools",  "top_k", "temperature", "max_tokens",
                                                   "model", "stream", "top_p"};

TEST(MeantName, TwoEditsOfShortNamesOneOfTheShortestNone) {
  const std::vector<std::pair<std::string, std::string>> meant = {{"temprature", "temperature"},
                                                                  {"temperatur", "temperature"},
                                                                  {"tempretaure", "temperature"},
                                                                  {"maxTokens", "max_tokens"},
                                                                  {"max-tokens", "max_tokens"},
                                                                  {"max_token", "max_tokens"},
                                                                  {"mxa_tokens", "max_tokens"},
                                                                  {"max_tokesn", "max_tokens"},
                                                                  {"topK", "top_k"},
                                                                  {"tool", "tools"},
                                                                  {"toosl", "tools"},
                                                                  {"sead", "seed"},
                                                                  {"mdoel", "model"},
                                                                  {"row", "raw"},
                                                                  {"steam", "stream"},
                                                                  {"straems", "stream"},
                                                                  {"topP", "top_p"},
                                                                  {"N", "n"}};
  for (const auto& [unknown, known] : meant) EXPECT_EQ(api::meant_name(unknown, kKnown), known) << unknown;
  for (const char* other :
       {"m", "nn", "ide", "i", "uses_it", "steps", "tempo", "temper", "max_len", "tokens", "client_metadata",
        "", "modality", "topics", "rows", "models", "top_a", "return_tokens", "dreams"})
    EXPECT_EQ(api::meant_name(other, kKnown), "") << other;
  EXPECT_EQ(api::meant_name(std::string(100'000, 't'), kKnown), "");
}

std::vector<api::Note> all_notes(std::string_view route, const std::string& body) {
  return make_exchange(route, body, test_model())->notes.all();
}

TEST(UnknownFields, AreNotedOnEveryRoute) {
  const std::string chat = R"("messages": [{"role": "user", "content": "a"}], "colour": "red")";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/v1/chat/completions", "{" + chat + "}"},
      {"/v1/completions", R"({"prompt": "a", "colour": {"deep": [1]}})"},
      {"/v1/responses", R"({"input": "a", "colour": true})"},
      {"/v1/messages", R"({"max_tokens": 5, )" + chat + "}"},
      {"/v1/messages/count_tokens", "{" + chat + "}"}};
  for (const auto& [route, body] : cases) {
    const auto notes = all_notes(route, body);
    ASSERT_EQ(notes.size(), 1u) << route;
    EXPECT_EQ(notes[0], (api::Note{api::NoteKind::field, "colour"})) << route;
  }
}

TEST(UnknownFields, AreNotedInside) {
  const auto notes = all_notes("/v1/chat/completions", R"({"stream": true, "stream_options": {"a_thing": 1},
      "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "b_thing": 1}], "c_thing": 1},
                   {"role": "assistant", "tool_calls": [{"id": "x", "d_thing": 1, "type": "function",
                    "function": {"name": "f", "arguments": "{}", "e_thing": 1}}]},
                   {"role": "tool", "tool_call_id": "x", "content": "r", "c_thing": 2}],
      "tools": [{"type": "function", "f_thing": 1, "function": {"name": "f", "g_thing": 1}}]})");
  std::string names;
  for (const api::Note& note : notes) names += note.name + " ";
  EXPECT_EQ(
      names,
      "stream_options.a_thing messages[].content[].b_thing messages[].c_thing "
      "messages[].tool_calls[].function.e_thing messages[].tool_calls[].d_thing tools[].function.g_thing "
      "tools[].f_thing ");
}

TEST(UnknownFields, MisspeltOnesEndTheRequest) {
  const HttpError body = refusal("/v1/completions", R"({"prompt": "a", "temprature": 0.2})");
  EXPECT_EQ(body.status, 400);
  EXPECT_EQ(text_at(parsed(body.body), "error.param"), "temprature");
  EXPECT_NE(body.body.find("did you mean temperature?"), std::string::npos) << body.body;
  const HttpError inside = refusal(
      "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a", "reasoning_contents": "b"},
      {"role": "assistant", "content": "a", "reasoning_contnet": "b"}, {"role": "user", "content": "a"}]})");
  EXPECT_NE(inside.body.find("messages[1].reasoning_contnet"), std::string::npos) << inside.body;
  EXPECT_NE(inside.body.find("did you mean messages[1].reasoning_content?"), std::string::npos)
      << inside.body;
}

TEST(UnknownFields, NullIsNothingAndValuesAreNeverTold) {
  EXPECT_TRUE(all_notes("/v1/completions", R"({"prompt": "a", "colour": null, "temprature": null})").empty());
  for (const api::Note& note : all_notes("/v1/completions", R"({"prompt": "a", "secret": "hunter2"})"))
    EXPECT_EQ(note.name, "secret");
}

TEST(UnknownFields, NotHundredsInOneObject) {
  std::string body = R"({"prompt": "a")";
  for (int i = 0; i < 256; ++i) body += fourfold::format(R"(, "strange{}": {})", i, i);
  EXPECT_EQ(refusal("/v1/completions", body + "}").status, 200);
  const HttpError many = refusal("/v1/completions", body + R"(, "strange256": 1})");
  EXPECT_EQ(many.status, 400);
  EXPECT_NE(many.body.find("more than 256 fields"), std::string::npos) << many.body;
}

TEST(UnknownFields, StrictRefuses) {
  ServedModel strict = test_model();
  strict.strict = true;
  const auto ask = [&](const char* body) { return make_exchange("/v1/completions", body, strict); };
  EXPECT_NO_THROW(ask(R"({"prompt": "a", "user": "me"})"));
  try {
    ask(R"({"prompt": "a", "colour": 1})");
    FAIL() << "served";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "colour is not a field this server knows, and --strict refuses such requests");
  }
}

TEST(RouterFields, AreTakenAtTheValuesRoutersSend) {
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"}], )";
  const std::string all = R"("no_stop_trim": false, "separate_reasoning": true, "stream_reasoning": true,
      "return_hidden_states": false})";
  EXPECT_TRUE(all_notes("/v1/chat/completions", chat + all).empty());
  EXPECT_TRUE(all_notes("/v1/completions", R"({"prompt": "a", )" + all).empty());
  for (const auto& [field, message] : std::vector<std::pair<std::string, std::string>>{
           {R"("no_stop_trim": true})", "no_stop_trim is true; this server only does false"},
           {R"("separate_reasoning": false})", "separate_reasoning is false; this server only does true"},
           {R"("stream_reasoning": false})", "stream_reasoning is false; this server only does true"},
           {R"("return_hidden_states": true})",
            "return_hidden_states is true; this server only does false"}}) {
    const HttpError error = refusal("/v1/chat/completions", chat + field);
    EXPECT_EQ(error.status, 400) << field;
    EXPECT_NE(error.body.find(message), std::string::npos) << error.body;
  }
}

}  // namespace
}  // namespace fourfold::server
