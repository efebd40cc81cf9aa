#include "nodes/group.h"

#include <gtest/gtest.h>

#include "backend/collective.h"
#include "nodes/handshake.h"
#include "tests/checkpoint/support.h"

namespace fourfold::nodes {
namespace {

void join(Group& group, int rank) {
  EXPECT_EQ(group.take(rank), rank);
  group.begin(rank, nullptr);
  group.finish(rank, {});
}

TEST(Group, PlacesAreTakenOnce) {
  Group group(3);
  EXPECT_EQ(group.take(-1), 1);
  EXPECT_EQ(group.take(-1), 2);
  for (const int wanted : {-1, 1, 2}) {
    try {
      group.take(wanted);
      ADD_FAILURE() << wanted;
    } catch (const Refused& refused) {
      EXPECT_TRUE(refused.later()) << wanted;
    }
  }
  group.leave(2);
  EXPECT_EQ(group.take(2), 2);
  for (const int wanted : {-2, 0, 3}) {
    try {
      group.take(wanted);
      ADD_FAILURE() << wanted;
    } catch (const Refused& refused) {
      EXPECT_FALSE(refused.later()) << wanted;
    }
  }
}

// A step that was under way knew the rank as it was before: it is used again when all have been mended.
TEST(Group, WhoIsBackIsNotUsedBeforeAllAreMended) {
  Group group(3);
  join(group, 1), join(group, 2);
  EXPECT_NO_THROW(group.link(1));
  EXPECT_TRUE(group.lose(2, "gone"));
  EXPECT_THROW(group.link(1), backend::RankLost);
  EXPECT_FALSE(group.mend());
  group.leave(2);
  join(group, 2);
  for (const int rank : {1, 2})
    checkpoint::expect_error(Code::device_lost, {"rank 2 of 3 was lost: gone; it is back"},
                             [&] { group.link(rank); });
  EXPECT_TRUE(group.mend());
  EXPECT_NO_THROW(group.link(1));
  EXPECT_EQ(group.away(), "");
}

}  // namespace
}  // namespace fourfold::nodes
