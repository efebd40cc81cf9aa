// What golden files cannot hold: limits, hostile templates, lines of errors, exact numbers.
#include "text/jinja/evaluator.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/jinja/json_value.h"
#include "text/jinja/python_text.h"

namespace fourfold::text::jinja {
namespace {

// "+" and the text, or "-" and the error.
std::string outcome(std::string_view source, const Limits& limits = {}) {
  try {
    const Body body = parse_template(source, "t");
    return "+" + Evaluator("t", limits, {}).render(body, Dict());
  } catch (const Error& error) {
    return std::string("-") + error.what();
  }
}

bool fails_with(std::string_view source, std::string_view part, const Limits& limits = {}) {
  const std::string text = outcome(source, limits);
  const bool found = text[0] == '-' && text.find(part) != std::string::npos;
  if (!found) ADD_FAILURE() << text.substr(0, 300);
  return found;
}

std::string repeat(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(Evaluator, BoundsEndlessWork) {
  const std::string loops = repeat("{% for a in range(100000) %}", 3) + "x" + repeat("{% endfor %}", 3);
  EXPECT_TRUE(fails_with(loops, "steps"));
  EXPECT_TRUE(fails_with("{{ range(100001) }}", "range"));
  EXPECT_TRUE(fails_with("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested deeper"));
  EXPECT_TRUE(fails_with("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested deeper"));
}

TEST(Evaluator, BoundsMemory) {
  EXPECT_TRUE(fails_with("{{ 'a' * 1000000000000 }}", "-t line 1"));
  EXPECT_TRUE(fails_with("{{ [1] * 1000000000 }}", "limit"));
  EXPECT_TRUE(
      fails_with("{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s "
                 "%}{% endfor %}",
                 "limit"));
  EXPECT_TRUE(
      fails_with("{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = "
                 "ns.s.replace('a', 'aaaaaaaaaaaaaaaaaaaa') %}{% endfor %}",
                 "limit"));
  EXPECT_TRUE(fails_with("{{ 'a'.ljust(99999999999) }}", "limit"));
  EXPECT_TRUE(fails_with("{{ '%99999999d' % 1 }}", "width"));
  EXPECT_TRUE(fails_with("{{ '{:99999999}'.format(1) }}", "width"));
  EXPECT_TRUE(fails_with("{% for i in range(1000) %}{{ 'x' * 1000 }}{% endfor %}", "bytes",
                         {.output_bytes_max = 100'000}));
}

TEST(Evaluator, BoundsDepth) {
  EXPECT_TRUE(fails_with("{{ " + repeat("(", 5000) + "1" + repeat(")", 5000) + " }}", "nested deeper"));
  EXPECT_TRUE(fails_with("{{ " + repeat("not ", 5000) + "1 }}", "nested deeper"));
  EXPECT_TRUE(fails_with("{{ 1" + repeat(" + 1", 5000) + " }}", "levels"));
  EXPECT_TRUE(fails_with("{{ x" + repeat(".a", 5000) + " }}", "levels"));
  EXPECT_TRUE(fails_with(repeat("{% if 1 %}", 5000), "nested deeper"));
  EXPECT_TRUE(
      fails_with("{% set ns = namespace(x=1) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}",
                 "nests deeper"));
  EXPECT_TRUE(fails_with(
      "{% set ns = namespace(x='a') %}{% for i in range(5000) %}{% set ns.x = {'k': ns.x} %}{% endfor %}",
      "nests deeper"));
  EXPECT_EQ(outcome("{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.m = ns.self.self %}ok"),
            "+ok");
}

TEST(Evaluator, OffersNoWayOut) {
  EXPECT_TRUE(fails_with("{{ ''.__class__ }}", "__class__"));
  EXPECT_TRUE(fails_with("{{ ''['__class__'] }}", "__class__"));
  EXPECT_TRUE(fails_with("{{ [].append(1) }}", "append"));
  EXPECT_TRUE(fails_with("{{ {}.update({'a': 1}) }}", "update"));
  EXPECT_TRUE(fails_with("{% include 'x' %}", "include"));
  EXPECT_TRUE(fails_with("{% import 'x' as y %}", "import"));
}

TEST(Evaluator, NamesTheLineOfAFault) {
  EXPECT_TRUE(fails_with("a\n\n{{ 1 +\n missing.x }}", "t line 4: 'missing' is undefined"));
  EXPECT_TRUE(fails_with("\n{{ 1 | nosuch }}", "t line 2: there is no filter named 'nosuch'"));
  EXPECT_TRUE(fails_with("\n{{ 1 is nosuch }}", "t line 2: there is no test named 'nosuch'"));
  EXPECT_TRUE(fails_with("x\n{{ 'abc }}", "t line 2: a string is not closed"));
  EXPECT_TRUE(fails_with("{% if 1 %}\n", "'endif' was expected"));
  EXPECT_TRUE(fails_with("{{ 9223372036854775807 + 1 }}", "64 bits"));
  EXPECT_TRUE(fails_with("{{ 1 // 0 }}", "division by zero"));
  EXPECT_TRUE(fails_with("\xFF", "UTF-8"));
}

TEST(PythonText, WritesFloatsAsPythonDoes) {
  EXPECT_EQ(real_text(1.0), "1.0");
  EXPECT_EQ(real_text(0.1), "0.1");
  EXPECT_EQ(real_text(1e16), "1e+16");
  EXPECT_EQ(real_text(9999999999999998.0), "9999999999999998.0");
  EXPECT_EQ(real_text(0.0001), "0.0001");
  EXPECT_EQ(real_text(0.00001), "1e-05");
  EXPECT_EQ(real_text(-0.0), "-0.0");
  EXPECT_EQ(real_text(5e-324), "5e-324");
  EXPECT_EQ(real_text(1.7976931348623157e308), "1.7976931348623157e+308");
}

TEST(JsonValue, ReadsNumbersExactlyAndKeepsOrder) {
  const Value value = parse_json(
      R"({"z": 0.1, "a": 9007199254740993, "n": [1e2, -0.0, 1E400], "u": "\ud83d\ude00\u00e9"})", "x");
  EXPECT_EQ(
      to_json(value),
      "{\"z\": 0.1, \"a\": 9007199254740993, \"n\": [100.0, -0.0, Infinity], \"u\": \"\U0001F600\u00e9\"}");
}

TEST(JsonValue, SaysWhereItIsWrong) {
  const std::string deep = repeat("[", 100) + repeat("]", 100);
  for (const std::string& bad :
       {std::string("{"), std::string("[1,]"), std::string("{\"a\" 1}"), std::string("01"),
        std::string("\"\x01\""), std::string("\"\\x\""), std::string("99999999999999999999"),
        std::string("1 2"), deep, std::string("\"\xFF\"")}) {
    try {
      parse_json(bad, "messages");
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_request);
      EXPECT_NE(std::string(error.what()).find("messages: not JSON at byte"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace fourfold::text::jinja
