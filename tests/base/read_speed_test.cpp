#include "base/read_speed.h"

#include <gtest/gtest.h>

namespace fourfold {
namespace {

// Slower than a hard disk or faster than every memory made so far: then it measured something else.
TEST(ReadSpeed, IsPlausible) {
  const double speed = measure_read_gb_per_s(std::size_t{64} << 20);
  EXPECT_GT(speed, 0.05);
  EXPECT_LT(speed, 20'000);
  EXPECT_EQ(measure_read_gb_per_s(0), 0);
}

}  // namespace
}  // namespace fourfold
