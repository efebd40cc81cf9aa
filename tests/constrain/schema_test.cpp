#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "constrain/formats.h"
#include "constrain/schema_keywords.h"
#include "tests/constrain/accepts.h"

namespace fourfold::constrain {
namespace {

struct Case {
  const char* schema;
  std::vector<const char*> good, bad;
};

void try_cases(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    const auto grammar = compile_json_schema(one.schema);
    for (const char* text : one.good) EXPECT_TRUE(accepts(*grammar, text)) << one.schema << "\n" << text;
    for (const char* text : one.bad) EXPECT_FALSE(accepts(*grammar, text)) << one.schema << "\n" << text;
  }
}

TEST(Schema, AnyObject) {
  const auto grammar = compile_json_object();
  for (const char* text : {"{}", "{\"a\": [1, 2.5e-3, {\"b\": null}], \"c\": \"\\u00e9\\ud83d\\ude00\\n\"}",
                           "{\n  \"a\": {\n    \"b\": []\n  }\n}", "{\"a\":true,\"b\":\"\xE9\x9B\xAA\"}"})
    EXPECT_TRUE(accepts(*grammar, text)) << text;
  for (const char* text : {"", "[]", "1", "{", "{\"a\"}", "{\"a\":1,}", "{\"a\":01}", "{\"a\":\"\n\"}",
                           "{\"a\":\"\\ud800\"}", "{\"a\":\"\xFF\"}", "{} ", "{\"a\":.5}", "{\"a\":tru}"})
    EXPECT_FALSE(accepts(*grammar, text)) << text;
}

TEST(Schema, TypesAndConstants) {
  try_cases({
      {R"({"type": "string"})", {R"("")", R"("a\"b")"}, {"1", "null", "\"", "a"}},
      {R"({"type": ["integer", "null"]})", {"0", "-12", "null"}, {"1.0", "1e3", "\"\"", "-", "00"}},
      {R"({"type": "string", "nullable": true})", {R"("x")", "null"}, {"1"}},
      {R"({"type": "number"})", {"0", "-0.5", "1e10", "2.5E-3"}, {".5", "1.", "+1", "NaN"}},
      {R"({"type": "boolean"})", {"true", "false"}, {"True", "1"}},
      {R"({"enum": ["a\"b", 1, null, [1, {"x": 2}], 2.5]})",
       {R"("a\"b")", "1", "null", "[1, {\"x\": 2}]", "[1,{\"x\":2}]", "2.5"},
       {"2", "[1]", "\"a\""}},
      {R"({"type": "string", "enum": ["a", 1, "bcd"], "maxLength": 2})", {R"("a")"}, {"1", R"("bcd")"}},
      {R"({"type": "integer", "enum": [1, 5, 9], "minimum": 5})", {"5", "9"}, {"1"}},
      {R"({"const": {"k": []}})", {R"({"k":[]})", "{\n  \"k\": []\n}"}, {"{}"}},
      {"true", {"1", "[]", "{}"}, {""}},
      {"{}", {"\"x\"", "[[]]"}, {"nul"}},
  });
}

TEST(Schema, Strings) {
  try_cases({
      {R"({"minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("\u00e9\n\"")", "\"\xF0\x9F\x98\x80z\""},
       {R"("a")", R"("abcd")"}},
      {R"({"pattern": "^[a-z]+\\d?$"})", {R"("ab1")"}, {R"("")", R"("1")", R"("aB")"}},
      {R"({"pattern": "\\d"})", {R"("x1\n")", R"("1")"}, {R"("x")"}},
      {R"({"pattern": "^a|b$"})", {R"("ax")", R"("xb")"}, {R"("xay")"}},
      {R"({"pattern": "^(\"|\\\\)$"})", {R"("\"")", R"("\\")"}, {R"("x")"}},
      {R"({"pattern": "^a*$", "minLength": 2, "maxLength": 3})", {R"("aa")"}, {R"("a")", R"("aaaa")"}},
      {R"({"format": "date"})",
       {R"("2024-02-29")", R"("1999-12-31")"},
       {R"("2023-02-29")", R"("2100-02-29")", R"("2023-04-31")", R"("0000-01-01")", R"("23-1-1")"}},
      {R"({"format": "date-time"})", {R"("2026-11-15T21:00:00.5Z")"}, {R"("2026-11-15 21:00:00Z")"}},
      {R"({"format": "uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")"}},
      {R"({"format": "ipv4"})", {R"("192.168.0.1")"}, {R"("256.1.1.1")", R"("1.2.3")"}},
      {R"({"type": "integer", "format": "int32"})", {"2147483647", "-2147483648"}, {"2147483648"}},
      {R"({"format": "email"})", {R"("a.b@example.org")"}, {R"("a@")", R"("@b.c")"}},
  });
}

struct FormatCase {
  const char* name;
  std::vector<const char*> good, bad;
};

TEST(Schema, Formats) {
  const FormatCase cases[] = {
      {"time", {"23:59:59Z", "00:00:00.123456+05:30"}, {"24:00:00Z", "10:00Z", "10:00:00"}},
      {"duration",
       {"P3W", "P1Y2M3DT4H5M6S", "PT36H", "P1DT12H", "P2M"},
       {"P", "PT", "P1Y2D", "P1W2D", "1D", "P1S"}},
      {"email", {"a.b+c@mail.example.org"}, {"a@b", "a..b@c.de", "a@-b.de", "a@b.1"}},
      {"hostname", {"example.org", "a-1.b"}, {"-a", "a..b", "a_b", "a-"}},
      {"ipv6",
       {"::", "::1", "1::", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4",
        "1:2:3:4:5:6:7::"},
       {":", ":::", "1:2:3:4:5:6:7", "1::2::3", "1:2:3:4:5:6:7:8:9", "12345::", "1:2:3:4:5:6:7:8::"}},
      {"uri",
       {"https://example.org", "http://a.bc:80/d?e=f#g%20h"},
       {"example.org", "http://", "http://a:99999/"}},
      {"uri-reference", {"/a/b?c", "https://example.org", ""}, {"a b"}},
      {"uuid4", {"123e4567-e89b-42d3-a456-426614174000"}, {"123e4567-e89b-12d3-a456-426614174000"}},
      {"json-pointer", {"", "/a~1b/0"}, {"a", "/~2"}},
      {"relative-json-pointer", {"0", "1/a", "2#"}, {"01", "/a"}},
      {"uri-template", {"/users/{id}/x"}, {"/users/{id"}},
      {"base64", {"", "aGk=", "aGVsbG8h", "aA=="}, {"a", "aGk", "a-k="}},
      {"base64url", {"a-_w"}, {"a+/w"}},
      {"ipv4network", {"10.0.0.0/8", "1.2.3.4/32"}, {"10.0.0.1/8"}},
      {"ipvanyinterface", {"10.0.0.1/8", "fe80::1/64"}, {"10.0.0.1", "10.0.0.1/33"}},
  };
  for (const FormatCase& one : cases) {
    const auto grammar = compile_json_schema(R"({"format": ")" + std::string(one.name) + "\"}");
    for (const std::string text : one.good)
      EXPECT_TRUE(accepts(*grammar, '"' + text + '"')) << one.name << " " << text;
    for (const std::string text : one.bad)
      EXPECT_FALSE(accepts(*grammar, '"' + text + '"')) << one.name << " " << text;
  }
  for (const Format& format : known_formats())
    EXPECT_EQ(refusal([&] { compile_json_schema(R"({"format": ")" + std::string(format.name) + "\"}"); }), "")
        << format.name;
}

// Formats nobody knows and annotations of all kinds change nothing, and are reported unless they are well
// known.
// Two counts at once multiply, so lengths are counted only where a format does not bound them itself.
TEST(Schema, LengthsOfFormats) {
  const auto states = [](const std::string& more) {
    return compile_json_schema(R"({"type": "string", "format": )" + more + "}")->state_count();
  };
  EXPECT_EQ(states(R"("email", "minLength": 1, "maxLength": 254)"), states(R"("email")"));
  EXPECT_EQ(states(R"("hostname", "maxLength": 253)"), states(R"("hostname")"));
  EXPECT_GT(states(R"("email", "maxLength": 60)"), states(R"("email")"));
  const auto small = compile_json_schema(R"({"format": "email", "minLength": 9, "maxLength": 12})");
  EXPECT_TRUE(accepts(*small, R"("ab@cd.org")"));
  EXPECT_FALSE(accepts(*small, R"("a@cd.org")"));
  EXPECT_FALSE(accepts(*small, R"("abcde@cd.orgs")"));
  // Of an HttpUrl, as pydantic bounds it; 512 characters are enough, unless more are asked for.
  const auto link = compile_json_schema(R"({"format": "uri", "minLength": 1, "maxLength": 2083})");
  const std::string start = R"("https://a.bc/)";
  EXPECT_TRUE(accepts(*link, start + std::string(512 - start.size() + 1, 'p') + "\""));
  EXPECT_FALSE(accepts(*link, start + std::string(512 - start.size() + 2, 'p') + "\""));
  const auto longer = compile_json_schema(R"({"format": "uri", "minLength": 600, "maxLength": 700})");
  EXPECT_TRUE(accepts(*longer, start + std::string(600 - start.size() + 1, 'p') + "\""));
}

TEST(Schema, WhatHasNoEffectIsNoted) {
  const auto notes = [](std::string_view schema) {
    std::string out;
    const auto grammar = compile_json_schema(schema);
    for (const std::string& note : grammar->notes()) out += note + "; ";
    return out;
  };
  EXPECT_EQ(notes(R"({"type": "string", "format": "color", "x-order": 1, "title": "t", "readOnly": true,
                      "contentEncoding": "base64", "markdownDescription": "m", "id": "i", "$comment": "c"})"),
            "format color; keyword markdownDescription; ");
  EXPECT_EQ(notes(R"({"type": "integer", "format": "money"})"), "format money; ");
  EXPECT_TRUE(accepts(*compile_json_schema(R"({"type": "string", "format": "color"})"), R"("any")"));
  std::string many = "{";
  for (int i = 0; i < 1000; ++i) many += fourfold::format("\"annotation_{}\": 1, ", i);
  EXPECT_LE(compile_json_schema(many + R"("type": "null"})")->notes().size(), 16u);
}

TEST(Schema, Numbers) {
  const std::string many(400, '0');
  const auto with = [](const std::string& bound) {
    return compile_json_schema(R"({"type": "number", )" + bound + "}");
  };
  // Integers as zod and Rust bound them: no number that is written comes near.
  const auto safe = compile_json_schema(
      R"({"type": "integer", "minimum": -9007199254740991, "maximum": 18446744073709551615})");
  EXPECT_TRUE(accepts(*safe, "123456789012345"));
  EXPECT_FALSE(accepts(*safe, "1234567890123456"));
  EXPECT_FALSE(accepts(*safe, "1e3"));
  // Bounds with more decimals than are written are moved to the next number that is.
  const auto above = with(R"("minimum": 0.30000000000000004)");
  EXPECT_TRUE(accepts(*above, "0.300000000000001"));
  EXPECT_FALSE(accepts(*above, "0.3"));
  const auto below = with(R"("exclusiveMaximum": -0.30000000000000004)");
  EXPECT_TRUE(accepts(*below, "-0.300000000000001"));
  EXPECT_FALSE(accepts(*below, "-0.3"));
  EXPECT_TRUE(accepts(*with(R"("minimum": -0.30000000000000004)"), "-0.3"));
  EXPECT_TRUE(accepts(*with(R"("minimum": 0.9999999999999999)"), "1"));
  // A very small bound reads as 0, as for everybody who has doubles.
  for (const std::string& zero : {"0." + many, "0." + many + "1", "-0." + many}) {
    const auto grammar = with("\"minimum\": " + zero);
    EXPECT_TRUE(accepts(*grammar, "0")) << zero;
    EXPECT_FALSE(accepts(*grammar, "-1")) << zero;
  }
  EXPECT_TRUE(accepts(*with(R"("exclusiveMinimum": 5e-324)"), "0.000000000000001"));
  EXPECT_FALSE(accepts(*with(R"("exclusiveMinimum": 5e-324)"), "0"));
  EXPECT_TRUE(accepts(*with("\"maximum\": 1" + std::string(300, '0')), "7"));
  EXPECT_NE(refusal([&] { with("\"minimum\": 1" + many); }).find("1.8e308"), std::string::npos);
  EXPECT_NE(refusal([&] { with(R"("minimum": 1e20)"); }).find("/minimum: at most 15 digits"),
            std::string::npos);
  EXPECT_NE(refusal([&] { with("\"multipleOf\": 0." + many + "1"); }).find("/multipleOf"), std::string::npos);
  // To the last bit.
  EXPECT_TRUE(accepts(*compile_json_schema(R"({"const": 104290275.48302239})"), "104290275.48302239"));
  EXPECT_TRUE(accepts(*compile_json_schema(R"({"allOf": [{"enum": [1, 2]}, {"enum": [2.0, 3]}]})"), "2"));
}

TEST(Schema, Objects) {
  try_cases({
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["b"]})",
       {R"({"b": true})", R"({"a":1,"b":false})", "{\n\t\"a\": 1,\n\t\"b\": true\n}"},
       {"{}", R"({"a": 1})", R"({"b": true, "a": 1})", R"({"b": true, "c": 1})", R"({"b":true,})"}},
      {R"({"properties": {"a": true}, "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"a": "x"})", R"({"x": 1, "y": 2})", R"({"a": [], "aa": 3})"},
       {R"({"x": "y"})", R"({"\u0061": 1})"}},
      {R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"a": 1})"}},
      {R"({"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 1, "maxProperties": 2})",
       {R"({"a": null})", R"({"a": null, "b": null})"},
       {"{}", R"({"a":null,"b":null,"c":null})"}},
      {R"({"required": ["x"]})", {R"({"x": 1})", R"({"x": 1, "y": 2})"}, {"{}"}},
      {R"({"patternProperties": {"^i": {"type": "integer"}, "s$": {"type": "string"}},
           "properties": {"id": {"minimum": 5}}})",
       {R"({"id": 7, "ix": 1, "s": "t"})", "{}"},
       {R"({"id": 3})", R"({"is": 1})", R"({"is": "t"})", R"({"x": 1})"}},
      {R"({"type": "object", "properties": {"a": false, "b": {}}})", {"{}", R"({"b": 1})"}, {R"({"a": 1})"}},
      {R"({"type": "object", "propertyNames": {"pattern": "^[a-z]+$", "maxLength": 3}, "additionalProperties":
           {"type": "integer"}})",
       {"{}", R"({"abc": 1, "x": 2})"},
       {R"({"abcd": 1})", R"({"A": 1})"}},
      {R"({"type": "object", "propertyNames": {"enum": ["red", "blue", 5]}, "additionalProperties": {"type": "null"},
           "minProperties": 1})",
       {R"({"red": null})", R"({"red": null, "blue": null})"},
       {"{}", R"({"red": null, "red": null})", R"({"green": null})"}},
      {R"({"properties": {"id": {}, "Xid": {}}, "propertyNames": {"anyOf": [{"const": "id"}, {"format": "uuid"}]},
           "additionalProperties": true})",
       {R"({"id": 1, "123e4567-e89b-12d3-a456-426614174000": 2})"},
       {R"({"Xid": 1})", R"({"other": 1})"}},
      {R"({"type": "object", "propertyNames": true})", {R"({"any name": 1})"}, {"[]"}},
  });
}

TEST(Schema, Arrays) {
  try_cases({
      {R"({"type": "array", "uniqueItems": true, "items": {"enum": ["a", "b", 1, 1.0]}})",
       {"[]", R"(["b", "a"])", R"([1, "a", "b"])"},
       {R"(["a", "a"])", "[1, 1]", R"(["a", "b", 1, "a"])"}},
      {R"({"type": "array", "uniqueItems": true, "minItems": 2, "items": {"anyOf": [{"type": "boolean"}, {"const": "x"}]}})",
       {"[true, false]", R"(["x", true])"},
       {"[true]", "[true, true]"}},
      {R"({"uniqueItems": true, "maxItems": 1, "items": {"type": "string"}})",
       {"[]", R"(["x"])"},
       {R"(["x", "y"])"}},
      {R"({"uniqueItems": true, "maxItems": 2, "items": {"$ref": "#/$defs/c"}, "$defs": {"c": {"enum": ["a", "b", "c"]}}})",
       {R"(["c", "a"])"},
       {R"(["a", "b", "c"])", R"(["c", "c"])"}},
      {R"({"items": [{"type": "integer"}, {"type": "string"}], "additionalItems": {"type": "null"}})",
       {"[1]", R"([1, "a", null, null])"},
       {R"([1, "a", 2])", R"(["a"])"}},
      {R"({"items": [{"type": "integer"}], "additionalItems": false})", {"[1]", "[]"}, {"[1, 2]"}},
      {R"({"type": "array", "items": {"type": "integer"}})", {"[]", "[1]", "[1, 2,3]"}, {"[1,]", "[\"a\"]"}},
      {R"({"items": {"type": "null"}, "minItems": 2, "maxItems": 3})",
       {"[null, null]", "[null,null,null]"},
       {"[null]", "[null,null,null,null]"}},
      {R"({"prefixItems": [{"type": "integer"}, {"type": "string"}]})",
       {"[]", "[1]", "[1, \"a\"]"},
       {"[\"a\"]", "[1, \"a\", 2]"}},
      {R"({"prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}, "minItems": 2})",
       {"[1, true]", "[1, true, false]"},
       {"[1]", "[1, 1]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]", "[ ]"}, {"[1]"}},
      {R"({"prefixItems": [{"type": "integer"}, {"type": "integer"}], "items": false, "minItems": 2})",
       {"[1, 2]"},
       {"[1]", "[1, 2, 3]"}},
  });
}

TEST(Schema, AlternativesAndReferences) {
  try_cases({
      {R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})",
       {"1", R"("a")"},
       {R"("ab")"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
           "anyOf": [{"properties": {"a": {"minimum": 5}}}, {"properties": {"a": {"maximum": 1}}}]})",
       {R"({"a": 7})", R"({"a": 0})"},
       {R"({"a": 3})"}},
      {R"({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 4}, {"$ref": "#/$defs/even"}],
           "$defs": {"even": {"multipleOf": 2}}})",
       {"4"},
       {"3", "2", "6"}},
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
                     {"type": "object", "properties": {"k": {"const": "b"}, "v": {}}, "required": ["k", "v"]},
                     {"type": "null"}]})",
       {R"({"k": "a"})", R"({"k": "b", "v": 1})", "null"},
       {R"({"k": "b"})", R"({"k": "c"})"}},
      {R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"v": {"type": "integer"},
           "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["v"]}}})",
       {R"({"v": 1})", R"({"v":1,"kids":[{"v":2,"kids":[]},{"v":3}]})"},
       {R"({"v":1,"kids":[{}]})"}},
      {R"({"properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}, "required": ["next"]})",
       {R"({"next": null})", R"({"next":{"next":{"next":null}}})"},
       {R"({"next": 1})", "{}"}},
      {R"({"definitions": {"a~/b": {"type": "null"}}, "$ref": "#/definitions/a~0~1b"})", {"null"}, {"1"}},
      {R"({"$defs": {"a b": {"type": "null"}}, "$ref": "#/$defs/a%20b"})", {"null"}, {"1"}},
      // A tag with a default is written all the same: it tells the alternatives apart.
      {R"({"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "discriminator": {"propertyName": "kind",
           "mapping": {}}, "$defs": {
           "cat": {"type": "object", "properties": {"kind": {"const": "cat", "default": "cat"}, "n": {"type": "integer"}}},
           "dog": {"type": "object", "properties": {"kind": {"const": "dog"}, "n": {"type": "string"}}}}})",
       {R"({"kind": "cat", "n": 1})", R"({"kind": "dog", "n": "x"})"},
       {R"({"n": 1})", R"({"kind": "cat", "n": "x"})"}},
      // Members one requires and the other does not have.
      {R"({"properties": {"b": {"type": "integer"}, "c": {}}, "oneOf": [
           {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
           {"properties": {"b": {}}, "required": ["b"]}]})",
       {R"({"c": 1, "a": 2})", R"({"b": 1})", R"({"b": 1, "c": 2})"},
       {R"({"b": 1, "a": 2})", "{}", R"({"c": 1})"}},
      {R"({"properties": {"a": {"not": {}}, "b": {"type": "null"}}})",
       {"{}", R"({"b": null})"},
       {R"({"a": 1})"}},
  });
}

TEST(Schema, RefusesByNameAndPlace) {
  const auto why = [](std::string_view schema) { return refusal([&] { compile_json_schema(schema); }); };
  const auto names = [&](std::string_view schema, std::string_view part) {
    EXPECT_NE(why(schema).find(part), std::string::npos) << schema << "\n" << why(schema);
  };
  for (const std::string_view keyword : refused_keywords())
    names("{\"properties\": {\"x/y\": {\"" + std::string(keyword) + "\": {}}}}",
          "at /properties/x~1y/" + std::string(keyword));
  names(R"({"typ": "string"})", "at the top/typ: an unknown keyword; did you mean type?");
  names(R"({"Properties": {}})", "did you mean properties?");
  names(R"({"additionalPropertys": false})", "did you mean additionalProperties?");
  names(R"({"type": "text"})", "/type");
  names(R"({"pattern": "(a)\\1"})", "back references");
  names(R"({"uniqueItems": true})", "uniqueItems: is supported for items whose values are listed");
  names(R"({"uniqueItems": true, "items": {"enum": [1,2,3,4,5,6,7,8,9,10,11]}})", "11 values in any order");
  names(R"({"not": {"type": "null"}})", "/not");
  names(R"({"$ref": "#/a%2"})", "JSON pointer");
  names(R"({"$ref": "https://example.org/schema.json"})", "nothing is fetched");
  names(R"({"$ref": "other.json#/a"})", "nothing is fetched");
  names(R"({"$ref": "#/$defs/none"})", "nothing stands");
  names(R"({"$ref": "#"})", "itself");
  names(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", "itself");
  names(R"({"oneOf": [{"minimum": 1}, {"maximum": 5}]})", "anyOf");
  names(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "without end");
  names(R"({"type": "integer", "minimum": 5, "maximum": 3})", "contradicts");
  names("false", "contradicts");
  names(R"({"minimum": "3"})", "/minimum");
  names(R"({"multipleOf": 0.01})", "/multipleOf");
  names(R"({"minLength": -1})", "/minLength");
  names(R"({"type": "object", "minProperties": 3})", "/minProperties");
  for (const char* broken : {"", "[]", "1", "{\"type\": \"string\"", "{\"enum\": []}", "{\"anyOf\": []}",
                             "{\"properties\": []}", "{\"required\": \"a\"}", "{\"a\": 1, \"a\": 2}"})
    EXPECT_NE(why(broken), "") << broken;
}

// docs/structured.md names what the program knows, in the place where it says what becomes of it.
TEST(Schema, DocumentationIsComplete) {
  std::ifstream file(FOURFOLD_SOURCE_DIR "/docs/structured.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const auto between = [&](std::string_view from, std::string_view to) {
    const std::size_t start = page.find(from);
    EXPECT_NE(start, std::string::npos) << from;
    return page.substr(start, page.find(to, start) - start);
  };
  const auto names_all = [](const std::string& text, std::span<const std::string_view> names) {
    for (const std::string_view name : names)
      EXPECT_NE(text.find("`" + std::string(name) + "`"), std::string::npos) << name;
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '`')) / 2;
  };
  const std::string table = between("| keyword |", "\n\n");
  names_all(table, supported_keywords());
  for (std::size_t at = table.find("\n| `"); at != std::string::npos; at = table.find("\n| `", at + 1)) {
    // Whatever the first column names is supported.
    const std::string cell = table.substr(at + 3, table.find('|', at + 3) - at - 3);
    for (std::size_t tick = cell.find('`'); tick != std::string::npos;) {
      const std::size_t end = cell.find('`', tick + 1);
      const std::string name = cell.substr(tick + 1, end - tick - 1);
      EXPECT_TRUE(std::ranges::find(supported_keywords(), name) != supported_keywords().end()) << name;
      tick = cell.find('`', end + 1);
    }
  }
  EXPECT_EQ(names_all(between("Without effect", "\n\n"), ignored_keywords()), ignored_keywords().size());
  EXPECT_EQ(names_all(between("Refused by name: `if`", "\n\n"), refused_keywords()),
            refused_keywords().size());
  std::vector<std::string_view> formats;
  for (const Format& format : known_formats()) formats.push_back(format.name);
  EXPECT_EQ(names_all(between("Formats:", "Each"), formats), formats.size());
}

// Brackets of the schema's text, and references behind references: the limit itself is allowed.
TEST(Schema, DepthIsExact) {
  const auto of_brackets = [](int depth) {  // enum's object and list are two of them
    return R"({"enum": [)" + std::string(depth - 2, '[') + std::string(depth - 2, ']') + "]}";
  };
  EXPECT_EQ(refusal([&] { compile_json_schema(of_brackets(100)); }), "");
  EXPECT_NE(refusal([&] { compile_json_schema(of_brackets(101)); }).find("deeper than 100"),
            std::string::npos);
  const auto of_references = [](int count) {
    std::string out = R"({"minimum": 0, "$ref": "#/$defs/d1", "$defs": {)";
    for (int i = 1; i < count; ++i)
      out += fourfold::format(R"("d{}": {"minimum": 0, "$ref": "#/$defs/d{}"}, )", i, i + 1);
    return out + fourfold::format(R"("d{}": {"type": "integer"}}})", count);
  };
  EXPECT_EQ(refusal([&] { compile_json_schema(of_references(200)); }), "");
  EXPECT_NE(refusal([&] { compile_json_schema(of_references(201)); }).find("deeper than 200"),
            std::string::npos);
}

TEST(Schema, BombsAreCheapOrRefused) {
  std::string list = "{\"enum\": [";
  for (int i = 0; i < 10'000; ++i)
    list += (i ? ",\"value number " : "\"value number ") + std::to_string(i) + "\"";
  const auto grammar = compile_json_schema(list + "]}");
  EXPECT_TRUE(accepts(*grammar, "\"value number 9999\""));
  EXPECT_FALSE(accepts(*grammar, "\"value number 10000\""));

  // Each level doubles; a billion ways in all.
  std::string doubling = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 30; ++i) {
    const std::string next = std::to_string(i + 1);
    doubling += "\"d" + std::to_string(i) + "\": {\"anyOf\": [{\"$ref\": \"#/$defs/d" + next +
                "\"}, {\"$ref\": \"#/$defs/d" + next + "\"}]}, ";
  }
  EXPECT_NE(refusal([&] { compile_json_schema(doubling + R"("d30": {"type": "null"}}})"); }), "");
  EXPECT_NE(refusal([] { compile_json_schema(R"({"pattern": "^(a|b)*a(a|b){40}$"})"); }), "");
  EXPECT_NE(refusal([] { compile_json_schema(std::string(5000, '[') + std::string(5000, ']')); }), "");

  // Alternatives that look alike at every level: the readings must not double with each bracket.
  const auto alike = compile_json_schema(
      R"({"anyOf": [{"type": "array", "items": {"$ref": "#"}, "maxItems": 5},
                    {"type": "array", "items": {"$ref": "#"}, "maxItems": 6}]})");
  EXPECT_TRUE(accepts(*alike, std::string(2000, '[') + std::string(2000, ']')));

  std::string wide = R"({"type": "object", "properties": {)";
  for (int i = 0; i < 1000; ++i)
    wide += (i ? ", \"p" : "\"p") + std::to_string(i) + "\": {\"type\": \"integer\"}";
  EXPECT_TRUE(accepts(*compile_json_schema(wide + "}}"), R"({"p3": 1, "p999": 2})"));
  EXPECT_TRUE(
      accepts(*compile_json_schema(R"({"maxLength": 20000})"), "\"" + std::string(20000, 'x') + "\""));
}

}  // namespace
}  // namespace fourfold::constrain
