#include "base/largest.h"

#include <gtest/gtest.h>

namespace fourfold {
namespace {

TEST(Largest, IsTheLastForWhichItHolds) {
  for (std::int64_t last = 0; last <= 20; ++last)
    EXPECT_EQ(largest(0, 20, [&](std::int64_t at) { return at <= last; }), last);
  EXPECT_EQ(largest(3, 20, [](std::int64_t) { return false; }), 3);
  EXPECT_EQ(largest(5, 5, [](std::int64_t) { return false; }), 5) << "nothing to ask";
}

}  // namespace
}  // namespace fourfold
