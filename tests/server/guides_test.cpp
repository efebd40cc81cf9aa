// Forms of answers: which the request asks for, where they begin, and what is refused.
#include "server/api/guides.h"

#include "server/api/form_cache.h"
#include "tests/server/support.h"

namespace fourfold::server {
namespace {

constexpr std::string_view kRoute = "/v1/chat/completions";
constexpr const char* kTools =
    R"("tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",)"
    R"( "properties": {"city": {"type": "string"}}, "required": ["city"]}}}, {"type": "function", "function":)"
    R"( {"name": "news"}}])";

std::string with(const std::string& more, bool thinking = false) {
  return R"({"messages": [{"role": "user", "content": "Hi"}], "enable_thinking": )" +
         std::string(thinking ? "true" : "false") + ", " + more + "}";
}

// The guide of a request walked along a text: "" when it may end there, otherwise what went wrong.
std::string follow(std::string_view route, const std::string& body, std::string_view answer,
                   const ServedModel& model = test_model()) {
  const auto submissions = make_exchange(route, body, model)->submissions();
  if (!submissions[0].guide) return "no guide";
  engine::TokenGuide& guide = *submissions[0].guide;
  std::vector<std::uint64_t> bits((test_model().limits.vocab_size + 63) / 64);
  const auto allowed = [&](text::TokenId id) {
    guide.allowed(bits);
    return (bits[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
  };
  for (const text::TokenId id : tokens_of(answer)) {
    if (!allowed(id)) return "refuses " + std::string(test_model().tokenizer.token_bytes(id));
    guide.accept(id);
  }
  return allowed(test_model().stop_ids.front()) ? "" : "may not end";
}

std::string chat(const std::string& more, std::string_view answer, bool thinking = false) {
  return follow(kRoute, with(more, thinking), answer);
}

TEST(Guides, FormsOfChat) {
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],)"
      R"( "additionalProperties": false})";
  EXPECT_EQ(chat(R"("response_format": {"type": "text"})", "x"), "no guide");
  EXPECT_EQ(chat(R"("response_format": {"type": "json_object"})", R"({"x": [1]})"), "");
  EXPECT_NE(chat(R"("response_format": {"type": "json_object"})", "Sure"), "");
  for (
      const std::string& field :
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": )" +
           schema + "}}",
       R"("guided_json": )" + schema, R"("structured_outputs": {"json": )" + schema + "}"}) {
    EXPECT_EQ(chat(field, R"({"a": 12})"), "") << field;
    EXPECT_NE(chat(field, R"({"b": 12})"), "") << field;
    EXPECT_EQ(chat(field, R"({"a": 1)"), "may not end") << field;
  }
  EXPECT_EQ(chat(R"("guided_regex": "[ab]+c")", "abac"), "");
  EXPECT_NE(chat(R"("structured_outputs": {"regex": "[ab]+c"})", "abd"), "");
  EXPECT_EQ(chat(R"("response_format": {"type": "regex", "pattern": "[ab]+c"})", "abc"), "");
  for (const std::string field :
       {R"("guided_choice": ["yes", "no"])", R"("structured_outputs": {"choice": ["yes", "no"]})"}) {
    EXPECT_EQ(chat(field, "no"), "") << field;
    EXPECT_NE(chat(field, "maybe"), "") << field;
    EXPECT_EQ(chat(field, "ye"), "may not end") << field;
  }
  // As SGLang and llama.cpp have them.
  EXPECT_EQ(chat(R"("regex": "[ab]+c")", "abc"), "");
  EXPECT_EQ(chat(R"("json_schema": )" + schema, R"({"a": 12})"), "");
}

TEST(Guides, OptionsOfStructuredOutputs) {
  const std::string compact =
      R"("guided_decoding_backend": "xgrammar", "structured_outputs": {"json": {"type": "object", "properties": {"a": {},)"
      R"( "b": {}}}, "disable_any_whitespace": true, "disable_fallback": true, "whitespace_pattern": " "})";
  EXPECT_EQ(chat(compact, R"({"a":[1,2],"b":{"c":3}})"), "");
  EXPECT_NE(chat(compact, R"({"a": 1})"), "");
  const std::string closed =
      R"("structured_outputs": {"json": {"type": "object"}, "disable_additional_properties": true})";
  EXPECT_EQ(chat(closed, "{}"), "");
  EXPECT_NE(chat(closed, R"({"a": 1})"), "");
}

// What a schema says without effect is in the answer's headers; --strict refuses it.
TEST(Guides, NotesOfSchemas) {
  const std::string body = with(R"("guided_json": {"type": "string", "format": "color", "colour": "red"})");
  const auto exchange = make_exchange(kRoute, body, test_model());
  ASSERT_EQ(exchange->notes.headers().size(), 1u);
  EXPECT_EQ(exchange->notes.headers()[0].second, "guided_json=format?color, guided_json=keyword?colour");
}

TEST(Guides, TheFormBeginsBehindTheThinking) {
  const std::string form = R"("guided_regex": "[ab]+c")";
  EXPECT_EQ(chat(form, "Let me think.</think>\n\nabc", true), "");
  EXPECT_EQ(chat(form, "abc", true), "may not end");
  EXPECT_NE(chat(form, "Let me</think>x", true), "");
  EXPECT_EQ(chat(std::string(kTools) + R"(, "tool_choice": "required")", "hm<tool_call>", true),
            "refuses <tool_call>");
}

TEST(Guides, CallsThatAreDemanded) {
  const std::string required = std::string(kTools) + R"(, "tool_choice": "required")";
  const std::string named =
      std::string(kTools) + R"(, "tool_choice": {"type": "function", "function": {"name": "weather"}})";
  const std::string weather =
      "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>";
  const std::string news = "<tool_call>\n<function=news>\n</function>\n</tool_call>";
  EXPECT_EQ(chat(required, weather), "");
  EXPECT_EQ(chat(required, news), "");
  EXPECT_EQ(chat(required, weather + "\n" + news), "");
  EXPECT_NE(chat(required, "Hello"), "");
  EXPECT_EQ(chat(named, weather), "");
  EXPECT_NE(chat(named, news), "");
  EXPECT_NE(chat(required + R"(, "parallel_tool_calls": false)", weather + "\n" + news), "");
  EXPECT_EQ(chat(std::string(kTools) + R"(, "tool_choice": "auto")", weather), "no guide");
}

// Members are written in the order of their own tool's schema, also where another's differs by that alone.
TEST(Guides, SchemasThatDifferInTheOrderOfMembersAreTwo) {
  const auto tool = [](const char* name, const char* members) {
    return std::string(R"({"type": "function", "function": {"name": ")") + name +
           R"(", "parameters": {"type": "object", "required": ["at"], "properties": {"at": {"type": "object",)"
           R"( "required": ["x", "y"], "additionalProperties": false, "properties": {)" +
           members + "}}}}}}";
  };
  const std::string required = R"("tools": [)" +
                               tool("first", R"("x": {"type": "integer"}, "y": {"type": "integer"})") + ", " +
                               tool("second", R"("y": {"type": "integer"}, "x": {"type": "integer"})") +
                               R"(], "tool_choice": "required")";
  const auto call = [](const char* name, const char* value) {
    return std::string("<tool_call>\n<function=") + name + ">\n<parameter=at>\n" + value +
           "\n</parameter>\n</function>\n</tool_call>";
  };
  const char *xy = R"({"x": 1, "y": 2})", *yx = R"({"y": 2, "x": 1})";
  EXPECT_EQ(chat(required, call("first", xy)), "");
  EXPECT_NE(chat(required, call("first", yx)), "");
  EXPECT_EQ(chat(required, call("second", yx)), "");
  EXPECT_NE(chat(required, call("second", xy)), "");
}

// A model whose template shows calls in JSON is held to JSON, and what it then writes is read as calls.
TEST(Guides, CallsThatAreDemandedInTheTemplatesOwnFormat) {
  ServedModel model = test_model();
  model.chat_template = golden_template("qwen3");
  const std::string required = std::string(kTools) + R"(, "tool_choice": "required")";
  const std::string named =
      std::string(kTools) + R"(, "tool_choice": {"type": "function", "function": {"name": "weather"}})";
  const std::string weather = R"(<tool_call>
{"name": "weather", "arguments": {"city": "a </tool_call> b"}}
</tool_call>)";
  const std::string news = "<tool_call>\n{\"name\": \"news\", \"arguments\": {}}\n</tool_call>";
  const std::string tagged = "<tool_call>\n<function=news>\n</function>\n</tool_call>";
  const auto chat = [&](const std::string& more, const std::string& answer) {
    return follow(kRoute, with(more), answer, model);
  };
  EXPECT_EQ(chat(required, weather + "\n" + news), "");
  EXPECT_NE(chat(required, tagged), "");
  EXPECT_NE(follow(kRoute, with(required), news), "") << "one form of a tenant is not taken for another";
  EXPECT_EQ(chat(named, weather), "");
  EXPECT_NE(chat(named, news), "");
  EXPECT_NE(chat(required + R"(, "parallel_tool_calls": false)", news + "\n" + news), "");
  EXPECT_EQ(
      follow(
          "/v1/messages",
          R"({"max_tokens": 9, "messages": [{"role": "user", "content": "a"}], "tool_choice": {"type": "any"},)"
          R"( "thinking": {"type": "disabled"}, "tools": [{"name": "news", "input_schema": {"type": "object"}}]})",
          news, model),
      "");
  for (const bool stream : {false, true}) {
    const auto exchange =
        make_exchange(kRoute, with(required + (stream ? R"(, "stream": true)" : "")), model);
    const std::string out = run_script(*exchange, {.answer = weather + "\n" + news});
    EXPECT_NE(out.find(R"("name":"weather")"), std::string::npos) << out;
    EXPECT_NE(out.find(R"({\"city\": \"a </tool_call> b\"})"), std::string::npos) << out;
    EXPECT_NE(out.find(R"("name":"news")"), std::string::npos) << out;
    EXPECT_NE(out.find(R"("finish_reason":"tool_calls")"), std::string::npos) << out;
    EXPECT_EQ(out.find(R"("content":"<)"), std::string::npos) << out;
  }
}

TEST(Guides, FormsOfOtherProtocols) {
  const std::string format = R"({"type": "json_schema", "name": "n", "schema": {"type": "integer"}})";
  EXPECT_EQ(follow("/v1/responses",
                   R"({"input": "a", "enable_thinking": false, "text": {"format": )" + format + "}}", "12"),
            "");
  EXPECT_EQ(follow("/v1/messages",
                   R"({"messages": [{"role": "user", "content": "a"}], "thinking": {"type": "disabled"},
                      "output_config": {"format": {"type": "json_schema", "schema": {"type": "integer"}}}})",
                   "12"),
            "");
  EXPECT_EQ(follow("/v1/completions", R"({"prompt": "a", "guided_regex": "yes|no"})", "yes"), "");
  EXPECT_EQ(follow("/v1/messages", R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "t",
      "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"}, "thinking": {"type": "disabled"}})",
                   "<tool_call>\n<function=t>\n</function>\n</tool_call>"),
            "");
}

TEST(Guides, FormsNobodyWaitsForAreNotCompiled) {
  const std::string body = with(R"("guided_regex": "(a|b)*a(a|b){40}")");
  try {
    make_exchange(kRoute, body, test_model(), {.cancelled = [] { return true; }});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::cancelled) << error.what();
  }
}

TEST(FormCache, KeepsWhatWasAskedForLastWithinItsBytes) {
  const auto vocabulary = std::make_shared<const constrain::Vocabulary>(
      test_model().tokenizer, test_model().stop_ids, test_model().token_limit);
  int compiled = 0;
  const auto ask = [&](api::FormCache& forms, const std::string& pattern) {
    return forms.get({}, pattern, [&] {
      ++compiled;
      return constrain::compile_regex(pattern);
    });
  };
  api::FormCache large(vocabulary);
  const std::size_t bytes = ask(large, "[ab]{900}0")->bytes();
  EXPECT_GT(bytes, 10'000u);
  api::FormCache small(vocabulary, 3 * bytes);
  compiled = 0;
  for (int i = 0; i < 5; ++i) ask(small, "[ab]{900}" + std::to_string(i));
  EXPECT_LE(small.count(), 3u);
  EXPECT_GE(small.count(), 2u);
  ask(small, "[ab]{900}4");
  EXPECT_EQ(compiled, 5);  // kept
  ask(small, "[ab]{900}0");
  EXPECT_EQ(compiled, 6);  // forgotten
  api::FormCache tiny(vocabulary, 1);
  ask(tiny, "[ab]{900}0");
  EXPECT_EQ(tiny.count(), 1u);
}

// One budget for all forms in use; those only kept give way, and who finds no room is told to come back.
TEST(FormCache, FormsInUseAreBoundedByBytes) {
  const auto vocabulary = std::make_shared<const constrain::Vocabulary>(
      test_model().tokenizer, test_model().stop_ids, test_model().token_limit);
  const auto ask = [&](api::FormCache& forms, int number) {
    return forms.get({}, std::to_string(number),
                     [&] { return constrain::compile_regex("[ab]{900}" + std::to_string(number)); });
  };
  api::FormCache large(vocabulary);
  const std::size_t bytes = ask(large, 0)->bytes();
  EXPECT_EQ(large.live_bytes(), bytes);
  api::FormCache small(vocabulary, 100 * bytes, 4 * bytes + bytes / 2);
  for (int i = 0; i < 20; ++i) ask(small, i);
  EXPECT_LE(small.live_bytes(), 4 * bytes + bytes / 2);
  std::vector<std::shared_ptr<const constrain::Masks>> used;
  std::string said;
  try {
    for (int i = 100; i < 120; ++i) used.push_back(ask(small, i));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::over_capacity);
    said = error.what();
  }
  EXPECT_NE(said.find("forms of all answers"), std::string::npos) << said;
  EXPECT_GE(used.size(), 3u);
  used.clear();
  EXPECT_NO_THROW(ask(small, 300));
}

// A key or an address has half of it, and leaves the rest to others; what they keep is not given up for it.
TEST(FormCache, AClientHasHalfOfIt) {
  const auto vocabulary = std::make_shared<const constrain::Vocabulary>(
      test_model().tokenizer, test_model().stop_ids, test_model().token_limit);
  int compiled = 0;
  const auto ask = [&](api::FormCache& forms, int number, const std::string& client) {
    return forms.get({.client = client}, client + std::to_string(number), [&] {
      ++compiled;
      return constrain::compile_regex("[ab]{900}" + std::to_string(number));
    });
  };
  api::FormCache large(vocabulary);
  const std::size_t bytes = ask(large, 0, "127.0.0.2")->bytes();
  api::FormCache shared(vocabulary, 100 * bytes, 4 * bytes + bytes / 2);
  ask(shared, 0, "127.0.0.3");  // kept, and not in use
  std::vector<std::shared_ptr<const constrain::Masks>> used;
  EXPECT_THROW(for (int i = 0; i < 4; ++i) used.push_back(ask(shared, i, "127.0.0.2")), Error);
  EXPECT_EQ(used.size(), 2u);
  compiled = 0;
  EXPECT_NO_THROW(ask(shared, 0, "127.0.0.3"));
  EXPECT_EQ(compiled, 0) << "forgotten for a client that is at its own limit";
  EXPECT_NO_THROW(used.push_back(ask(shared, 1, "127.0.0.3")));
  // Where the room of all is short, what others only keep makes room.
  used.pop_back();
  EXPECT_NO_THROW(used.push_back(ask(shared, 2, "127.0.0.4")));
  EXPECT_NO_THROW(used.push_back(ask(shared, 3, "127.0.0.4")));
  EXPECT_EQ(used.size(), 4u);
}

// What an answer remembers of its way counts, too, until the answer has ended.
TEST(FormCache, CountsWhatAnswersRemember) {
  const auto vocabulary = std::make_shared<const constrain::Vocabulary>(
      test_model().tokenizer, test_model().stop_ids, test_model().token_limit);
  api::FormCache forms(vocabulary);
  const auto masks = forms.get({}, "object", [] { return constrain::compile_json_object(); });
  auto guide = constrain::make_guide(masks);
  std::vector<std::uint64_t> bits((test_model().limits.vocab_size + 63) / 64);
  std::string text = R"({"a": [)";
  for (int i = 0; i < 300; ++i) text += "[";
  for (const text::TokenId id : tokens_of(text)) {
    guide->allowed(bits);
    guide->accept(id);
  }
  EXPECT_GT(forms.live_bytes(), masks->bytes() + 200'000);
  guide.reset();
  EXPECT_EQ(forms.live_bytes(), masks->bytes());
  // Without room it remembers what it needs, and goes on.
  api::FormCache full(vocabulary, 1, masks->bytes() + (100 << 10));
  const auto tight = full.get({}, "object", [] { return constrain::compile_json_object(); });
  guide = constrain::make_guide(tight);
  for (const text::TokenId id : tokens_of(text)) {
    guide->allowed(bits);
    guide->accept(id);
    EXPECT_LE(full.live_bytes(), masks->bytes() + (100 << 10));
  }
}

TEST(FormCache, TenantsDoNotShareForms) {
  const auto vocabulary = std::make_shared<const constrain::Vocabulary>(
      test_model().tokenizer, test_model().stop_ids, test_model().token_limit);
  api::FormCache forms(vocabulary);
  int compiled = 0;
  for (const std::uint64_t tenant : {1, 2, 1, 2})
    forms.get({.tenant = tenant}, "a form", [&] {
      ++compiled;
      return constrain::compile_regex("a");
    });
  EXPECT_EQ(compiled, 2);
}

TEST(Guides, Refusals) {
  const auto expect = [](const std::string& field, const std::string& param, std::string_view message) {
    const HttpError error = refusal(kRoute, with(field));
    EXPECT_EQ(error.status, 400) << field;
    if (error.status != 400) return;
    EXPECT_EQ(text_at(parsed(error.body), "error.param"), param);
    EXPECT_NE(error.body.find(message), std::string::npos) << field << " " << error.body;
  };
  expect(R"("response_format": {"type": "grammar"})", "response_format.type",
         "one of text, json_object, json_schema, regex");
  expect(R"("response_format": {"type": "json_schema"})", "response_format.schema", "must be a JSON schema");
  expect(R"("guided_json": {"type": "object", "properties": {"a": {"contains": 1}}})", "guided_json",
         "contains");
  expect(R"("guided_json": {"$ref": "https://example.com/x"})", "guided_json", "$ref");
  expect(R"("guided_json": "{oops")", "guided_json", "guided_json");
  expect(R"("guided_regex": "(a")", "guided_regex", "guided_regex");
  expect(R"("guided_regex": "a{1,99999}{1,99999}{1,99999}")", "guided_regex", "guided_regex");
  expect(R"("guided_regex": "a", "guided_json": {})", "guided_regex", "both say");
  expect(R"("guided_regex": "a", "ignore_eos": true)", "guided_regex", "neither ignore_eos nor");
  expect(R"("guided_grammar": "root ::= x")", "guided_grammar", "asks for a grammar");
  expect(R"("structured_outputs": {"grammar": "root ::= x"})", "structured_outputs.grammar",
         "asks for a grammar");
  expect(R"("structural_tag": "x")", "structural_tag", "asks for a grammar");
  expect(R"("guided_choice": [])", "guided_choice", "list of strings");
  expect(R"("guided_choice": ["a", 1])", "guided_choice", "list of strings");
  expect(R"("guided_choice": ["a"], "guided_regex": "b")", "guided_choice", "both say");
  expect(R"("guided_regex": "a((((){9999}b){9999}){9999}){9999}")", "guided_regex", "takes more than");
  expect(R"("guided_regex": "a", "tool_choice": "required", )" + std::string(kTools), "tool_choice",
         "another form");
}

}  // namespace
}  // namespace fourfold::server
