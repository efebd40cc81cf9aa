#include "server/rate_limiter.h"

#include <gtest/gtest.h>

namespace fourfold::server {
namespace {

TEST(RateLimiter, SaysWhenToComeAgainHoweverSlowItIs) {
  const RateLimiter::Clock::time_point now{};
  RateLimiter two(2);
  EXPECT_FALSE(two.take("a", now));
  EXPECT_FALSE(two.take("a", now));
  EXPECT_EQ(two.take("a", now), 1);
  EXPECT_FALSE(two.take("b", now));
  for (const double rate : {1e-10, 1e-300}) {
    RateLimiter slow(rate);
    EXPECT_FALSE(slow.take("a", now));
    EXPECT_EQ(slow.take("a", now), 1'000'000);
  }
}

}  // namespace
}  // namespace fourfold::server
