// Forms made to cost: each must be compiled or refused soon, and pay for its time in steps of the budget, so
// that none can run on unnoticed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/thread_time.h"
#include "tests/constrain/accepts.h"

namespace fourfold::constrain {
namespace {

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// Items written by a function of their number, between commas (or another mark).
template <class Item>
std::string list(int count, const Item& item, std::string_view mark = ",") {
  std::string out;
  for (int i = 0; i < count; ++i) out += (i == 0 ? "" : std::string(mark)) + item(i);
  return out;
}

std::string number(int value) { return std::to_string(value); }
std::string quoted(const std::string& text) { return "\"" + text + "\""; }

double cpu_seconds() { return std::chrono::duration<double>(thread_cpu_time()).count(); }

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr double kSlower = 20;
#else
constexpr double kSlower = 1;
#endif

enum class Kind { regex, schema, tools, json_tools };

// Some 0.25 s is what 40 million steps take; five times as much is a machine, more is a fault. A loop that
// forgets to pay has a step that seems to take long.
void expect_bounded(Kind kind, const std::string& name, const std::string& form) {
  constexpr double seconds_max = 1.5 * kSlower, step_seconds_max = 60e-9 * kSlower;
  std::int64_t looks = 0;
  Limits limits;
  limits.cpu_time_max = std::chrono::hours(1);
  limits.cancelled = [&] {
    ++looks;
    return false;
  };
  std::string said = "compiled";
  const double start = cpu_seconds();
  try {
    if (kind == Kind::regex) compile_regex(form, limits);
    if (kind == Kind::schema) compile_json_schema(form, limits);
    if (kind == Kind::tools) compile_tool_calls(form, {}, limits);
    if (kind == Kind::json_tools) compile_tool_calls(form, {.format = text::CallFormat::json}, limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_request) << name;
    said = std::string(error.what()).substr(0, 100);
  }
  const double seconds = cpu_seconds() - start;
  std::printf("%-24s %6.0f ms %5.1f million steps: %s\n", name.c_str(), seconds * 1e3,
              static_cast<double>(looks) / 10, said.c_str());
  EXPECT_LT(seconds, seconds_max) << name;
  EXPECT_LT(seconds, 0.02 * kSlower + static_cast<double>(looks + 1) * 1e5 * step_seconds_max) << name;
}

TEST(Hostile, Expressions) {
  const std::pair<const char*, std::string> patterns[] = {
      {"repeats of nothing", "a((((){9999}){9999}){9999}){9999}"},
      {"empty alternatives", repeated("(()|()|()){9999}", 100)},
      {"repeats of no count", repeated("(a{0}){9999}", 200)},
      {"group names", repeated("(?<[>a)|", 16'000)},
      {"states that double", ".*a.{30}"},
      {"and of letters", "(a|b)*a(a|b){40}"},
      {"nested repeats", "((((a{100}){100}){100}){100}){100}"},
      {"nested deep", repeated("(", 199) + "a" + repeated("){2}", 199)},
      {"optional parts", "((a?){1000}){1000}"},
      {"loops in loops", "(x+x+)+y{1,10000}(.*z){900}"},
      {"many loops", repeated(".*", 50'000)},
      {"many options", repeated(".?", 5'000)},
      {"counted letters", "(\\p{L}{1,100}){1,100}"},
      {"counted complement", "[^\\p{L}]{5000}"},
      {"many classes", repeated("[\\p{L}\\p{N}\\W]", 40'000)},
      {"classes of nothing", repeated("[]{9999}", 1'000)},
      {"one large class", "[" + repeated("\xE4\xB8\x80\xE4\xBA\x80", 150'000) + "]"},
      {"open names", repeated("\\p{", 300'000)},
      {"open counts", repeated("a{", 500'000)},
      {"counts without end", repeated("a{9999,", 100'000)},
      {"bars", std::string(1 << 20, '|')},
      {"a long word", std::string(1 << 20, 'a')},
      {"many words", list(
                         100'000, [](int i) { return "w" + number(i); }, "|")},
      {"words anywhere", list(
                             2'000, [](int i) { return ".*" + number(i) + ".*"; }, "|")},
      {"look-alikes", list(
                          3'000, [](int i) { return "[ab]{20}" + number(i); }, "|")},
      {"starts", repeated("(^|a)", 5'000)},
      {"ends", repeated("(a|$)", 5'000)},
      {"look-aheads",
       list(
           20, [](int i) { return "(?=.*" + std::string(1, static_cast<char>('a' + i)) + ")"; }, "") +
           ".*"},
      {"nested look-aheads", "(((((?=a)b){16}){16}){16}){16}"},
      {"deep look-aheads", repeated("(?=", 199) + "a" + repeated(")", 199) + ".*"},
      {"a look-ahead that doubles", "(?!.*a.{12}).{40}"},
      {"a long dot", ".{10000}"},
  };
  for (const auto& [name, pattern] : patterns) expect_bounded(Kind::regex, name, pattern);
}

std::string enumeration(int count, const std::string& prefix) {
  return R"({"enum": [)" + list(count, [&](int i) { return quoted(prefix + number(i)); }) + "]}";
}

std::string properties(int count, const std::string& schema, const std::string& prefix = "p") {
  return R"("properties": {)" +
         list(count, [&](int i) { return quoted(prefix + number(i)) + ": " + schema; }) + "}";
}

void expect_bounded_schemas(const std::vector<std::pair<const char*, std::string>>& schemas) {
  for (const auto& [name, schema] : schemas) expect_bounded(Kind::schema, name, schema);
}

TEST(Hostile, Values) {
  const std::string long_text = quoted(std::string(200, 'x'));
  const auto object = [&](int i) { return R"({"k": )" + long_text + R"(, "i": )" + number(i) + "}"; };
  const auto other = [&](int i) { return R"({"i": -)" + number(i + 1) + R"(, "k": )" + long_text + "}"; };
  const auto with_constants = [](int value) {
    return R"({"type": "object", "required": [)" + list(100, [](int i) { return quoted("k" + number(i)); }) +
           "], " + properties(100, R"({"const": )" + number(value) + "}", "k") + "}";
  };
  const auto range = [](int i) {
    return R"({"anyOf": [{"minimum": )" + number(i) + R"(}, {"maximum": -)" + number(i) + "}]}";
  };
  expect_bounded_schemas({
      {"10,000 values", enumeration(10'000, "value number ")},
      {"90,000 values", enumeration(90'000, "v")},
      {"lists that exclude",
       R"({"oneOf": [)" + list(10, [](int i) { return enumeration(3'000, number(i) + "_"); }) + "]}"},
      {"objects that exclude", R"({"oneOf": [)" + list(60, with_constants) + "]}"},
      {"lists in common",
       R"({"allOf": [)" + enumeration(20'000, "a") + ", " + enumeration(20'000, "b") + "]}"},
      {"large values in common",
       R"({"allOf": [{"enum": [)" + list(1'500, object) + R"(]}, {"enum": [)" + list(1'500, other) + "]}]}"},
      {"products of alternatives", R"({"allOf": [)" + list(9, range) + "]}"},
      {"many parts",
       R"({"allOf": [)" + list(50'000, [](int) { return std::string(R"({"minLength": 1})"); }) + "]}"},
      {"multiples at once", R"({"allOf": [{"multipleOf": 997}, {"multipleOf": 991}, {"multipleOf": 983}]})"},
      {"deep values",
       R"({"enum": [)" + list(2'000, [](int) { return repeated("[", 90) + repeated("]", 90); }) + "]}"},
  });
}

TEST(Hostile, References) {
  const auto definitions = [](int count, const auto& schema) {
    return R"({"$ref": "#/$defs/d0", "$defs": {)" +
           list(count, [&](int i) { return quoted("d" + number(i)) + ": " + schema(i); }) + "}}";
  };
  const auto reference = [](int i) { return R"({"$ref": "#/$defs/d)" + number(i) + "\"}"; };
  const auto twice = [&](int i) {
    return i == 30 ? std::string(R"({"type": "null"})")
                   : R"({"anyOf": [)" + reference(i + 1) + "," + reference(i + 1) + "]}";
  };
  const auto all = [&](int) {
    return R"({"type": "object", "properties": {)" +
           list(100, [&](int j) { return quoted("p" + number(j)) + ": " + reference(j); }) + "}}";
  };
  const auto next = [](int i) { return R"({"minimum": 0, "$ref": "#/$defs/d)" + number(i + 1) + "\"}"; };
  const auto by_number = [](int) { return std::string(R"({"$ref": "#/prefixItems/19999"})"); };
  expect_bounded_schemas({
      {"ways that double", definitions(31, twice)},
      {"a web of references", definitions(100, all)},
      {"a chain of references", definitions(2'000, next)},
      {"references by number", R"({"anyOf": [)" + list(500, by_number) + R"(], "prefixItems": [)" +
                                   list(20'000, [](int) { return std::string("{}"); }) + "]}"},
  });
}

TEST(Hostile, Members) {
  const auto bounded = [](int i) {
    return quoted("p" + number(i)) + R"(: {"allOf": [{"$ref": "#/$defs/b"}, {"minimum": )" + number(i) +
           "}]}";
  };
  expect_bounded_schemas({
      {"alternatives of objects",
       R"({"anyOf": [)" +
           list(300, [](int j) { return "{" + properties(60, "{}", "p" + number(j) + "_") + "}"; }) + "]}"},
      {"optional members", R"({"type": "object", )" + properties(2'000, R"({"type": "string"})") + "}"},
      {"long names", "{" + properties(2'000, "{}", std::string(300, 'k')) + "}"},
      {"rules for each member",
       R"({"$defs": {"b": {"type": "integer"}}, "properties": {)" + list(2'000, bounded) + "}}"},
      {"required members", R"({"additionalProperties": {"type": "integer"}, "required": [)" +
                               list(2'000, [](int i) { return quoted("r" + number(i)); }) + "]}"},
      {"names that double",
       R"({"patternProperties": {"a.{8}$": {}, ".*b.{8}$": {}, "c.{8}$": {}, "d.{8}": {}}})"},
      {"names of a list", R"({"type": "object", "propertyNames": )" + enumeration(1'900, "n") + "}"},
      {"names of a pattern",
       R"({"type": "object", "propertyNames": {"pattern": ".*a.{12}$", "maxLength": 90}, )" +
           properties(500, "{}") + "}"},
      {"unknown keywords", "{" + list(60'000, [](int i) { return quoted("k" + number(i)) + ": 0"; }) + "}"},
  });
}

TEST(Hostile, ArraysAndText) {
  const auto distinct = [](int count, const std::string& more) {
    return R"({"type": "array", "uniqueItems": true, )" + more + R"("items": )" + enumeration(count, "u") +
           "}";
  };
  expect_bounded_schemas({
      {"distinct of many", distinct(5'000, "")},
      {"distinct of a few", distinct(10, "")},
      {"distinct pairs", distinct(44, R"("maxItems": 2, )")},
      {"long arrays", R"({"type": "array", "minItems": 1000, "maxItems": 100000, "items": {"type": "array",
                          "items": {"type": "string", "maxLength": 1000}, "maxItems": 100000}})"},
      {"arrays in arrays",
       R"({"minItems": 100000, "items": {"minItems": 99999, "items": {"minItems": 99998}}})"},
      {"long text of a pattern", R"({"pattern": "^(a|b)*a(a|b){10}$", "maxLength": 100000})"},
      {"patterns at once",
       R"({"allOf": [)" + list(12, [](int i) { return R"({"pattern": "a.{)" + number(i + 1) + "}b\"}"; }) +
           "]}"},
  });
}

TEST(Hostile, Tools) {
  const auto tools = [](int count, const std::string& parameters) {
    return "[" +
           list(count,
                [&](int i) {
                  return R"({"type": "function", "function": {"name": "f)" + number(i) +
                         R"(", "parameters": )" + parameters + "}}";
                }) +
           "]";
  };
  for (const Kind kind : {Kind::tools, Kind::json_tools}) {
    expect_bounded(kind, "many parameters", tools(400, "{" + properties(60, R"({"type": "string"})") + "}"));
    expect_bounded(kind, "long parameters",
                   tools(100, "{" + properties(6, R"({"type": "string", "maxLength": 3000})") + "}"));
    const std::string any = R"({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "array"}]})";
    expect_bounded(kind, "many kinds",
                   tools(128, R"({"additionalProperties": true, )" + properties(20, any) + "}"));
  }
}

// What was sent to the server as an attack, and its cousins, is cheap enough to be served.
TEST(Hostile, NothingRepeatedIsNothing) {
  for (const char* pattern : {"a((((){9999}){9999}){9999}){9999}", "a(()|()){9999}", "a(b{0}){9999}"}) {
    const auto grammar = compile_regex(pattern);
    EXPECT_TRUE(accepts(*grammar, "a")) << pattern;
    EXPECT_FALSE(accepts(*grammar, "ab")) << pattern;
  }
}

}  // namespace
}  // namespace fourfold::constrain
