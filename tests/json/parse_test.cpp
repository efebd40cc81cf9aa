#include "json/parse.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/thread_time.h"
#include "tests/support/hash_collisions.h"

namespace fourfold::json {
namespace {

std::string message_of(std::string_view text, const Limits& limits = {}) {
  try {
    parse(text, "file.json", limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::bad_checkpoint);
    return error.what();
  }
  return "accepted";
}

bool says(const std::string& message, std::string_view part) {
  return message.find(part) != std::string::npos;
}

TEST(Parse, ReadsADocumentAndKeepsOrder) {
  const auto value = parse(R"({"b": [1, 2.5, "x", null, true], "a": {}} )", "file.json");
  EXPECT_EQ(std::string_view(value.as_object().begin()->key()), "b");
  EXPECT_EQ(value.at("b").as_array().size(), 5u);
}

// To the last bit, which Boost's own reading is not.
TEST(Parse, ReadsNumbersExactly) {
  const auto value = parse(
      R"({"a": [104290275.48302239, 1, {"b": 1.3927926388013963e-143}], "c": 18446744073709551616})", "f");
  EXPECT_EQ(value.at("a").at(0).as_double(), 104290275.48302239);
  EXPECT_EQ(value.at("a").at(1).as_int64(), 1);
  EXPECT_EQ(value.at("a").at(2).at("b").as_double(), 1.3927926388013963e-143);
  EXPECT_EQ(value.at("c").as_double(), 18446744073709551616.0);
  const std::string zeros(400, '0');
  EXPECT_EQ(parse("0." + zeros + "1", "f").as_double(), 0.0);
  EXPECT_EQ(parse("0." + zeros, "f").as_double(), 0.0);
  EXPECT_EQ(parse("1" + zeros + "e-400", "f").as_double(), 1.0);
  EXPECT_TRUE(says(message_of("[1e400]"), "beyond 1.8e308"));
  EXPECT_TRUE(says(message_of("[1" + zeros + "]"), "beyond 1.8e308"));
}

TEST(Parse, RefusesTwoMembersOfOneName) {
  EXPECT_TRUE(says(message_of(R"({"a": 1, "b": 2, "a": 3})"), "two members are named \"a\""));
  EXPECT_TRUE(says(message_of(R"({"x": [{"a": 1, "\u0061": 3}]})"), "two members are named \"a\""));
  EXPECT_EQ(message_of(R"({"a": {"a": 1}, "b": {"a": 1}})"), "accepted");
}

// Names that std::hash cannot tell apart, as a schema may have them: with a table that uses it, minutes.
TEST(Parse, NamesThatCollideAreNames) {
  const std::vector<std::string> names = test::murmur_collisions(40'000);
  const std::string text = test::object_of(names);
  const auto begin = thread_cpu_time();
  EXPECT_EQ(parse(text, "t").as_object().size(), names.size());
  EXPECT_LT(thread_cpu_time() - begin, std::chrono::seconds(4));
#if defined(__GLIBCXX__) && __SIZEOF_SIZE_T__ == 8
  for (const std::string& name : names)
    ASSERT_EQ(std::hash<std::string>{}(name), std::hash<std::string>{}(names[0]));
#endif
}

TEST(Parse, BoundsDepthAndSize) {
  EXPECT_TRUE(says(message_of(std::string(100'000, '[')), "deeper than 32"));
  EXPECT_EQ(message_of("[[[]]]", {.text_bytes_max = 100, .depth_max = 3}), "accepted");
  EXPECT_TRUE(says(message_of("[[[[]]]]", {.text_bytes_max = 100, .depth_max = 3}), "deeper than 3"));
  EXPECT_TRUE(says(message_of("[1, 2, 3]", {.text_bytes_max = 8, .depth_max = 3}),
                   "9 bytes of JSON; the limit is 8"));
}

// The limit itself is allowed and one more is not, whatever the brackets are and whatever they hold.
TEST(Parse, DepthIsExact) {
  const auto nested = [](std::size_t depth, const std::string& inside) {
    std::string open, close;
    for (std::size_t i = 0; i < depth; ++i) {
      open += i % 2 == 0 ? "[" : "{\"a\":";
      close.insert(0, i % 2 == 0 ? "]" : "}");
    }
    return open + inside + close;
  };
  EXPECT_EQ(Limits().depth_max, 32u);
  for (const std::size_t limit : {std::size_t{3}, std::size_t{32}, std::size_t{100}}) {
    const Limits limits{.text_bytes_max = 10'000, .depth_max = limit};
    EXPECT_EQ(message_of(nested(limit, "1"), limits), "accepted") << limit;
    EXPECT_EQ(message_of(nested(limit - 1, "[]"), limits), "accepted") << limit;
    for (const std::string& deeper : {nested(limit + 1, "1"), nested(limit, "[]"), nested(limit, "{}")})
      EXPECT_TRUE(says(message_of(deeper, limits), "deeper than " + std::to_string(limit))) << deeper;
  }
}

TEST(Parse, RefusesWhatIsNotJson) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\":}", "nul", "NaN", "Infinity", "-", "\"\xFF\"", "'a'",
                           "// comment\n1", "{\"a\" 1}", "\"\x01\""})
    EXPECT_TRUE(says(message_of(text), "not valid JSON")) << text << ": " << message_of(text);
  EXPECT_TRUE(says(message_of("01"), "text after the JSON document, at byte 1"));
  EXPECT_TRUE(says(message_of("{} {}"), "text after the JSON document, at byte 3"));
  EXPECT_TRUE(says(message_of(std::string_view("{}\0", 3)), "text after"));
}

TEST(ReadTextFile, RefusesWhatIsNoRegularFile) {
  try {
    read_text_file(std::filesystem::temp_directory_path(), 100);
    ADD_FAILURE() << "a folder was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io);
  }
  EXPECT_THROW(read_text_file("/nonexistent/file.json", 100), Error);
}

// The kernel says 4,096 bytes of this file and gives a few: as if it had been cut after it was opened.
TEST(ReadTextFile, AFileThatShrinksIsAnError) {
  const std::filesystem::path short_file = "/sys/devices/system/cpu/online";
  if (!std::filesystem::exists(short_file)) GTEST_SKIP() << short_file << " is not there";
  try {
    read_text_file(short_file, 1 << 20);
    ADD_FAILURE() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io);
    EXPECT_TRUE(says(error.what(), "while being read")) << error.what();
  }
}

}  // namespace
}  // namespace fourfold::json
