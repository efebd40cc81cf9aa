// Calls of GLM, MiniMax, DeepSeek, Kimi and Mistral: as they should be, as careless models write them, cut
// anywhere.
#include "text/marked_calls.h"

#include <gtest/gtest.h>

#include <ctime>

#include "base/random.h"
#include "tests/text/tool_events.h"
#include "text/jinja/json_value.h"

namespace fourfold::text {
namespace {

const ToolSchemas& schemas() {
  static const ToolSchemas made = [] {
    ToolSchemas out;
    out.add("f", jinja::parse_json(R"({"type": "object", "properties": {"s": {"type": "string"},
      "i": {"type": "integer"}, "b": {"type": "boolean"}, "o": {"type": "object"},
      "z": {"type": ["string", "null"]}}})",
                                   "schema"));
    out.add("g", jinja::parse_json("{}", "schema"));
    return out;
  }();
  return made;
}

std::string read_in_pieces(CallFormat format, std::string_view text, bool cut_off, std::size_t size) {
  const auto parser = make_tool_call_parser(format, schemas());
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += size) out += shown(parser->push(text.substr(at, size)));
  return out + shown(parser->finish(cut_off));
}

// Whole, and cut in two at every byte, and byte by byte: all the same.
std::string read(CallFormat format, std::string_view text, bool cut_off = false) {
  const std::string whole = read_in_pieces(format, text, cut_off, text.size() + 1);
  EXPECT_EQ(read_in_pieces(format, text, cut_off, 1), whole) << text;
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    const auto parser = make_tool_call_parser(format, schemas());
    std::string out = shown(parser->push(text.substr(0, cut)));
    out += shown(parser->push(text.substr(cut)));
    out += shown(parser->finish(cut_off));
    EXPECT_EQ(out, whole) << text << " cut at " << cut;
  }
  return whole;
}

std::string glm(std::string_view text, bool cut_off = false) { return read(CallFormat::glm, text, cut_off); }

TEST(GlmCalls, AsTheTemplateWritesThem) {
  EXPECT_EQ(
      glm("<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>Zürich \"x\"\n</arg_value>\n<arg_key>i</arg_key>\n"
          "<arg_value>42</arg_value>\n</tool_call>"),
      R"([f {"s": "Zürich \"x\"\n", "i": 42}])");
  EXPECT_EQ(glm("<tool_call>f</tool_call>"), "[f {}]");
  EXPECT_EQ(glm("\nLet me see.\n<tool_call>f\n</tool_call>\n<tool_call>g\n</tool_call>"),
            "\nLet me see.\n[f {}][g {}]");
  const std::string one_line =
      "<tool_call>f<arg_key>b</arg_key><arg_value>true</arg_value><arg_key>o</arg_key>"
      "<arg_value>{\"a\": [1]}</arg_value></tool_call><tool_call>g</tool_call>";
  EXPECT_EQ(read(CallFormat::glm_compact, one_line), R"([f {"b": true, "o": {"a": [1]}}][g {}])");
  EXPECT_EQ(glm(one_line), R"([f {"b": true, "o": {"a": [1]}}][g {}])");  // models of both kinds write both
}

TEST(GlmCalls, InTheMiddleOfText) {
  EXPECT_EQ(glm("a<tool_call>g\n</tool_call>b"), "a[g {}]b");
  EXPECT_EQ(glm("a <tool_call>g\n</tool_call>\n\nb <tool_call>f\n</tool_call>"), "a [g {}]\n\nb [f {}]");
}

TEST(GlmCalls, WhatOpensNoCallIsText) {
  for (const char* text : {"the tag <tool_call> is a tag", "<tool_call>", "<tool_call>f and more",
                           "<tool_call>{\"name\": \"f\"}</tool_call>", "</tool_call>", "a < b <tool",
                           "<arg_key>s</arg_key>", "<tool_call>\n\n", "<tool_call>nobody"})
    EXPECT_EQ(glm(text), text);
  EXPECT_EQ(glm("<tool_call>" + std::string(600, 'x')), "<tool_call>" + std::string(600, 'x'));
}

TEST(GlmCalls, UnknownToolsAndParametersArePassedOn) {
  EXPECT_EQ(glm("<tool_call>nobody\n<arg_key>k</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"),
            R"([nobody {"k": "1"}])");
  EXPECT_EQ(glm("<tool_call>f\n<arg_key>k</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"),
            R"([f {"k": "1"}])");
}

TEST(GlmCalls, ParametersAreCalledAsTheirSchemasLike) {
  EXPECT_EQ(
      glm("<tool_call>g\n<arg_key>start date</arg_key>\n<arg_value>x</arg_value>\n<arg_key>it's {a}</arg_key>"
          "<arg_value>y</arg_value></tool_call>"),
      R"([g {"start date": "x", "it's {a}": "y"}])");
}

TEST(GlmCalls, MissingClosers) {
  EXPECT_EQ(glm("<tool_call>f"), "[f {}]");  // a tool that exists
  EXPECT_EQ(glm("<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x"), R"([f {"s": "x"}])");
  EXPECT_EQ(glm("<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n"), R"([f {"s": "x"}])");
  EXPECT_EQ(
      glm("<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x\n<arg_key>i</arg_key>\n<arg_value>1</arg_value>"
          "\n</tool_call>"),
      R"([f {"s": "x", "i": 1}])");
  EXPECT_EQ(glm("<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x\n</tool_call>\n<tool_call>g\n</tool_call>"),
            R"([f {"s": "x"}][g {}])");
  EXPECT_EQ(glm("<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x\n</tool_call>"), R"([f {"s": "x"}])");
  EXPECT_EQ(glm("<tool_call>f\n<arg_key>s</arg_key>\n</tool_call>"), "[f {}]");  // a key without a value
  EXPECT_EQ(glm("<tool_call>f\n<tool_call>g\n</tool_call>"), "[f {}][g {}]");
}

TEST(GlmCalls, MarksInsideAValueBelongToIt) {
  EXPECT_EQ(glm("<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a </tool_call> <tool_call> <arg_key> "
                "</arg_key> <arg_value> b</arg_value>\n</tool_call>"),
            "[f {\"s\": \"a \"}] <tool_call> <arg_key> </arg_key> <arg_value> b</arg_value>\n");
  EXPECT_EQ(glm("<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a </tool_call> <arg_key> "
                "b</arg_value>\n</tool_call>!"),
            R"([f {"s": "a </tool_call> <arg_key> b"}]!)");
  EXPECT_EQ(glm("<tool_call>f\n<arg_key>s</arg_key>\n<arg_value><think>x</think> "
                "</arg_val</arg_value>\n</tool_call>"),
            R"([f {"s": "<think>x</think> </arg_val"}])");
}

TEST(GlmCalls, AnAnswerCutOffLeavesItsCallOpen) {
  EXPECT_EQ(glm("<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>rm -r /tm", true), R"([f {"s": "rm -r /tm)");
  EXPECT_EQ(glm("<tool_call>f\n<arg_key>i</arg_key>\n<arg_value>12", true), "[f ");
  EXPECT_EQ(glm("<tool_call>f", true), "<tool_call>f");
}

TEST(GlmCalls, StringsStream) {
  const auto parser = make_tool_call_parser(CallFormat::glm, schemas());
  EXPECT_EQ(shown(parser->push("<tool_call>f\n<arg_key>")), "[f ");
  EXPECT_EQ(shown(parser->push("s</arg_key>\n<arg_value>")), R"({"s": ")");
  EXPECT_EQ(shown(parser->push("abc")), "abc");
  EXPECT_EQ(shown(parser->push("d</arg")), "d");
  EXPECT_EQ(shown(parser->push("_value>")), "\"");
  EXPECT_TRUE(parser->in_call());
  EXPECT_EQ(shown(parser->push("\n</tool_call>")), "}]");
  EXPECT_FALSE(parser->in_call());
}

std::string minimax(std::string_view text, bool cut_off = false) {
  return read(CallFormat::minimax, text, cut_off);
}

TEST(MiniMaxCalls, AsTheTemplateWritesThem) {
  EXPECT_EQ(
      minimax("I look.\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">é\n</parameter>\n"
              "<parameter name=\"i\">7</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n"
              "</minimax:tool_call>"),
      "I look.\n[f {\"s\": \"é\\n\", \"i\": 7}][g {}]");
}

TEST(MiniMaxCalls, CarelessAndAdversarial) {
  EXPECT_EQ(minimax("<invoke name=\"g\"></invoke>"), "[g {}]");
  EXPECT_EQ(minimax("<minimax:tool_call><invoke name=\"f\"><parameter name=\"s\">x"), R"([f {"s": "x"}])");
  EXPECT_EQ(minimax("<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">x\n</invoke>\n"
                    "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>"),
            R"([f {"s": "x"}][g {}])");
  EXPECT_EQ(
      minimax(
          "<invoke name=\"f\"><parameter name=\"s\">a </invoke> </minimax:tool_call> b</parameter></invoke>"),
      R"([f {"s": "a </invoke> </minimax:tool_call> b"}])");
  EXPECT_EQ(minimax("<invoke name=\"nobody\"><parameter name=\"k\">{1}</parameter></invoke>"),
            R"([nobody {"k": "{1}"}])");
  for (const char* text : {"write <minimax:tool_call> first", "<minimax:tool_call>\n", "<invoke name=\"",
                           "<invoke name=\"a b\">", "</invoke> and </minimax:tool_call>"})
    EXPECT_EQ(minimax(text), text);
  EXPECT_EQ(minimax("<minimax:tool_call>\n</minimax:tool_call>x"), "x");
  EXPECT_EQ(minimax("<invoke name=\"f\"><parameter name=\"s\">x", true), R"([f {"s": "x)");
}

const std::string kBegin = "<｜tool▁calls▁begin｜>", kEnd = "<｜tool▁calls▁end｜>",
                  kCall = "<｜tool▁call▁begin｜>", kCallEnd = "<｜tool▁call▁end｜>", kSep = "<｜tool▁sep｜>";

TEST(DeepSeekCalls, AsTheTemplatesWriteThem) {
  const std::string fenced = kBegin + kCall + "function" + kSep +
                             "f\n```json\n{\"s\": \"雪\", \"i\": 1}\n```" + kCallEnd + "\n" + kCall +
                             "function" + kSep + "g\n```json\n{}\n```" + kCallEnd + kEnd;
  const std::string plain = kBegin + kCall + "f" + kSep + "{\"s\": \"雪\", \"i\": 1}" + kCallEnd + kCall +
                            "g" + kSep + "{}" + kCallEnd + kEnd;
  for (const CallFormat format : {CallFormat::deepseek, CallFormat::deepseek_plain}) {
    EXPECT_EQ(read(format, "So: " + fenced), R"(So: [f {"s": "雪", "i": 1}][g {}])");
    EXPECT_EQ(read(format, plain), R"([f {"s": "雪", "i": 1}][g {}])");
  }
}

TEST(DeepSeekCalls, CarelessAndAdversarial) {
  const auto format = CallFormat::deepseek;
  EXPECT_EQ(read(format, kCall + "function" + kSep + "f\n```json\n{\"s\": \"a" + kCallEnd +
                             "```\\\"}\"}\n```" + kCallEnd + "!"),
            R"([f {"s": "a<｜tool▁call▁end｜>```\"}"}]!)");
  EXPECT_EQ(read(format, kBegin + kCall + "f" + kSep + "{\"o\": {\"a\": [1, {}]}}"),
            R"([f {"o": {"a": [1, {}]}}])");
  EXPECT_EQ(read(format, kBegin + kCall + "g" + kSep + kCallEnd + kEnd), "[g {}]");
  EXPECT_EQ(read(format, kBegin + kCall + "function" + kSep + "{\"x\": 1}" + kCallEnd),
            R"([function {"x": 1}])");
  // Half a call, or none at all.
  EXPECT_EQ(read(format, kBegin + kCall + "f" + kSep + "{\"s\": \"rm"), R"([f {"s": "rm)");
  EXPECT_EQ(read(format, kBegin + kCall + "f" + kSep + "{\"s\": }" + kCallEnd + "x"), R"([f {"s": }x)");
  for (const std::string& text : {kBegin + "nothing", kBegin, kCall + "two words" + kSep + "{}", kEnd,
                                  kCall + "f" + kSep + "no json", std::string("half <｜tool▁ca")})
    EXPECT_EQ(read(format, text), text);
}

std::string kimi(std::string_view text, bool cut_off = false) {
  return read(CallFormat::kimi, text, cut_off);
}

TEST(KimiCalls, AsTheTemplateWritesThem) {
  EXPECT_EQ(
      kimi("Two.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
           "{\"s\": \"x\"}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}"
           "<|tool_call_end|><|tool_calls_section_end|>"),
      R"(Two.[f {"s": "x"}][g {}])");
}

TEST(KimiCalls, CarelessAndAdversarial) {
  const std::string arguments = "<|tool_call_argument_begin|>";
  EXPECT_EQ(kimi("<|tool_call_begin|>f" + arguments + "{}"), "[f {}]");
  EXPECT_EQ(kimi("<|tool_call_begin|>functions.a.b:12 " + arguments + "\n{}\n<|tool_call_end|>"), "[a.b {}]");
  EXPECT_EQ(kimi("<|tool_call_begin|>functions.a:b:0" + arguments + "{}"), "[a:b {}]");
  EXPECT_EQ(kimi("<|tool_call_begin|>functions.f:0" + arguments + "{\"s\": \"<|tool_call_end|>\"}x"),
            R"([f {"s": "<|tool_call_end|>"}]x)");
  for (const std::string& text :
       {"<|tool_call_begin|>functions.:0" + arguments + "{}", std::string("<|tool_calls_section_begin|>x"),
        "<|tool_call_begin|>f" + arguments + "[]"})
    EXPECT_EQ(kimi(text), text);
  EXPECT_EQ(kimi("<|tool_call_begin|>f" + arguments + "{\"i\": 1", true), R"([f {"i": 1)");
}

std::string mistral(std::string_view text, bool cut_off = false) {
  return read(CallFormat::mistral, text, cut_off);
}

TEST(MistralCalls, AsTheTemplateWritesThemAndOtherwise) {
  EXPECT_EQ(mistral("So.[TOOL_CALLS]f[ARGS]{\"s\": \"[ARGS]é\"}[TOOL_CALLS]g[ARGS]{}"),
            R"(So.[f {"s": "[ARGS]é"}][g {}])");
  for (const char* text : {"a[1] = [TOOL_", "[TOOL_CALLS]", "[TOOL_CALLS][{\"name\": \"f\"}]",
                           "[TOOL_CALLS]two words[ARGS]{}", "[TOOL_CALLS]f[ARGS]x", "x [ARGS] y"})
    EXPECT_EQ(mistral(text), text);
  EXPECT_EQ(mistral("[TOOL_CALLS]f[ARGS]{\"i\": 1", true), R"([f {"i": 1)");
  EXPECT_EQ(mistral("[TOOL_CALLS]f[ARGS]{}\n```py\nx```"), "[f {}]\n```py\nx```");
}

// Token by token, as a model writes it: the work grows with the text, not with its square.
TEST(MarkedCalls, VeryLongValuesCostWhatTheyAreLong) {
  const std::string value = std::string(1'000'000, '<') + "</tool_call>" + std::string(1'000'000, '<');
  const auto parser = make_tool_call_parser(CallFormat::glm, schemas());
  std::string out = shown(parser->push("<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>"));
  const auto start = std::clock();
  for (std::size_t at = 0; at < value.size(); at += 4)
    out += shown(parser->push(std::string_view(value).substr(at, 4)));
  out += shown(parser->push("</arg_value></tool_call>"));
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 20);
  EXPECT_EQ(out, "[f {\"s\": \"" + value + "\"}]");
}

// However an answer is cut into pieces, what comes out is the same; and every call that ends has an object.
TEST(MarkedCalls, CutsDoNotMatter) {
  for (const CallFormat format :
       {CallFormat::glm, CallFormat::glm_compact, CallFormat::minimax, CallFormat::deepseek,
        CallFormat::deepseek_plain, CallFormat::kimi, CallFormat::mistral}) {
    const CallMarks marks = marks_of(format);
    std::vector<std::string> words = {"f",   "g",          "s",          "\n",       " ",  "x",  "42",
                                      "<",   ">",          "é",          "\"",       "{}", "{",  "}",
                                      "\\",  "```json",    "```",        "function", ":0", "</", "\">",
                                      "[1]", "{\"s\": \"", "functions.", "<think>"};
    for (const std::string_view mark :
         {marks.section_open, marks.section_close, marks.call_open, marks.call_close, marks.name_close,
          marks.key_open, marks.key_close, marks.value_open, marks.value_close})
      if (!mark.empty()) words.insert(words.end(), 3, std::string(mark));
    words.push_back(std::string(marks.call_open) + "f" + std::string(marks.name_close));
    words.push_back(std::string(marks.key_open) + "s" + std::string(marks.key_close) +
                    std::string(marks.value_open));
    for (std::uint64_t seed = 0; seed < 2000; ++seed) {
      Random random(seed);
      std::string text;
      for (std::uint64_t i = random.below(16); i > 0; --i) text += words[random.below(words.size())];
      const bool cut_off = random.below(2) == 0;
      const std::string whole = read_in_pieces(format, text, cut_off, text.size() + 1);
      ASSERT_EQ(read_in_pieces(format, text, cut_off, 1), whole)
          << name_of(format) << " seed " << seed << ": " << text;
      ASSERT_EQ(read_in_pieces(format, text, cut_off, 1 + random.below(6)), whole) << text;
      const auto parser = make_tool_call_parser(format, schemas());
      auto events = parser->push(text);
      for (ToolEvent& event : parser->finish(cut_off)) events.push_back(std::move(event));
      std::string arguments;
      for (const ToolEvent& event : events) {
        if (event.kind == ToolEvent::Kind::begin) arguments.clear();
        if (event.kind == ToolEvent::Kind::arguments) arguments += event.text;
        if (event.kind != ToolEvent::Kind::end) continue;
        ASSERT_TRUE(jinja::parse_json(arguments, "a", jinja::JsonRules::answer).is_dict()) << text;
      }
    }
  }
}

}  // namespace
}  // namespace fourfold::text
