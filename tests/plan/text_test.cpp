#include "plan/text.h"

#include <gtest/gtest.h>

namespace fourfold::plan {
namespace {

TEST(Text, PadsByColumnsNotBytes) {
  EXPECT_EQ(pad_left("7", 3), "  7");
  EXPECT_EQ(pad_right("ab", 4), "ab  ");
  EXPECT_EQ(pad_left("long", 2), "long");
  EXPECT_EQ(columns_of("\u2588\u2588|"), 3);
  EXPECT_EQ(pad_right("\u2588", 2), "\u2588 ");
}

TEST(Text, ParagraphsBreakAtSpacesAndKeepTheirIndent) {
  std::string words;
  for (int index = 0; index < 40; ++index) words += index == 0 ? "word" : " word";
  const std::string text = paragraph(words, 4, "  -");
  std::size_t at = 0;
  int lines = 0;
  while (at < text.size()) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    EXPECT_LE(columns_of(line), kPageColumns);
    EXPECT_EQ(line.substr(0, 4), lines == 0 ? "  - " : "    ");
    EXPECT_NE(line.back(), ' ');
    at += line.size() + 1;
    ++lines;
  }
  EXPECT_EQ(lines, 2);
}

TEST(Text, AParagraphOfOneLongWordIsLeftWhole) {
  const std::string word(200, 'a');
  EXPECT_EQ(paragraph(word, 2), "  " + word + "\n");
  EXPECT_EQ(paragraph("b " + word, 0), "b\n" + word + "\n");
}

}  // namespace
}  // namespace fourfold::plan
