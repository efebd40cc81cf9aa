#include "text/qwen_calls.h"

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
    out.add("f", jinja::parse_json(R"({"type": "object", "properties": {
      "s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"},
      "o": {"type": "object"}, "a": {"type": "array"}, "z": {"type": ["string", "null"]},
      "e": {"enum": [1, "two"]}, "u": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
      "r": {"$ref": "#/$defs/P"}, "bomb": {"$ref": "#/$defs/B"}, "loop": {"$ref": "#/properties/loop"}, "any": {}},
      "$defs": {"P": {"type": "object"}, "B": {"anyOf": [
        {"$ref": "#/$defs/B"}, {"$ref": "#/$defs/B"}, {"$ref": "#/$defs/B"}, {"$ref": "#/$defs/B"},
        {"$ref": "#/$defs/B"}, {"$ref": "#/$defs/B"}, {"$ref": "#/$defs/B"}, {"$ref": "#/$defs/B"}]}}})",
                                   "schema"));
    out.add("g", jinja::parse_json(R"({"additionalProperties": {"type": "integer"}})", "schema"));
    return out;
  }();
  return made;
}

std::string read(std::string_view text, bool cut_off = false) {
  QwenCallParser parser(schemas());
  auto events = parser.push(text);
  for (ToolEvent& event : parser.finish(cut_off)) events.push_back(std::move(event));
  return shown(events);
}

TEST(ToolCalls, OneCall) {
  EXPECT_EQ(read("<tool_call>\n<function=f>\n<parameter=s>\nhello \"you\"\n</parameter>\n<parameter=i>\n42\n"
                 "</parameter>\n</function>\n</tool_call>"),
            R"([f {"s": "hello \"you\"", "i": 42}])");
  EXPECT_EQ(read("<tool_call>\n<function=f>\n</function>\n</tool_call>"), "[f {}]");
  EXPECT_EQ(read("Let me see.\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>\n"),
            "Let me see.\n\n[f {}]");
}

TEST(ToolCalls, SpaceAroundCallsIsNotSaid) {
  EXPECT_EQ(read("\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>\n\n<tool_call>\n<function=g>\n"
                 "</function>\n</tool_call>\n"),
            "[f {}][g {}]");
  EXPECT_EQ(read(" \n"), " \n");
  EXPECT_EQ(read("  a  "), "  a  ");
}

TEST(ToolCalls, CarelessTags) {
  // Neither <tool_call> nor closing tags; a name that ends with its line; spaces inside tags.
  EXPECT_EQ(read("<function=f><parameter=s>x"), R"([f {"s": "x"}])");
  EXPECT_EQ(read("<function=f</function>"), "[f {}]");
  EXPECT_EQ(read("<tool_call><function=f>\n<parameter=s>\na\n<parameter=i>\n1\n</function>"),
            R"([f {"s": "a", "i": 1}])");
  EXPECT_EQ(read("<tool_call>\n< function = f >\n< parameter = s >\nv\n</ parameter >\n</ function >"),
            R"([f {"s": "v"}])");
  EXPECT_EQ(read("<tool_call><function=f></function><tool_call><function=g></function>"), "[f {}][g {}]");
  EXPECT_EQ(read("<function=f><function=g>"), "[f {}][g {}]");
  EXPECT_EQ(read("<function=f><parameter=s>a</tool_call>b"), R"([f {"s": "a"}]b)");
  EXPECT_EQ(read("<function=f><parameter=s>a</parameter><parameter=s>b</parameter>"), R"([f {"s": "a"}])");
}

TEST(ToolCalls, WhatIsNoCallStaysText) {
  EXPECT_EQ(read("a < b and <b>bold</b>"), "a < b and <b>bold</b>");
  EXPECT_EQ(read("the tag <tool_call> is a tag"), "the tag <tool_call> is a tag");
  EXPECT_EQ(read("<tool_call>"), "<tool_call>");
  EXPECT_EQ(read("an end </tool_call> only"), "an end </tool_call> only");
  EXPECT_EQ(read("<function=>x"), "<function=>x");
  EXPECT_EQ(read("half <tool_ca"), "half <tool_ca");
  EXPECT_EQ(read("<function=" + std::string(600, 'x')), "<function=" + std::string(600, 'x'));
}

TEST(ToolCalls, JsonForm) {
  EXPECT_EQ(read("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"i\": 1, \"s\": \"é\"}}\n</tool_call>"),
            R"([f {"i": 1, "s": "é"}])");
  EXPECT_EQ(read("<tool_call>{\"name\": \"f\"}"), "[f {}]");
  EXPECT_EQ(read("<tool_call>{\"name\": 1}</tool_call>!"), "<tool_call>{\"name\": 1}</tool_call>!");
  EXPECT_EQ(read(R"(<tool_call>{"name": "f", "arguments": "{\"i\": 1}"}</tool_call>)"), R"([f {"i": 1}])");
  EXPECT_EQ(read(R"(<tool_call>{"name": "f", "arguments": {"n": 12345678901234567890}}</tool_call>)"),
            R"([f {"n": 12345678901234567890}])");
  EXPECT_EQ(
      read(
          R"(<tool_call>{"arguments": {"o": {"name": "g", "arguments": [",}", 1]}, "o": 1}, "name": "f"}</tool_call>)"),
      R"([f {"o": {"name": "g", "arguments": [",}", 1]}, "o": 1}])");
  EXPECT_EQ(read(R"(<tool_call>{"name": "f", "\u0061rguments": {"i":1}}</tool_call>)"), R"([f {"i": 1}])");
}

// A tag inside a string of JSON is a part of the string.
TEST(ToolCalls, TagsInStringsOfJson) {
  const std::string f =
      R"(<tool_call>{"name": "f", "arguments": {"s": "a</tool_call>b\"</tool_call>\\"}}</tool_call>)";
  EXPECT_EQ(read(f + "\n" + f + "!"),
            R"([f {"s": "a</tool_call>b\"</tool_call>\\"}][f {"s": "a</tool_call>b\"</tool_call>\\"}]!)");
  // Unless the string never ends: then the tag was meant, and what follows is read as ever.
  EXPECT_EQ(read(R"(<tool_call>{"name": "f</tool_call>no <tool_call>{"name": "g"}</tool_call>)"),
            R"(<tool_call>{"name": "f</tool_call>no [g {}])");
  EXPECT_EQ(read(R"(<tool_call>{"name": "f</tool_call>)", true), R"(<tool_call>{"name": "f</tool_call>)");
}

TEST(ToolCalls, ExactlyOneLineBreakAtEachEndBelongsToTheTags) {
  EXPECT_EQ(read("<function=f><parameter=s>\n\n  a\n\n</parameter>"), R"([f {"s": "\n  a\n"}])");
  EXPECT_EQ(read("<function=f><parameter=s>\n</parameter>"), R"([f {"s": ""}])");
  EXPECT_EQ(read("<function=f><parameter=s>a < b\n</p></parameter>"), R"([f {"s": "a < b\n</p>"}])");
}

TEST(ToolCalls, AnAnswerCutOffLeavesItsCallOpen) {
  EXPECT_EQ(read("<function=f><parameter=s>\nrm -r /tm", true), R"([f {"s": "rm -r /tm)");
  EXPECT_EQ(read("<function=f><parameter=i>\n12", true), "[f ");
  EXPECT_EQ(read("<function=f><parameter=i>\n12"), R"([f {"i": 12}])");
}

TEST(ToolCalls, ValuesAreTypedByTheSchema) {
  EXPECT_EQ(typed_json("12", kToolInteger), "12");
  EXPECT_EQ(typed_json("12345678901234567890", kToolInteger), "12345678901234567890");
  EXPECT_EQ(typed_json("12.0", kToolInteger), "12");
  EXPECT_EQ(typed_json("12.5", kToolInteger), "\"12.5\"");
  EXPECT_EQ(typed_json(" 1e3 ", kToolNumber), "1e3");
  EXPECT_EQ(typed_json("NaN", kToolNumber), "\"NaN\"");
  EXPECT_EQ(typed_json("1e999", kToolNumber), "\"1e999\"");
  EXPECT_EQ(typed_json("True", kToolBoolean), "true");
  EXPECT_EQ(typed_json("0", kToolBoolean), "false");
  EXPECT_EQ(typed_json("yes", kToolBoolean), "\"yes\"");
  EXPECT_EQ(typed_json("None", kToolNull | kToolString), "null");
  EXPECT_EQ(typed_json("null", kToolString), "\"null\"");
  EXPECT_EQ(typed_json("{\"a\": [1]}", kToolObject), "{\"a\": [1]}");
  EXPECT_EQ(typed_json("[1, 2]", kToolObject | kToolArray), "[1, 2]");
  EXPECT_EQ(typed_json("{'a': 1}", kToolObject), "\"{'a': 1}\"");
  EXPECT_EQ(typed_json("5", kToolInteger | kToolString), "5");
  EXPECT_EQ(typed_json("", kToolInteger), "\"\"");
}

TEST(ToolCalls, TypesOfParameters) {
  EXPECT_EQ(schemas().types_of("f", "s"), kToolString);
  EXPECT_EQ(schemas().types_of("f", "z"), kToolString | kToolNull);
  EXPECT_EQ(schemas().types_of("f", "e"), kToolInteger | kToolString);
  EXPECT_EQ(schemas().types_of("f", "u"), kToolInteger | kToolString);
  EXPECT_EQ(schemas().types_of("f", "r"), kToolObject);
  EXPECT_EQ(schemas().types_of("f", "bomb"), kToolString);  // and soon
  EXPECT_EQ(schemas().types_of("f", "loop"), kToolString);
  EXPECT_EQ(schemas().types_of("f", "any"), kToolString);
  EXPECT_EQ(schemas().types_of("f", "unknown"), kToolString);
  EXPECT_EQ(schemas().types_of("g", "whatever"), kToolInteger);
  EXPECT_EQ(schemas().types_of("nobody", "s"), kToolString);
}

TEST(ToolCalls, StringsStreamAndTheNameComesFirst) {
  QwenCallParser parser(schemas());
  EXPECT_EQ(shown(parser.push("<tool_call>\n<function=f>")), "[f ");
  EXPECT_EQ(shown(parser.push("\n<parameter=s>")), R"({"s": ")");
  EXPECT_EQ(shown(parser.push("\nab")), "ab");
  EXPECT_EQ(shown(parser.push("c\n")), "c");
  EXPECT_EQ(shown(parser.push("</param")), "");
  EXPECT_EQ(shown(parser.push("eter>")), "\"");
  EXPECT_EQ(shown(parser.push("<parameter=i>4")), "");
  EXPECT_EQ(shown(parser.push("2</parameter>")), R"(, "i": 42)");
  EXPECT_TRUE(parser.in_call());
  EXPECT_EQ(shown(parser.push("</function>")), "}]");
  EXPECT_FALSE(parser.in_call());
}

// However an answer is cut into pieces, what comes out is the same.
// Token by token, as a model writes it: searching all that was held again and again took seconds here.
TEST(ToolCalls, VeryLongCallsCostWhatTheyAreLong) {
  const std::string value(1'000'000, '<');
  const std::string text =
      std::string(1'000'000, '\n') + R"({"name": "f", "arguments": {"s": ")" + value + R"("}})";
  QwenCallParser parser(schemas());
  std::string out = shown(parser.push("<tool_call>"));
  const auto start = std::clock();
  for (std::size_t at = 0; at < text.size(); at += 4)
    out += shown(parser.push(std::string_view(text).substr(at, 4)));
  out += shown(parser.push("</tool_call>"));
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 20);
  EXPECT_EQ(out, "[f {\"s\": \"" + value + "\"}]");
}

TEST(ToolCalls, CutsDoNotMatter) {
  const std::vector<std::string> words = {"<tool_call>",
                                          "</tool_call>",
                                          "<function=f>",
                                          "</function>",
                                          "<parameter=s>",
                                          "<parameter=i>",
                                          "</parameter>",
                                          "\n",
                                          " ",
                                          "x",
                                          "42",
                                          "<",
                                          ">",
                                          "/",
                                          "{\"name\": \"f\", \"arguments\": {}}",
                                          "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"a",
                                          "\"}}</tool_call>",
                                          "\\",
                                          "é",
                                          "\"",
                                          "<function=",
                                          "< parameter = n >"};
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    std::string text;
    for (std::uint64_t i = random.below(14); i > 0; --i) text += words[random.below(words.size())];
    const bool cut_off = random.below(2) == 0;
    const std::string whole = read(text, cut_off);
    QwenCallParser parser(schemas());
    std::string pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + random.below(6);
      pieces += shown(parser.push(std::string_view(text).substr(at, size)));
      at += size;
    }
    pieces += shown(parser.finish(cut_off));
    ASSERT_EQ(pieces, whole) << "seed " << seed << ": " << text;
    // Outside an answer that was cut off, every call's arguments are an object.
    if (cut_off) continue;
    QwenCallParser again(schemas());
    std::string arguments;
    auto events = again.push(text);
    for (ToolEvent& event : again.finish(false)) events.push_back(std::move(event));
    for (const ToolEvent& event : events) {
      if (event.kind == ToolEvent::Kind::begin) arguments.clear();
      if (event.kind == ToolEvent::Kind::arguments) arguments += event.text;
      if (event.kind != ToolEvent::Kind::end) continue;
      ASSERT_TRUE(jinja::parse_json(arguments, "a", jinja::JsonRules::request).is_dict()) << text;
    }
  }
}

}  // namespace
}  // namespace fourfold::text
