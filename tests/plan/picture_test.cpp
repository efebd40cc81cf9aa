#include "plan/picture.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/text.h"

namespace fourfold::plan {
namespace {

const std::vector<Bar> kTwoBars{{.label = "over", .parts = {{"left", 600}, {"right", 450}}},
                                {.label = "under", .parts = {{"left", 250}, {"right", 250}}}};

long count(const std::string& text, char letter) { return std::count(text.begin(), text.end(), letter); }

TEST(Picture, PartsAreDrawnToScaleAndTheOverflowSticksOut) {
  // 60 columns less the label (5), the gaps (4) and the result (26) leave 25 for the longest bar.
  EXPECT_EQ(draw_bars(kTwoBars, 1'000, {.width = 60}),
            "over  AAAAAAAAAAAAAABBBBBBBBBB|X  1,050  over by 50\n"
            "under AAAAAABBBBBB............|   500  500 to spare\n"
            "      0                 1,000 ^\n");
}

TEST(Picture, ASmallOverflowStillTakesAColumn) {
  const std::string text =
      draw_bars({{.label = "a", .parts = {{"all", 1'000'001}}}}, 1'000'000, {.width = 60});
  EXPECT_EQ(count(text, 'X'), 1);
}

TEST(Picture, AnExactFitHasNeitherFreeSpaceNorOverflow) {
  const std::string text = draw_bars({{.label = "a", .parts = {{"all", 1'000}}}}, 1'000, {.width = 60});
  EXPECT_NE(text.find("1,000  fits exactly"), std::string::npos);
  EXPECT_EQ(count(text, 'X'), 0);
  EXPECT_EQ(count(text, '.'), 0);
}

TEST(Picture, Utf8HasTheSameColumns) {
  const std::string ascii = draw_bars(kTwoBars, 1'000, {.width = 60});
  const std::string utf8 = draw_bars(kTwoBars, 1'000, {.width = 60, .utf8 = true});
  EXPECT_EQ(columns_of(ascii), columns_of(utf8));
  EXPECT_EQ(count(utf8, 'A'), 0);
  EXPECT_NE(utf8.find("\u2588"), std::string::npos);
}

TEST(Picture, ColourOnlyWhenAsked) {
  EXPECT_EQ(draw_bars(kTwoBars, 1'000, {.utf8 = true}).find('\x1b'), std::string::npos);
  const std::string text = draw_bars(kTwoBars, 1'000, {.color = true});
  EXPECT_EQ(count(text, '\x1b'), 2);  // one overflow, switched on and off
}

TEST(Picture, TheLegendNamesEveryPart) {
  const std::string text = draw_bars_with_legend(kTwoBars, 1'000, {});
  EXPECT_NE(text.find("over  A left 600, B right 450, X past the limit 50\n"), std::string::npos);
  EXPECT_NE(text.find("under A left 250, B right 250\n"), std::string::npos);
}

TEST(Picture, ManyPartsKeepDistinctLettersAndNeverUseX) {
  for (int index = 0; index < 40; ++index) EXPECT_NE(part_glyph(index, {}), "X");
  EXPECT_NE(part_glyph(3, {.utf8 = true}), part_glyph(4, {.utf8 = true}));
}

}  // namespace
}  // namespace fourfold::plan
