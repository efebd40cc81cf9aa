#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace fourfold {
namespace {

template <class T>
std::string written(const T& value) {
  return JsonWriter().value(value).finish();
}

JsonWriter& write_sample(JsonWriter& json) {
  json.begin_object().member("name", "tile").member("rows", 3);
  json.key("empty").begin_array().end_array();
  json.key("sizes").begin_array().value(1).value(2).end_array();
  json.key("inner").begin_object().member("ok", true).end_object();
  return json.end_object();
}

TEST(JsonWriter, WritesCompactly) {
  JsonWriter json;
  EXPECT_EQ(write_sample(json).finish(),
            R"({"name":"tile","rows":3,"empty":[],"sizes":[1,2],"inner":{"ok":true}})");
}

TEST(JsonWriter, WritesPrettily) {
  JsonWriter json(JsonWriter::Style::pretty);
  EXPECT_EQ(write_sample(json).finish(), R"({
  "name": "tile",
  "rows": 3,
  "empty": [],
  "sizes": [
    1,
    2
  ],
  "inner": {
    "ok": true
  }
})");
}

TEST(JsonWriter, WritesScalars) {
  EXPECT_EQ(written(true), "true");
  EXPECT_EQ(written(false), "false");
  EXPECT_EQ(written(nullptr), "null");
  EXPECT_EQ(written(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(written(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(written(std::int8_t{-3}), "-3");
  EXPECT_EQ(written(std::string("text")), "\"text\"");
}

TEST(JsonWriter, WritesTheShortestNumberThatReadsBack) {
  EXPECT_EQ(written(0.1), "0.1");
  EXPECT_EQ(written(0.1f), "0.1");
  EXPECT_EQ(written(1.0 / 3.0), "0.3333333333333333");
  EXPECT_EQ(written(-0.0), "-0");
  EXPECT_EQ(written(1e300), "1e+300");
  EXPECT_EQ(written(5e-324), "5e-324");
}

TEST(JsonWriter, NonFiniteNumbersAreNull) {
  EXPECT_EQ(written(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(written(-std::numeric_limits<float>::infinity()), "null");
  EXPECT_EQ(written(std::numeric_limits<double>::quiet_NaN()), "null");
}

TEST(JsonWriter, EscapesQuotesBackslashesAndControls) {
  EXPECT_EQ(written("a\"b\\c/d"), R"("a\"b\\c/d")");
  EXPECT_EQ(written("\b\f\n\r\t"), R"("\b\f\n\r\t")");
  EXPECT_EQ(written(std::string_view("\0\x01\x1F\x7F", 4)), "\"\\u0000\\u0001\\u001f\x7F\"");
  EXPECT_EQ(JsonWriter().begin_object().member("a\nb", 1).end_object().finish(), R"({"a\nb":1})");
}

TEST(JsonWriter, KeepsValidUtf8) {
  const char* text = "\xC3\xA9 \xE2\x82\xAC \xED\x9F\xBF \xEE\x80\x80 \xF0\x9F\x98\x80 \xF4\x8F\xBF\xBF";
  EXPECT_EQ(written(text), '"' + std::string(text) + '"');
}

TEST(JsonWriter, ReplacesInvalidUtf8) {
  const std::string bad = "\xEF\xBF\xBD";
  const auto quoted = [](const std::string& text) { return '"' + text + '"'; };
  EXPECT_EQ(written("a\x80z"), quoted("a" + bad + "z")) << "a continuation byte alone";
  EXPECT_EQ(written("\xC0\xAF"), quoted(bad + bad)) << "an overlong slash";
  EXPECT_EQ(written("\xE0\x80\x80"), quoted(bad + bad + bad)) << "an overlong zero";
  EXPECT_EQ(written("\xED\xA0\x80"), quoted(bad + bad + bad)) << "a surrogate";
  EXPECT_EQ(written("\xF4\x90\x80\x80"), quoted(bad + bad + bad + bad)) << "beyond U+10FFFF";
  EXPECT_EQ(written("\xFF"), quoted(bad));
  EXPECT_EQ(written("\xE2\x82"), quoted(bad)) << "cut short at the end";
  EXPECT_EQ(written("\xF0\x9F\x98z"), quoted(bad + "z")) << "one mark for the longest valid start";
}

TEST(JsonWriter, StartsAfreshAfterFinish) {
  JsonWriter json;
  EXPECT_EQ(json.value(1).finish(), "1");
  EXPECT_EQ(json.begin_array().end_array().finish(), "[]");
}

TEST(JsonWriterDeathTest, MisuseIsCaught) {
  EXPECT_DEATH(JsonWriter().begin_object().value(1), "follows its key");
  EXPECT_DEATH(JsonWriter().begin_array().key("a"), "a key stands in an object");
  EXPECT_DEATH(JsonWriter().begin_array().end_object(), "what is closed is open");
  EXPECT_DEATH(JsonWriter().begin_object().key("a").end_object(), "what is closed is open");
  EXPECT_DEATH(JsonWriter().begin_array().finish(), "the document is complete");
  EXPECT_DEATH(JsonWriter().value(1).value(2), "a document holds one value");
}

}  // namespace
}  // namespace fourfold
