#include "backend/ranks/host_collective.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "tests/backend/support.h"

namespace fourfold::backend {
namespace {

void on_each_rank(int rank_count, const std::function<void(int rank)>& work) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < rank_count; ++rank) threads.emplace_back([&work, rank] { work(rank); });
}

// Numbers of very different sizes: another order of additions would give other bits.
TEST(HostCollective, SumsInRankOrderTheSameOnEveryRank) {
  constexpr int count = 4;
  constexpr std::size_t size = 1000;
  std::vector<std::vector<float>> in;
  for (std::uint64_t rank = 0; rank < count; ++rank)
    in.push_back(random_floats(size, rank, rank == 1 ? 1e6 : rank == 2 ? 1e-3 : 1));
  const auto collective = make_host_collective(count, std::chrono::seconds(60));
  std::vector<std::vector<float>> out(count, std::vector<float>(size));
  on_each_rank(count, [&](int rank) {
    for (int round = 0; round < 50; ++round)  // mailboxes are used again and again
      collective->all_reduce(rank, "sum", in[static_cast<std::size_t>(rank)],
                             out[static_cast<std::size_t>(rank)]);
  });
  bool order_matters = false;
  for (std::size_t i = 0; i < size; ++i) {
    const float wanted = ((in[0][i] + in[1][i]) + in[2][i]) + in[3][i];
    for (const auto& rank : out) ASSERT_EQ(rank[i], wanted) << i;
    order_matters = order_matters || wanted != ((in[3][i] + in[2][i]) + in[1][i]) + in[0][i];
  }
  EXPECT_TRUE(order_matters) << "the numbers prove nothing";
}

TEST(HostCollective, GathersColumnsInRankOrder) {
  const auto collective = make_host_collective(2, std::chrono::seconds(60));
  const std::vector<float> in[] = {{1, 2, 3, 4}, {5, 6, 7, 8}};  // [2, 2] each
  std::vector<float> out[] = {std::vector<float>(8), std::vector<float>(8)};
  on_each_rank(2, [&](int rank) {
    collective->all_gather(rank, "logits", 2, in[rank], out[rank]);
    collective->all_gather(rank, "logits", 0, {}, {});  // no row was asked
  });
  for (const auto& rank : out) EXPECT_EQ(rank, (std::vector<float>{1, 2, 5, 6, 3, 4, 7, 8}));
}

// Ranks that failed in different calls meet in the same one again.
TEST(HostCollective, BeginsAnewBehindAFailure) {
  const auto collective = make_host_collective(2, std::chrono::seconds(60));
  std::vector<float> x(4, 1);
  collective->give_up(1, "rank 1 of 2 is lost");
  for (int call = 0; call < 3; ++call) EXPECT_THROW(collective->all_reduce(0, "sum", x, x), RankLost);
  EXPECT_THROW(collective->require_all_there(0), RankLost);  // for who meets the others elsewhere
  const std::uint64_t before = collective->generation();
  collective->mend();
  EXPECT_NE(collective->generation(), before);
  EXPECT_NO_THROW(collective->require_all_there(0));
  std::vector<float> out[] = {std::vector<float>(4), std::vector<float>(4)};
  on_each_rank(2, [&](int rank) {
    for (int call = 0; call < 5; ++call)
      collective->all_reduce(rank, "sum", std::vector<float>(4, static_cast<float>(call + rank)), out[rank]);
  });
  for (const auto& rank : out) EXPECT_EQ(rank, std::vector<float>(4, 9));
}

TEST(HostCollective, ARankThatSendsAnotherSizeIsLost) {
  const auto collective = make_host_collective(2, std::chrono::seconds(60));
  std::atomic<int> told = 0;
  on_each_rank(2, [&](int rank) {
    std::vector<float> x(rank == 0 ? 4 : 5);
    try {
      collective->all_reduce(rank, "sum", x, x);
    } catch (const RankLost&) {
      ++told;
    }
  });
  EXPECT_EQ(told, 2);
}

TEST(HostCollective, WhoeverWaitsIsToldWhoDidNotCome) {
  const auto collective = make_host_collective(3, std::chrono::milliseconds(300));
  int told = 0;
  std::mutex mutex;
  on_each_rank(2, [&](int rank) {  // rank 2 is not there
    std::vector<float> x(4);
    try {
      collective->all_reduce(rank, "layers.0.mixer_sum", x, x);
    } catch (const RankLost& lost) {
      const std::lock_guard lock(mutex);
      ++told;
      EXPECT_EQ(lost.rank(), 2);
      EXPECT_NE(std::string(lost.what()).find("rank 2 of 3 has not come to layers.0.mixer_sum within 300 ms"),
                std::string::npos)
          << lost.what();
    }
  });
  EXPECT_EQ(told, 2);
  // Nobody waits for it again, not even who comes late.
  std::vector<float> x(4);
  EXPECT_THROW(collective->all_reduce(2, "layers.0.mixer_sum", x, x), RankLost);
}

TEST(HostCollective, GivingUpWakesThoseWhoWait) {
  const auto collective = make_host_collective(2, std::chrono::hours(1));
  on_each_rank(2, [&](int rank) {
    std::vector<float> x(4);
    if (rank == 1) return collective->give_up(1, "its memory is full");
    EXPECT_THROW(collective->all_reduce(rank, "sum", x, x), RankLost);
  });
}

// Whoever fails because of it is not to blame.
TEST(HostCollective, TheFirstFailureIsTheOneThatIsTold) {
  const auto collective = make_host_collective(3, std::chrono::hours(1));
  collective->give_up(1, "its memory is full");
  collective->give_up(2, "rank 1 is lost");
  std::vector<float> x(4);
  try {
    collective->all_reduce(0, "sum", x, x);
    ADD_FAILURE() << "a sum without two ranks";
  } catch (const RankLost& lost) {
    EXPECT_EQ(lost.rank(), 1);
    EXPECT_NE(std::string(lost.what()).find("its memory is full"), std::string::npos) << lost.what();
  }
}

}  // namespace
}  // namespace fourfold::backend
