#include "schedule/page_pool.h"

#include <gtest/gtest.h>

namespace fourfold::schedule {
namespace {

TEST(PagePool, APageIsFreeAgainWhenItsLastHolderLetsGo) {
  PagePool pool(2);
  const auto first = pool.acquire();
  const auto second = pool.acquire();
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, *second);
  EXPECT_FALSE(pool.acquire());
  pool.share(*first);
  pool.release(*first);
  EXPECT_FALSE(pool.acquire()) << "somebody still holds it";
  pool.release(*first);
  EXPECT_EQ(pool.free_count(), 1);
  EXPECT_EQ(pool.acquire(), first);
}

TEST(PagePoolDeathTest, APageNobodyHoldsCannotBeLetGo) {
  PagePool pool(1);
  EXPECT_DEATH(pool.release(0), "only a page in use");
  EXPECT_DEATH(pool.share(0), "only a page in use");
}

}  // namespace
}  // namespace fourfold::schedule
