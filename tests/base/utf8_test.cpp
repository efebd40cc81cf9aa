#include "base/utf8.h"

#include <gtest/gtest.h>

namespace fourfold {
namespace {

TEST(Utf8, EveryCodePointReadsBack) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_code_point(text, code);
    ASSERT_TRUE(is_valid_utf8(text)) << static_cast<std::uint32_t>(code);
    const CodePoint point = read_code_point(text.data());
    ASSERT_EQ(point.code, code);
    ASSERT_EQ(static_cast<std::size_t>(point.bytes), text.size());
  }
}

TEST(Utf8, RepairsEachLongestBrokenPartOnce) {
  const std::string bad(kReplacement);
  EXPECT_EQ(repaired("a\xFF"
                     "b"),
            "a" + bad + "b");
  EXPECT_EQ(repaired("\xE2\x82"), bad);
  EXPECT_EQ(repaired("\xF0\x9F\x98x"), bad + "x");
  EXPECT_EQ(repaired("\xC0\xAF"), bad + bad);            // overlong: no byte of it can start a character
  EXPECT_EQ(repaired("\xED\xA0\x80"), bad + bad + bad);  // a surrogate
  EXPECT_EQ(repaired("\xF4\x90\x80\x80"), bad + bad + bad + bad);
}

TEST(Utf8, TellsBrokenFromUnfinished) {
  EXPECT_EQ(check_utf8_step("\xE9\x9B").state, Utf8State::incomplete);
  EXPECT_EQ(check_utf8_step("\xE9\x41").state, Utf8State::invalid);
  EXPECT_EQ(check_utf8_step("\xF5").state, Utf8State::invalid);
  EXPECT_EQ(check_utf8_step("\xE9\x9B\xAA!").state, Utf8State::valid);
  EXPECT_EQ(check_utf8_step("\xE9\x9B\xAA!").bytes, 3u);
}

TEST(Utf8, CountsCodePoints) { EXPECT_EQ(count_code_points("a\u00e9\u96ea\U0001F600"), 4u); }

}  // namespace
}  // namespace fourfold
