#include "base/closest.h"

#include <gtest/gtest.h>

#include <vector>

namespace fourfold {
namespace {

TEST(Closest, CountsEdits) {
  EXPECT_EQ(edits("", ""), 0u);
  EXPECT_EQ(edits("serve", "serve"), 0u);
  EXPECT_EQ(edits("", "run"), 3u);
  EXPECT_EQ(edits("sevre", "serve"), 1u) << "neighbours exchanged";
  EXPECT_EQ(edits("srve", "serve"), 1u);
  EXPECT_EQ(edits("serves", "serve"), 1u);
  EXPECT_EQ(edits("kitten", "sitting"), 3u);
  EXPECT_EQ(edits(std::string(65, 'a'), "a"), 65u) << "too long to compare";
}

TEST(Closest, NamesWhatWasMeant) {
  const std::vector<std::string> names{"serve", "run", "chat", "inspect", "--max-tokens", "--max-context"};
  EXPECT_EQ(closest("sevre", names), "serve");
  EXPECT_EQ(closest("chta", names), "chat");
  EXPECT_EQ(closest("--max-tokns", names), "--max-tokens");
  EXPECT_EQ(closest("insp", names), "inspect") << "its beginning";
  EXPECT_EQ(closest("xy", names), "");
  EXPECT_EQ(closest("Hello", names), "");
  EXPECT_EQ(closest("ru", names), "") << "too short to be sure";
  EXPECT_EQ(closest("", names), "");
}

}  // namespace
}  // namespace fourfold
