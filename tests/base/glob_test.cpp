#include "base/glob.h"

#include <gtest/gtest.h>

namespace fourfold {
namespace {

TEST(Glob, StarsAndQuestionMarksMatchTheWholeName) {
  static_assert(glob_match("moe_*w4a4*", "moe_stream 32x8x64 w4a4 nvfp4"));
  static_assert(!glob_match("moe_*w4a4", "moe_stream 32x8x64 w4a4 nvfp4"));
  static_assert(glob_match("a?c", "abc"));
  static_assert(!glob_match("a?c", "ac"));
  static_assert(glob_match("*", ""));
  EXPECT_TRUE(glob_match("*ab*ab*c", "ab ab ab c"));
  EXPECT_FALSE(glob_match("*ab*ab*d", "ab ab ab c"));
}

TEST(Glob, APlainWordMatchesAnywhere) {
  EXPECT_TRUE(glob_match("w4a4", "moe_stream 32x8x64 w4a4 nvfp4"));
  EXPECT_FALSE(glob_match("wgmma", "moe_stream 32x8x64 w4a4 nvfp4"));
  EXPECT_TRUE(glob_match("all", "anything"));
  EXPECT_TRUE(glob_match("", "anything"));
}

}  // namespace
}  // namespace fourfold
