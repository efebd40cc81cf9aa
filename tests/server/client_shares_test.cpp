#include "server/client_shares.h"

#include <gtest/gtest.h>

namespace fourfold::server {
namespace {

using Answer = ClientShares::Answer;

TEST(ClientShares, LeavesRoomForWhoeverComes) {
  ClientShares shares(1000);
  std::size_t alone = 0;
  while (shares.take("a", 1) == Answer::taken) ++alone;
  EXPECT_EQ(alone, 750u);
  // However many clients there are that take what they can, the next one finds some room.
  std::size_t before = alone;
  for (const char* client : {"b", "c", "d"}) {
    std::size_t taken = 0;
    while (shares.take(client, 1) == Answer::taken) ++taken;
    EXPECT_GT(taken, 0u) << client;
    EXPECT_LE(taken, before) << client;
    before = taken;
  }
  EXPECT_LT(shares.all(), 1000u);
  EXPECT_EQ(shares.take("a", 1), Answer::client_has_its_share);
  EXPECT_EQ(shares.take("e", 1000), Answer::all_is_taken);
}

TEST(ClientShares, GivesBackAndForgets) {
  ClientShares shares(100, 40);
  EXPECT_EQ(shares.take("a", 40), Answer::taken);
  EXPECT_EQ(shares.take("b", 40), Answer::taken) << "the least each can have";
  EXPECT_EQ(shares.take("c", 20), Answer::taken);
  EXPECT_EQ(shares.take("d", 1), Answer::all_is_taken);
  EXPECT_EQ(shares.take("d", 0), Answer::taken);
  shares.give_back("a", 40);
  shares.give_back("nobody", 7);
  EXPECT_EQ(shares.all(), 60u);
  EXPECT_EQ(shares.client_count(), 2u);
  EXPECT_EQ(shares.of("b"), 40u);
}

}  // namespace
}  // namespace fourfold::server
