#include "constrain/guide.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "base/utf8.h"
#include "tests/constrain/accepts.h"
#include "text/jinja/json_value.h"
#include "text/tool_calls.h"

namespace fourfold::constrain {
namespace {

struct Model {
  text::Tokenizer tokenizer;
  std::shared_ptr<const Vocabulary> vocabulary;
  TokenId stop;
};

Model load(const std::string& path, std::string_view stop_text) {
  Model model{text::Tokenizer::load(path), nullptr, 0};
  model.stop = *model.tokenizer.added_token(stop_text);
  model.vocabulary =
      std::make_shared<Vocabulary>(model.tokenizer, std::span(&model.stop, 1), model.tokenizer.id_limit());
  return model;
}

const Model& small() {
  static const Model model = load(FOURFOLD_TEXT_GOLDEN "/qwen35.tokenizer.json", "<|im_end|>");
  return model;
}
const Model& large() {
  static const Model model = load(FOURFOLD_TEXT_UNPACKED "/qwen3.tokenizer.json", "<|im_end|>");
  return model;
}

std::vector<TokenId> allowed(engine::TokenGuide& guide, const Vocabulary& vocabulary) {
  std::vector<std::uint64_t> bits(vocabulary.word_count());
  guide.allowed(bits);
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < vocabulary.token_limit(); ++token)
    if (bits[static_cast<std::size_t>(token) / 64] >> (token % 64) & 1) tokens.push_back(token);
  return tokens;
}

// Every token of the vocabulary tried one by one must give the mask: the trie, the local masks, the skipping
// of free text and the walks above are compared with plain reading.
std::vector<TokenId> tried_one_by_one(const Model& model, const Grammar& grammar, std::string_view read) {
  const Vocabulary& vocabulary = *model.vocabulary;
  Matcher matcher(grammar);
  const auto reads = [&](Matcher::SetId set, std::string_view text) {
    for (const char c : text)
      if (set != Matcher::kDead) set = matcher.step(set, static_cast<std::uint8_t>(c));
    return set;
  };
  const Matcher::SetId here = reads(matcher.start_at(grammar.start()), read);
  std::vector<TokenId> wanted;
  for (TokenId next = 0; next < vocabulary.token_limit(); ++next) {
    const std::string_view bytes = vocabulary.bytes(next);
    const bool is_other_tag =
        vocabulary.tag(bytes) == next && std::ranges::find(grammar.tags(), bytes) == grammar.tags().end();
    const bool fits = next == model.stop
                          ? matcher.may_end(here)
                          : !bytes.empty() && !is_other_tag && reads(here, bytes) != Matcher::kDead;
    if (fits) wanted.push_back(next);
  }
  return wanted;
}

void expect_exact_masks(const Model& model, std::shared_ptr<const Grammar> grammar, std::string_view text) {
  const Vocabulary& vocabulary = *model.vocabulary;
  auto guide = make_guide(model.vocabulary, grammar);
  std::string read;
  for (const TokenId token : model.tokenizer.encode(text)) {
    const std::vector<TokenId> wanted = tried_one_by_one(model, *grammar, read);
    ASSERT_EQ(allowed(*guide, vocabulary), wanted) << "after " << read;
    ASSERT_TRUE(std::binary_search(wanted.begin(), wanted.end(), token)) << "after " << read;
    guide->accept(token);
    read += vocabulary.bytes(token);
  }
  ASSERT_EQ(verdict(*grammar, read), Verdict::accepted) << read;
  guide->accept(model.stop);
  ASSERT_EQ(allowed(*guide, vocabulary), std::vector<TokenId>{model.stop});
}

TEST(Guide, MasksAreWhatReadingEveryTokenGives) {
  const Model& model = small();
  expect_exact_masks(model, compile_json_object(),
                     "{\"name\": \"J\xC3\xBCrgen \\\"x\\\"\", \"list\": [1, -2.5e3, [], {}], \"o\": null}");
  expect_exact_masks(model, compile_regex("(yes|no|may(be)?)[.!]{0,2}"), "maybe!");
  expect_exact_masks(
      model, compile_json_schema(R"({"properties": {"a": {"maxLength": 9}, "b": {"enum": ["red", "green"]},
                                             "c": {"items": {"type": "integer", "minimum": 5, "maximum": 120}}}})"),
      "{\n  \"a\": \"hello\",\n  \"b\": \"green\",\n  \"c\": [17, 120]\n}");
  // A whole vocabulary, with its long and its broken tokens.
  expect_exact_masks(large(),
                     compile_json_schema(R"({"type": "array", "items": {"maxLength": 7}, "maxItems": 2})"),
                     "[\"\xE9\x9B\xAA and\\n\", \"\"]");
}

TEST(Guide, EndsWhereTheFormDoes) {
  const Model& model = small();
  auto guide = make_guide(model.vocabulary, compile_regex("a"));
  EXPECT_EQ(allowed(*guide, *model.vocabulary), model.tokenizer.encode("a"));
  guide->accept(model.tokenizer.encode("a")[0]);
  EXPECT_EQ(allowed(*guide, *model.vocabulary), std::vector<TokenId>{model.stop});
}

TEST(Guide, StartsBehindThinking) {
  const Model& model = small();
  const TokenId end_of_thinking = *model.tokenizer.added_token("</think>");
  const TokenId tool_call = *model.tokenizer.added_token("<tool_call>");
  auto guide = make_guide(model.vocabulary, compile_regex("[ab]+"),
                          {.after = end_of_thinking, .not_before = {tool_call}, .newlines = true});
  auto before = allowed(*guide, *model.vocabulary);
  const auto has = [&](TokenId token) {
    return std::find(before.begin(), before.end(), token) != before.end();
  };
  EXPECT_TRUE(has(end_of_thinking));
  EXPECT_TRUE(has(model.tokenizer.encode("!")[0]));
  EXPECT_FALSE(has(model.stop));
  EXPECT_FALSE(has(tool_call));
  guide->accept(model.tokenizer.encode("!")[0]);
  guide->accept(end_of_thinking);
  before = allowed(*guide, *model.vocabulary);
  EXPECT_FALSE(has(end_of_thinking));
  EXPECT_FALSE(has(model.tokenizer.encode("!")[0]));
  EXPECT_TRUE(has(model.tokenizer.encode("\n")[0]));
  guide->accept(model.tokenizer.encode("\n")[0]);
  guide->accept(model.tokenizer.encode("\n")[0]);
  before = allowed(*guide, *model.vocabulary);
  EXPECT_FALSE(has(model.tokenizer.encode("\n")[0]));
  EXPECT_TRUE(has(model.tokenizer.encode("b")[0]));
  EXPECT_FALSE(has(model.stop));
}

TEST(Guide, ToolCalls) {
  const Model& model = small();
  const char* tools = R"([
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
      "unit": {"type": "string", "enum": ["C", "F"]}, "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}}},
      "required": ["city"], "$defs": {"tag": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "now"}}])";
  const auto grammar = compile_tool_calls(tools);
  const std::string now = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
  const std::string weather =
      "<tool_call>\n<function=weather>\n<parameter=city>\nBern \"<\n\n</parameter>\n"
      "<parameter=days>\n14\n</parameter>\n<parameter=tags>\n[\"a\", \"b\"]\n</parameter>\n"
      "</function>\n</tool_call>";
  EXPECT_TRUE(accepts(*grammar, now));
  EXPECT_TRUE(accepts(*grammar, now + "\n" + weather));
  EXPECT_FALSE(accepts(*grammar, now + now));
  EXPECT_FALSE(accepts(*grammar, "Hello"));
  for (const auto& [part, other] :
       {std::pair("14", "15"), std::pair("city", "town"), std::pair("Bern", "</parameter>"),
        std::pair("Bern", "<parameter=x>"), std::pair("[\"a\"", "[a")}) {
    std::string wrong = weather;
    wrong.replace(wrong.find(part), std::string(part).size(), other);
    EXPECT_FALSE(accepts(*grammar, wrong)) << wrong;
  }
  EXPECT_FALSE(accepts(*compile_tool_calls(tools, {.name = "weather"}), now));
  EXPECT_FALSE(accepts(*compile_tool_calls(tools, {.several = false}), now + "\n" + now));
  EXPECT_NE(refusal([&] { compile_tool_calls(tools, {.name = "x"}); }).find("names x"), std::string::npos);
  EXPECT_NE(refusal([&] { compile_tool_calls("[]"); }), "");
  expect_exact_masks(model, grammar, now);
  std::string many = "[";
  for (int tool = 0; tool < 128; ++tool) {
    many +=
        (tool ? ", " : "") +
        format(R"({"type": "function", "function": {"name": "f{}", "parameters": {"properties": {)", tool);
    for (int i = 0; i < 10; ++i) many += format("{}\"p{}\": {\"type\": \"string\"}", i ? ", " : "", i);
    many += "}}}}";
  }
  EXPECT_TRUE(accepts(*compile_tool_calls(many + "]"),
                      "<tool_call>\n<function=f127>\n<parameter=p9>\nx\n</parameter>\n"
                      "</function>\n</tool_call>"));
  EXPECT_TRUE(accepts(
      *compile_tool_calls(many + "]", {.format = text::CallFormat::json}),
      "<tool_call>\n{\"name\": \"f127\", \"arguments\": {\"p3\": \"x\", \"p9\": \"y\"}}\n</tool_call>"));
  // The wrappers are tokens of their own.
  EXPECT_EQ(model.tokenizer.encode(now)[0], *model.tokenizer.added_token("<tool_call>"));
}

TEST(Guide, ToolCallsInJson) {
  const char* tools = R"([
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
      "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}}, "free": {"type": "object"}},
      "required": ["city"], "$defs": {"tag": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "a\\b", "parameters": {}}},
    {"type": "function", "function": {"name": "open", "parameters": {"additionalProperties": {"type": "integer"},
      "maxProperties": 2}}},
    {"type": "function", "function": {"name": "now"}}])";
  const auto json = text::CallFormat::json;
  const auto grammar = compile_tool_calls(tools, {.format = json});
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
  };
  const std::string weather = call("weather", R"({"city": "Bern \"</tool_call>\u00e9", "days": 14,)"
                                              R"( "tags": ["a"], "free": {"x": [1]}})");
  for (const std::string& text :
       {weather, call("now", "{}"), call("a\\\\b", "{}"), call("open", R"({"a": 1, "b": 2})"),
        weather + "\n" + call("now", "{}"), call("weather", "{\n  \"city\": \"x\"\n}")})
    EXPECT_TRUE(accepts(*grammar, text)) << text;
  for (const std::string& text :
       {call("weather", "{}"), call("weather", R"({"city": 1})"),
        call("weather", R"({"city": "x", "days": 15})"), call("weather", R"({"city": "x", "town": "y"})"),
        call("now", R"({"a": 1})"), call("a\\\\b", "1"), call("open", R"({"a": 1, "b": 2, "c": 3})"),
        call("open", R"({"a": "1"})"), call("other", "{}"), call("now", "{}") + call("now", "{}"),
        std::string("<tool_call>\n<function=now>\n</function>\n</tool_call>"), std::string("Hello")})
    EXPECT_FALSE(accepts(*grammar, text)) << text;
  EXPECT_FALSE(accepts(*compile_tool_calls(tools, {.format = json, .name = "now"}), weather));
  EXPECT_FALSE(accepts(*compile_tool_calls(tools, {.format = json, .several = false}),
                       call("now", "{}") + "\n" + call("now", "{}")));
  EXPECT_NE(refusal([&] {
              compile_tool_calls(R"([{"function": {"name": "f", "parameters": {"type": "string"}}}])",
                                 {.format = json});
            }).find("the parameters of a tool are an object"),
            std::string::npos);
  expect_exact_masks(small(), grammar, weather);
}

struct FormatCase {
  text::CallFormat format;
  std::string open, weather, between, now, close;
};

// A call with arguments and one without, as each format writes them.
std::vector<FormatCase> format_cases() {
  using text::CallFormat;
  return {
      {CallFormat::glm, "",
       "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bern "
       "\"</b>\n</arg_value>\n<arg_key>days</arg_key>\n"
       "<arg_value>14</arg_value>\n</tool_call>",
       "\n", "<tool_call>now\n</tool_call>", ""},
      {CallFormat::glm_compact, "",
       "<tool_call>weather<arg_key>city</arg_key><arg_value>Bern</arg_value><arg_key>days</arg_key>"
       "<arg_value>14</arg_value></tool_call>",
       "", "<tool_call>now</tool_call>", ""},
      {CallFormat::minimax, "<minimax:tool_call>\n",
       "<invoke name=\"weather\">\n<parameter name=\"city\">Bern</parameter>\n<parameter name=\"days\">14"
       "</parameter>\n</invoke>\n",
       "", "<invoke name=\"now\">\n</invoke>\n", "</minimax:tool_call>"},
      {CallFormat::deepseek, "<｜tool▁calls▁begin｜>",
       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Bern\", \"days\": "
       "14}\n```<｜tool▁call▁end｜>",
       "\n", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>",
       "<｜tool▁calls▁end｜>"},
      {CallFormat::deepseek_plain, "<｜tool▁calls▁begin｜>",
       "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Bern\", \"days\": 14}<｜tool▁call▁end｜>", "",
       "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
      {CallFormat::kimi, "<|tool_calls_section_begin|>",
       "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"Bern\", \"days\": 14}"
       "<|tool_call_end|>",
       "", "<|tool_call_begin|>functions.now:11<|tool_call_argument_begin|>{}<|tool_call_end|>",
       "<|tool_calls_section_end|>"},
      {CallFormat::mistral, "", "[TOOL_CALLS]weather[ARGS]{\"city\": \"Bern\", \"days\": 14}", "",
       "[TOOL_CALLS]now[ARGS]{}", ""}};
}

// Each format's calls are held to the tools' schemas, and to what its parser reads.
TEST(Guide, ToolCallsOfEveryFormat) {
  const char* tools = R"([
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer", "maximum": 14}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now"}}])";
  for (const FormatCase& one : format_cases()) {
    SCOPED_TRACE(text::name_of(one.format));
    const auto grammar = compile_tool_calls(tools, {.format = one.format});
    const std::string both = one.open + one.weather + one.between + one.now + one.close;
    EXPECT_TRUE(accepts(*grammar, one.open + one.now + one.close));
    EXPECT_TRUE(accepts(*grammar, both));
    EXPECT_FALSE(accepts(*grammar, one.open + one.close));
    EXPECT_FALSE(accepts(*compile_tool_calls(tools, {.format = one.format, .several = false}), both));
    EXPECT_FALSE(accepts(*compile_tool_calls(tools, {.format = one.format, .name = "weather"}),
                         one.open + one.now + one.close));
    for (const auto& [part, other] : {std::pair("14", "15"), std::pair("city", "town"),
                                      std::pair("weather", "whether"), std::pair("14", "x")}) {
      std::string wrong = one.open + one.weather + one.close;
      wrong.replace(wrong.find(part), std::string(part).size(), other);
      EXPECT_FALSE(accepts(*grammar, wrong)) << wrong;
    }
    text::ToolSchemas schemas;
    schemas.add("weather", text::jinja::parse_json(R"({"properties": {"days": {"type": "integer"}}})", "s"));
    const auto parser = text::make_tool_call_parser(one.format, schemas);
    std::string calls;
    for (const text::ToolEvent& event : parser->push(both))
      calls += event.kind == text::ToolEvent::Kind::end ? ";" : event.text + " ";
    EXPECT_TRUE(calls.starts_with("weather {\"city\": \"Bern")) << calls;
    EXPECT_TRUE(calls.ends_with("\"days\": 14} ;now {} ;")) << calls;
    EXPECT_NE(
        refusal([&] { compile_tool_calls(R"([{"function": {"name": "a b"}}])", {.format = one.format}); }),
        "");
    expect_exact_masks(small(), grammar, one.open + one.weather + one.close);
  }
  // A string between tags cannot hold what would end it.
  const auto glm = compile_tool_calls(tools, {.format = text::CallFormat::glm});
  EXPECT_FALSE(accepts(
      *glm,
      "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value></tool_call></arg_value>\n</tool_call>"));
}

// Prints what docs/structured.md tells; the bound is far away, so that a busy machine does not reach it.
// Many definitions that look alike for long: each is a reading of its own, and no token tells them apart.
TEST(Guide, FormsThatCostTooMuchATokenAreRefused) {
  std::string definitions, any;
  for (int i = 0; i < 400; ++i) {
    const std::string comma = i == 0 ? "" : ", ";
    definitions += comma + fourfold::format(R"("d{}": {"type": "array", "items": {"anyOf": [{"type": "string",
        "pattern": "^.*{}$"}, {"$ref": "#/$defs/d{}"}]}})",
                                            i, i, i);
    any += comma + fourfold::format(R"({"$ref": "#/$defs/d{}"})", i);
  }
  const auto start = std::clock();
  std::string said;
  try {
    const auto grammar =
        compile_json_schema(R"({"$defs": {)" + definitions + R"(}, "anyOf": [)" + any + "]}");
    const auto masks = std::make_shared<const Masks>(large().vocabulary, grammar);
    masks->warm_up();
    auto guide = make_guide(masks);
    for (const TokenId token : large().tokenizer.encode(R"([["a word")")) {
      allowed(*guide, *large().vocabulary);
      guide->accept(token);
    }
    allowed(*guide, *large().vocabulary);
  } catch (const Error& error) {
    said = error.what();
  }
  std::printf("%.2f s: %s\n", static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, said.c_str());
  EXPECT_NE(said.find("to follow the form of the answer takes more than"), std::string::npos) << said;
}

// Dear again and again, though never too dear for one token.
TEST(Guide, FormsThatCostTooMuchAnAnswerAreRefused) {
  std::string definitions, any;
  for (int i = 0; i < 60; ++i) {
    definitions +=
        fourfold::format(R"({}"d{}": {"type": "array", "items": {"$ref": "#/$defs/d{}"}, "maxItems": {}})",
                         i == 0 ? "" : ", ", i, (i * 7 + 1) % 60, i + 3);
    any += fourfold::format(R"({}{"$ref": "#/$defs/d{}"})", i == 0 ? "" : ", ", i);
  }
  const auto masks = std::make_shared<const Masks>(
      large().vocabulary,
      compile_json_schema(R"({"$defs": {)" + definitions + R"(}, "anyOf": [)" + any + "]}"));
  masks->warm_up();
  auto guide = make_guide(masks);
  const TokenId open = large().tokenizer.encode("[")[0];
  const auto start = std::clock();
  std::string said;
  int tokens = 0;
  try {
    for (; tokens < 20'000; ++tokens) {
      allowed(*guide, *large().vocabulary);
      guide->accept(open);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_request);
    said = error.what();
  }
  std::printf("%d tokens, %.2f s: %s\n", tokens, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC,
              said.c_str());
  EXPECT_NE(said.find("for one answer"), std::string::npos) << said;
}

// The budget counts all of a mask, and an ordinary form stays far below it.
TEST(Guide, OrdinaryMasksStayFarBelowTheBudget) {
  const auto grammar =
      compile_json_schema(R"({"properties": {"a": {"type": "string", "pattern": "^[a-z ]+$"}}})");
  const Masks masks(large().vocabulary, grammar);
  std::int64_t most = 0;
  for (std::uint32_t state = 0; state < grammar->state_count(); ++state) {
    MaskBudget budget;
    masks.local(state, budget);
    most = std::max(most, budget.spent_on_token());
  }
  EXPECT_GT(most, 1000);
  EXPECT_LT(most, MaskBudget::kTokenMax / 10);
  MaskBudget small_one(most / 2);
  const Masks again(large().vocabulary, grammar);
  EXPECT_THROW(
      for (std::uint32_t state = 0; state < grammar->state_count(); ++state) again.local(state, small_one),
      Error);
}

TEST(Guide, Choices) {
  const std::string choices[] = {"red", "green", "gr\xC3\xBCn", "re"};
  const auto grammar = compile_choice(choices);
  for (const std::string& choice : choices) EXPECT_TRUE(accepts(*grammar, choice));
  EXPECT_FALSE(accepts(*grammar, "r"));
  EXPECT_FALSE(accepts(*grammar, "redgreen"));
  expect_exact_masks(small(), grammar, "green");
  EXPECT_NE(refusal([] { compile_choice({}); }), "");
  const std::string broken[] = {"\xFF"};
  EXPECT_NE(refusal([&] { compile_choice(broken); }).find("UTF-8"), std::string::npos);
}

// A form's memory is counted as long as anybody has it, and masks that find no room are not kept.
TEST(Guide, MemoryOfFormsIsCounted) {
  const auto memory = std::make_shared<FormBytes>(std::size_t{1} << 20);
  const auto grammar = compile_json_schema(R"({"type": "string", "maxLength": 400})");
  {
    const Masks one(small().vocabulary, grammar, memory);
    const std::size_t before = memory->used();
    EXPECT_GT(before, grammar->bytes());
    one.warm_up();
    EXPECT_GT(memory->used(), before);
    EXPECT_EQ(memory->used(), one.bytes());
    const std::size_t taken = memory->max() - memory->used();
    ASSERT_TRUE(memory->take(taken));
    for (std::uint32_t state = 0; state < grammar->state_count(); ++state) {
      MaskBudget budget;
      one.local(state, budget);
    }
    EXPECT_LE(memory->used(), memory->max());
    EXPECT_EQ(memory->used(), taken + one.bytes()) << "what was forgotten was given back";
    try {
      const Masks other(small().vocabulary, grammar, std::make_shared<FormBytes>(memory->max(), memory));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::over_capacity);
    }
    memory->give(memory->used() - one.bytes());
  }
  EXPECT_EQ(memory->used(), 0u);
}

TEST(Guide, Speed) {
  using Clock = std::chrono::steady_clock;
  const auto ms = [](Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  auto start = Clock::now();
  const Model& model = large();
  std::printf("load and trie: %.1f ms, %u nodes, longest token %d bytes\n", ms(Clock::now() - start),
              model.vocabulary->node_count(), model.vocabulary->depth_max());
  start = Clock::now();
  const Vocabulary again(model.tokenizer, std::span(&model.stop, 1), model.tokenizer.id_limit());
  std::printf("trie alone: %.1f ms\n", ms(Clock::now() - start));
  const std::string text =
      "{\n  \"name\": \"A long name, with some words in it\",\n  \"tags\": [\"one\", \"two\", \"three\"],\n"
      "  \"size\": 42,\n  \"note\": \"" +
      std::string(400, 'x') + "\"\n}";
  for (const auto& [name, grammar] :
       {std::pair("json_object", compile_json_object()),
        std::pair("schema",
                  compile_json_schema(R"({"properties": {"name": {"type": "string"}, "tags": {"type": "array",
          "items": {"type": "string"}}, "size": {"type": "integer"},
          "note": {"type": "string", "maxLength": 1000}}})"))}) {
    start = Clock::now();
    const auto masks = std::make_shared<const Masks>(model.vocabulary, grammar);
    masks->warm_up();
    std::printf("%s: %u states, warm-up %.1f ms\n", name, grammar->state_count(), ms(Clock::now() - start));
    for (int round = 0; round < 2; ++round) {
      auto guide = make_guide(masks);
      std::vector<std::uint64_t> bits(model.vocabulary->word_count());
      std::vector<double> times;
      const auto tokens = model.tokenizer.encode(text);
      for (const TokenId token : tokens) {
        const auto before = Clock::now();
        guide->allowed(bits);
        guide->accept(token);
        times.push_back(ms(Clock::now() - before));
      }
      std::sort(times.begin(), times.end());
      std::printf("  round %d: %zu tokens, median %.3f ms, worst %.3f ms\n", round, times.size(),
                  times[times.size() / 2], times.back());
      EXPECT_LT(times[times.size() / 2], 1.0);
    }
  }
}

}  // namespace
}  // namespace fourfold::constrain
