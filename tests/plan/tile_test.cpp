#include "plan/tile.h"

#include <gtest/gtest.h>

namespace fourfold::plan {
namespace {

TEST(Tile, NameAndParseAreInverse) {
  const Tile tile{256, 128, 64};
  EXPECT_EQ(tile_name(tile), "256x128x64");
  EXPECT_EQ(parse_tile("256x128x64"), tile);
  EXPECT_EQ(parse_tile("32x8x64"), (Tile{32, 8, 64}));
}

TEST(Tile, OtherTextIsRefused) {
  for (const char* text :
       {"", "x", "256", "256x128", "256x128x", "256x128x64x1", "256x128x64B", "256X128X64", "-1x8x64",
        "0x8x64", "256 x128x64", "256x128x64 ", "256x+8x64", "99999999999x8x64"}) {
    EXPECT_FALSE(parse_tile(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace fourfold::plan
