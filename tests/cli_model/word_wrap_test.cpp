#include "cli/word_wrap.h"

#include <gtest/gtest.h>

namespace fourfold::cli {
namespace {

// Cut into pieces of so many bytes at most, but never inside a character.
std::string wrapped(const std::string& text, int columns, std::size_t piece = 1) {
  WordWrap wrap;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(at + piece, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    out += wrap.push(text.substr(at, end - at), columns);
    at = end;
  }
  return out + wrap.finish(columns);
}

TEST(WordWrap, BreaksBetweenWords) {
  EXPECT_EQ(wrapped("the old sailor went home", 10), "the old\nsailor\nwent home");
  EXPECT_EQ(wrapped("exactly ten", 11), "exactly ten") << "the last column is used";
  EXPECT_EQ(wrapped("exactly ten", 10), "exactly\nten");
  EXPECT_EQ(wrapped("a\n\n  b  c \nd", 10), "a\n\n  b  c\nd") << "own lines and indentation stay";
  EXPECT_EQ(wrapped("one two", 0), "one two");
  EXPECT_EQ(wrapped("", 10), "");
}

TEST(WordWrap, TheSameHoweverTheTextIsCut) {
  const std::string text =
      "It was \xE6\xBC\xA2\xE5\xAD\x97 and caf\xC3\xA9, then\n```\nlong long long code line\n```\nand so on";
  for (const int columns : {1, 7, 20, 80})
    for (const std::size_t piece : {2u, 3u, 5u, 100u})
      EXPECT_EQ(wrapped(text, columns, piece), wrapped(text, columns)) << columns << " " << piece;
}

TEST(WordWrap, AWordIsHeldBackUntilItIsWhole) {
  WordWrap wrap;
  EXPECT_EQ(wrap.push("light", 10), "");
  EXPECT_EQ(wrap.push("house ", 10), "lighthouse");
  EXPECT_EQ(wrap.push("x", 10), "");
  EXPECT_EQ(wrap.finish(10), "\nx");
}

TEST(WordWrap, LongWordsAreTheTerminals) {
  EXPECT_EQ(wrapped("abcdefghij", 4), "abcdefghij");
  EXPECT_EQ(wrapped("ab abcdefghij cd", 4), "ab\nabcdefghij\ncd");
}

TEST(WordWrap, WideCharactersAndMarks) {
  EXPECT_EQ(columns_of("a"), 1);
  EXPECT_EQ(columns_of("\xC3\xA9"), 1);          // é
  EXPECT_EQ(columns_of("\xE6\xBC\xA2"), 2);      // 漢
  EXPECT_EQ(columns_of("\xF0\x9F\x98\x80"), 2);  // a face
  EXPECT_EQ(columns_of("\xCC\x81"), 0);          // an accent that combines
  EXPECT_EQ(columns_of("\xFF"), 1);              // no UTF-8: shown as it is
  EXPECT_EQ(wrapped("\xE6\xBC\xA2\xE5\xAD\x97\xE6\xBC\xA2", 4), "\xE6\xBC\xA2\xE5\xAD\x97\n\xE6\xBC\xA2");
  EXPECT_EQ(wrapped("\xE6\xBC\xA2\xE5\xAD\x97\xE6\xBC\xA2", 5), "\xE6\xBC\xA2\xE5\xAD\x97\n\xE6\xBC\xA2");
  EXPECT_EQ(wrapped("abc e\xCC\x81", 5), "abc e\xCC\x81");
}

TEST(WordWrap, CodeKeepsItsLines) {
  EXPECT_EQ(wrapped("see here\n```c\nint x = 1;\n```\nso it goes", 8),
            "see here\n```c\nint x = 1;\n```\nso it\ngoes");
}

}  // namespace
}  // namespace fourfold::cli
