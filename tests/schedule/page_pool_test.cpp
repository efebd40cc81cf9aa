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

TEST(PagePool, IdlePagesAreTheIndexsAlone) {
  PagePool pool(3);
  const std::int32_t page = *pool.acquire();
  pool.share(page);
  pool.set_indexed(page, true);
  EXPECT_EQ(pool.idle_count(), 0) << "a request holds it too";
  pool.release(page);
  EXPECT_EQ(pool.idle_count(), 1);
  pool.share(page);
  EXPECT_EQ(pool.idle_count(), 0);
  pool.release(page);
  pool.set_indexed(page, false);
  EXPECT_EQ(pool.idle_count(), 0);
  pool.release(page);
  EXPECT_EQ(pool.free_count(), 3);
}

}  // namespace
}  // namespace fourfold::schedule
