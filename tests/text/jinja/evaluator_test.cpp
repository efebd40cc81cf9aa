// What golden files cannot hold: limits, hostile templates, lines of errors, exact numbers.
#include "text/jinja/evaluator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/thread_time.h"
#include "tests/support/hash_collisions.h"
#include "text/jinja/json_value.h"
#include "text/jinja/python_text.h"

namespace fourfold::text::jinja {
namespace {

// "+" and the text, or "-" and the error.
std::string outcome(std::string_view source, const Limits& limits = {}) {
  try {
    const Body body = parse_template(source, "t");
    return "+" + Evaluator("t", limits, {}).render(body, Dict()).bytes();
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

double seconds_of(const std::function<void()>& work) {
  const auto begin = thread_cpu_time();
  work();
  return std::chrono::duration<double>(thread_cpu_time() - begin).count();
}

// A megabyte that came with a request, and texts made to be searched slowly.
const Dict& long_texts() {
  static const Dict made = [] {
    constexpr std::size_t kSize = 1 << 20;
    Dict out, keys;
    out.set("x", std::string(kSize, 'a'));
    out.set("y", std::string(kSize, 'a'));
    out.set("half", std::string(kSize / 2, 'a') + "b");
    out.set("half_b", "b" + std::string(kSize / 2, 'a'));
    out.set("words", repeat("a ", kSize / 2));
    out.set("many", Value::list(std::vector<Value>(1000, Value(std::string(2000, 'a') + "b"))));
    for (int i = 0; i < 2000; ++i) keys.set(std::string(500, 'k') + std::to_string(i), i);
    out.set("keys", std::move(keys));
    return out;
  }();
  return made;
}

std::string outcome_with_texts(std::string_view source, const Limits& limits) {
  try {
    const Body body = parse_template(source, "t");
    return "+" + Evaluator("t", limits, {}).render(body, long_texts()).bytes().substr(0, 100);
  } catch (const Error& error) {
    return std::string("-") + error.what();
  }
}

// What looks at a long text costs by its bytes: a hundred thousand rounds of it are no hundred thousand
// steps.
TEST(Evaluator, BillsTheBytesItLooksAt) {
  for (const char* expression : {"x.find('b')",
                                 "x.rfind('b')",
                                 "x.count('b')",
                                 "'b' in x",
                                 "x == y",
                                 "x != y",
                                 "x < y",
                                 "x.replace('b', 'c')",
                                 "x.split('b')",
                                 "words.split()",
                                 "x.strip()",
                                 "x.startswith('b', 5)",
                                 "x.upper()",
                                 "x | length",
                                 "x[7]",
                                 "x[5:6]",
                                 "x[::-1]",
                                 "[x] == [y]",
                                 "[x, 1] < [y, 2]",
                                 "x in [y]",
                                 "[y].index(x)",
                                 "[y].count(x)",
                                 "x | trim",
                                 "x is lower",
                                 "x is eq(y)",
                                 "x | tojson",
                                 "x ~ 'a'",
                                 "x + 'a'",
                                 "'%s' % x",
                                 "'{}'.format(x)",
                                 "[x] | string",
                                 "x | wordcount",
                                 "x.partition('b')",
                                 "x.splitlines()",
                                 "x.isalpha()",
                                 "x.islower()",
                                 "x | indent",
                                 "keys | tojson",
                                 "many | sort | first",
                                 "many | unique | list",
                                 "many | join",
                                 "many | map('upper') | list",
                                 "many | max",
                                 "{x: 1}[y]",
                                 "keys == keys.copy()",
                                 "x | int",
                                 "x | replace('b', 'c')",
                                 "x.removesuffix(y)",
                                 "x.center(3)",
                                 "many | groupby('nothing', default=1)",
                                 "keys | dictsort | first",
                                 "dict(keys)",
                                 "x | escape",
                                 "x | title"}) {
    const std::string source =
        fourfold::format("{% for i in range(100000) %}{% set r = {} %}{% endfor %}", expression);
    std::string result;
    const double took = seconds_of(
        [&] { result = outcome_with_texts(source, {.steps_max = 200'000, .bytes_max = 64 << 20}); });
    EXPECT_TRUE(result.find("steps") != std::string::npos || result.find("limit") != std::string::npos)
        << expression << ": " << result;
    EXPECT_LT(took, 10) << expression;
  }
}

// Each of them once: the time grows with the text, not with its square.
TEST(Evaluator, SearchesInLinearTime) {
  for (const char* expression :
       {"words.split() | length", "words.rsplit() | length", "x.find(half)", "x.rfind(half_b)",
        "x.count(half)", "half in x", "x.split(half) | length", "x.rsplit(half_b) | length",
        "x.replace(half, 'c') | length", "x.strip(words) | length", "words.split(' ', 400000) | length",
        "x.partition(half) | length", "words.replace('a', 'bb') | length", "x.rpartition(half_b) | length"}) {
    std::string result;
    const double took =
        seconds_of([&] { result = outcome_with_texts(fourfold::format("{{ {} }}", expression), {}); });
    EXPECT_EQ(result[0], '+') << expression << ": " << result;
    EXPECT_LT(took, 5) << expression;
  }
}

// Lists of which each holds the one before twice: a walk over the last would take 2^60 steps.
TEST(Evaluator, BillsWhatAValueUnfoldsTo) {
  const std::string doubled =
      "{% set n = namespace(a=['x'], b=('x',)) %}{% for i in range(60) %}{% set n.a = [n.a, "
      "n.a] %}{% set n.b = (n.b, n.b) %}{% endfor %}{% set m = namespace(a=['x']) %}{% for i in "
      "range(60) %}{% set m.a = [m.a, m.a] %}{% endfor %}";
  for (const char* last :
       {"{{ n.a == m.a }}", "{{ n.a | tojson }}", "{{ n.a }}", "{{ {n.b: 1} }}", "{{ n.b in {1: 2} }}",
        "{{ [m.a].index(n.a) }}", "{{ n.a ~ '' }}", "{{ '%r' % [n.a] }}", "{{ [n.b] | unique | list }}",
        "{{ n.a < m.a }}", "{{ n.a is eq(m.a) }}", "{{ [n.a, m.a] | max }}", "{{ [n.a] | join }}"})
    EXPECT_TRUE(fails_with(doubled + last, "steps")) << last;
}

// A name is found among as many variables as a request may bring; each costs one look.
TEST(Evaluator, FindsNamesAmongManyVariables) {
  Dict variables;
  for (int i = 0; i < 200'000; ++i) variables.set("name" + std::to_string(i), i);
  std::string out;
  const double took = seconds_of([&] {
    out = Evaluator("t", {}, {})
              .render(
                  parse_template("{% for i in range(20000) %}{{ name77777 }}{{ nothing }}{% endfor %}", "t"),
                  variables)
              .bytes();
  });
  EXPECT_EQ(out.size(), 100'000u);
  EXPECT_LT(took, 5);
}

TEST(Evaluator, ShortensWhatATemplateRaises) {
  const std::string text = outcome_with_texts("{{ raise_exception(x) }}", {});
  EXPECT_LT(text.size(), 2'200u);
  EXPECT_TRUE(text.ends_with("..."));
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

// What a template shows of integers beyond 64 bits.
std::string shown_with_wide(std::string_view source) {
  Dict variables;
  for (const auto& [name, digits] :
       {std::pair("x", "98765432109876543210"), std::pair("y", "98765432109876543211"),
        std::pair("minus", "-98765432109876543210"), std::pair("longer", "100000000000000000000"),
        std::pair("below", "-9223372036854775809"), std::pair("least", "-9223372036854775808"),
        std::pair("above", "9223372036854775808"), std::pair("most", "9223372036854775807")})
    variables.set(name, parse_json(digits, "t"));
  const Body body = parse_template(source, "t");
  return Evaluator("t", {}, {}).render(body, variables).bytes();
}

// As Python's integers, which have no end. What is computed from them, as a sum, is rounded, where Python
// would be exact; the tests below say how they are compared and formatted.
TEST(JsonValue, IntegersBeyond64BitsKeepTheirDigits) {
  const std::string digits = "98765432109876543210";
  const std::string list =
      fourfold::format("[{}, -{}, 9223372036854775808, 1{}]", digits, digits, std::string(400, '0'));
  EXPECT_EQ(to_json(parse_json(list, "t")), list);
  EXPECT_EQ(to_repr(parse_json(list, "t")), list);
  for (const JsonRules rules : {JsonRules::python, JsonRules::request, JsonRules::answer})
    EXPECT_EQ(to_json(parse_json(digits, "t", rules)), digits);
  const auto shown = shown_with_wide;
  for (const char* same : {"{{ x }}", "{{ x | tojson }}", "{{ x | string }}", "{{ x | int }}", "{{ x ~ '' }}",
                           "{{ '%s' % x }}", "{{ '%d' % x }}", "{{ '{}'.format(x) }}"})
    EXPECT_EQ(shown(same), digits) << same;
  EXPECT_EQ(shown("{{ {x: 1} | tojson }}"), "{\"" + digits + "\": 1}");
  EXPECT_EQ(shown("{{ x is integer }} {{ x is float }} {{ x is number }} {{ x > 9223372036854775807 }}"),
            "True False True True");
  EXPECT_EQ(shown("{{ x + 1 }}"), "9.876543210987654e+19");
  EXPECT_THROW(shown("{{ '%d' % (x + 1) }}"), Error);
}

// With one another by their digits, with integers of 64 bits by the sign alone, with a float as the nearest.
TEST(JsonValue, IntegersBeyond64BitsAreCompared) {
  for (const char* holds :
       {"x == x",
        "x != y",
        "x < y",
        "y > x",
        "x < longer",
        "minus < x",
        "-longer < minus",
        "x in [y, x]",
        "x not in [y, -x]",
        "x not in {y: 1}",
        "x is ne y",
        "x is lt y",
        "x is not sameas y",
        "[x] != [y]",
        "below != least",
        "below < least",
        "least > below",
        "above != most",
        "above > most",
        "most < above",
        "above > true",
        "minus < false",
        "below < 0",
        "x == x | float",
        "x > 1.5",
        "minus < 1.5",
        "[x, y, x] | unique | list | length == 2",
        "{x: 1, y: 2} | length == 2",
        "[y, 1, x, longer, minus, 2.5, below, least] | sort == [minus, below, least, 1, 2.5, x, y, longer]"})
    EXPECT_EQ(shown_with_wide(fourfold::format("{{ {} }}", holds)), "True") << holds;
}

// As Python 3.11 does; to other bases than ten they are not written here.
TEST(JsonValue, IntegersBeyond64BitsAreFormatted) {
  for (const auto& [expression, text] : std::initializer_list<std::pair<const char*, const char*>>{
           {"'{:25}|{:<25}|'.format(x, x)", "     98765432109876543210|98765432109876543210     |"},
           {"'{:,}|{:>28,}'.format(x, minus)", "98,765,432,109,876,543,210| -98,765,432,109,876,543,210"},
           {"'{:+}|{:030}|{:030}'.format(x, x, minus)",
            "+98765432109876543210|000000000098765432109876543210|-00000000098765432109876543210"},
           {"'{:d}|{:n}|{:.2f}|{:e}'.format(x, minus, x, x)",
            "98765432109876543210|-98765432109876543210|98765432109876543488.00|9.876543e+19"},
           {"'{!s:.3}|{!r:25}|'.format(x, x)", "987|98765432109876543210     |"},
           {"'%25d|%-25d|%+d|%.22d' % (x, x, x, minus)",
            "     98765432109876543210|98765432109876543210     |+98765432109876543210|"
            "-0098765432109876543210"},
           {"'%.3d|%05.3d|%.2d' % (5, -5, 123)", "005|-0005|123"}})
    EXPECT_EQ(shown_with_wide(fourfold::format("{{ {} }}", expression)), text) << expression;
  for (const char* refused :
       {"'{:.3}'.format(x)", "'{:.3d}'.format(x)", "'{:.3}'.format(5)", "'{:x}'.format(x)", "'%x' % x"})
    EXPECT_THROW(shown_with_wide(fourfold::format("{{ {} }}", refused)), Error) << refused;
}

// 920 KB of names that std::hash cannot tell apart cost 218 seconds once.
TEST(JsonValue, NamesThatCollideAreNames) {
  const std::vector<std::string> names = test::murmur_collisions(40'000);
  const std::string text = R"({"metadata": )" + test::object_of(names) + "}";
  Value value;
  EXPECT_LT(seconds_of([&] { value = parse_json(text, "t", JsonRules::request); }), 4);
  const Dict& dict = *value.dict()->find("metadata")->dict();
  EXPECT_EQ(dict.size(), names.size());
  EXPECT_LT(seconds_of([&] {
              const Dict copy = dict;
              for (const std::string& name : names) ASSERT_NE(copy.find(std::string_view(name)), nullptr);
            }),
            4);
  EXPECT_EQ(dict.find("none of them"), nullptr);
}

// Keys of all kinds, in the order they came, few and many.
TEST(JsonValue, DictsKeepOrderAndTheLastOfEqualKeys) {
  for (const int count : {3, 8, 9, 100}) {
    Dict dict;
    for (int i = 0; i < count; ++i) {
      dict.set("k" + std::to_string(i), i);
      if (i % 3 == 0) dict.set(i, -i);
    }
    for (int i = 0; i < count; i += 2) dict.set("k" + std::to_string(i), 1000 + i);
    const Dict copy = dict;
    dict = Dict();
    std::size_t at = 0;
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(copy.items()[at].first.text(), "k" + std::to_string(i));
      EXPECT_EQ(copy.items()[at++].second.integer(), i % 2 == 0 ? 1000 + i : i);
      EXPECT_EQ(copy.find(Value("k" + std::to_string(i)))->integer(), i % 2 == 0 ? 1000 + i : i);
      if (i % 3 == 0) {
        EXPECT_EQ(copy.items()[at++].first.integer(), i);
        EXPECT_EQ(copy.find(Value(i))->integer(), -i);
      }
    }
    EXPECT_EQ(copy.size(), at);
    EXPECT_EQ(copy.find(Value("k" + std::to_string(count))), nullptr);
    EXPECT_EQ(copy.find(Value(count * 3)), nullptr);
  }
}

TEST(JsonValue, NumbersNoDoubleCanHold) {
  const std::string zeros(400, '0');
  for (const std::string& tiny : {"0." + zeros + "1", std::string("1e-400"), std::string("1E-400"),
                                  "0." + zeros + "1e50", "-0." + zeros + "1", "1" + zeros + "e-900",
                                  std::string("0.1e-99999999999999999999"), "0." + zeros + "12345e-3"}) {
    const Value value = parse_json(tiny, "t", JsonRules::request);
    EXPECT_EQ(value.real(), 0) << tiny;
    EXPECT_EQ(std::signbit(value.real()), tiny[0] == '-');
  }
  for (const std::string& huge : {std::string("1e400"), "1" + zeros + ".0", "0." + zeros + "1e900",
                                  std::string("1e99999999999999999999"), "1" + zeros + "e-5"})
    EXPECT_THROW(parse_json(huge, "t", JsonRules::request), Error) << huge;
  EXPECT_EQ(parse_json("0." + zeros, "t", JsonRules::request).real(), 0);
  EXPECT_EQ(parse_json("1" + zeros + "e-400", "t", JsonRules::request).real(), 1);
}

// faults.md, row 4.
TEST(JsonValue, HalfASurrogatePairIsNoCharacter) {
  for (const char* text :
       {R"("\ud800")", R"("\udc00x")", R"("\ud83dx\ude00")", R"("\ud800\ud800")", R"({"\udfff": 1})"}) {
    EXPECT_THROW(parse_json(text, "t", JsonRules::request), Error) << text;
    EXPECT_NO_THROW(parse_json(text, "t")) << text;
  }
  EXPECT_EQ(parse_json(R"("\ud83d\ude00")", "t", JsonRules::request).text(), "\U0001F600");
}

TEST(JsonValue, SaysWhereItIsWrong) {
  const std::string deep = repeat("[", 100) + repeat("]", 100);
  for (const std::string& bad :
       {std::string("{"), std::string("[1,]"), std::string("{\"a\" 1}"), std::string("01"),
        std::string("\"\x01\""), std::string("\"\\x\""), std::string("1 2"), deep, std::string("\"\xFF\"")}) {
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

// 64 brackets are allowed and 65 are not, also where the innermost is empty.
TEST(Json, DepthIsExact) {
  const auto parse = [](int depth, const char* inside) {
    parse_json(repeat("[", depth) + inside + repeat("]", depth), "t");
  };
  EXPECT_NO_THROW(parse(64, "1"));
  EXPECT_NO_THROW(parse(64, ""));
  EXPECT_NO_THROW(parse(63, "{}"));
  EXPECT_THROW(parse(65, "1"), Error);
  EXPECT_THROW(parse(65, ""), Error);
  EXPECT_THROW(parse(64, "{}"), Error);
}

}  // namespace
}  // namespace fourfold::text::jinja
