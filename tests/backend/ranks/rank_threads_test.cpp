#include "backend/ranks/rank_threads.h"

#include <gtest/gtest.h>

#include <atomic>

#include "backend/collective.h"
#include "tests/support/ranks.h"

namespace fourfold::backend {
namespace {

using Hurry = RankThreads::Hurry;

// What run() throws: its code and words.
std::pair<Code, std::string> thrown_by(RankThreads& threads, Hurry hurry, const RankThreads::Job& job) {
  try {
    threads.run(hurry, job);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {Code::internal, "nothing was thrown"};
}

TEST(RankThreads, EachRankDoesEveryJob) {
  std::atomic<int> sum = 0;
  RankThreads threads(3, {}, nullptr);
  for (int round = 0; round < 100; ++round) threads.run(Hurry::patience, [&](int rank) { sum += 1 << rank; });
  EXPECT_EQ(sum, 100 * 7);
}

TEST(RankThreads, WhatAllRefuseIsRefusedAndTheyGoOn) {
  RankThreads threads(3, {}, nullptr);
  const auto refused =
      thrown_by(threads, Hurry::patience, [](int) { fail(Code::invalid_request, "no page 7"); });
  EXPECT_EQ(refused, std::pair(Code::invalid_request, std::string("no page 7")));
  threads.run(Hurry::patience, [](int) {});
}

TEST(RankThreads, OneThatFailsEndsAllOfThem) {
  int told = -1;
  RankThreads threads(
      3, {.patience = std::chrono::seconds(60), .give_up = [&](int rank, auto&) { told = rank; }}, nullptr);
  const std::pair wanted(Code::device_lost, std::string("rank 1 of 3 failed: out of paper"));
  EXPECT_EQ(thrown_by(threads, Hurry::patience,
                      [](int rank) {
                        if (rank == 1) throw std::runtime_error("out of paper");
                      }),
            wanted);
  EXPECT_EQ(told, 1);
  bool ran = false;
  EXPECT_EQ(thrown_by(threads, Hurry::patience, [&](int) { ran = true; }), wanted) << "it stays lost";
  EXPECT_FALSE(ran);
}

TEST(RankThreads, AFailureIsForgottenWhenAllAreBack) {
  RankThreads threads(3, {}, nullptr);
  EXPECT_EQ(threads.lost_rank(), -1);
  thrown_by(threads, Hurry::patience, [](int rank) {
    if (rank == 1) throw std::runtime_error("out of paper");
  });
  EXPECT_EQ(threads.lost_rank(), 1);
  ASSERT_TRUE(threads.all_back());
  threads.mend();
  EXPECT_EQ(threads.lost_rank(), -1);
  std::atomic<int> sum = 0;
  threads.run(Hurry::patience, [&](int rank) { sum += 1 << rank; });
  EXPECT_EQ(sum, 7);
}

// give_up tells ranks elsewhere to stop. Whoever begins anew before they have all been told has it end a step
// of the new group.
TEST(RankThreads, NobodyBeginsAnewWhileOthersAreStillTold) {
  const auto door = std::make_shared<Door>();
  std::atomic<bool> tells = false, is_known = false;
  RankThreads threads(2,
                      {.patience = std::chrono::seconds(60),
                       .give_up =
                           [&tells, door](int, auto&) {
                             tells = true;
                             door->pass();
                           }},
                      nullptr);
  std::jthread runs([&] {
    thrown_by(threads, Hurry::patience, [](int rank) {
      if (rank == 1) throw std::runtime_error("out of paper");
    });
    is_known = true;
  });
  while (!tells) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(is_known);
  EXPECT_FALSE(threads.all_back());
  door->open();
  runs.join();
  ASSERT_TRUE(threads.all_back());
  threads.mend();
  threads.run(Hurry::patience, [](int) {});
}

// What they meet in has failed: nobody is to blame, and all can begin anew.
TEST(RankThreads, WhatNoRankAloneHasFailedIsForgotten) {
  RankThreads threads(2, {}, nullptr);
  EXPECT_EQ(thrown_by(threads, Hurry::patience,
                      [](int rank) {
                        if (rank == 0) throw RankLost(kNoRank, "the network is broken");
                      }),
            std::pair(Code::device_lost, std::string("the network is broken")));
  EXPECT_EQ(threads.lost_rank(), kNoRank);
  threads.mend();
  threads.run(Hurry::patience, [](int) {});
}

TEST(RankThreads, WhatOneAloneRefusesIsAFailure) {
  RankThreads threads(2, {}, nullptr);
  EXPECT_EQ(thrown_by(threads, Hurry::patience,
                      [](int rank) {
                        if (rank == 1) fail(Code::invalid_request, "no page 7");
                      }),
            std::pair(Code::device_lost, std::string("rank 1 of 2 failed: no page 7")));
}

// Whoever waited for it in vain speaks first, but knows less.
TEST(RankThreads, TheOneThatRefusedIsHeardBeforeTheOneThatWaited) {
  RankThreads threads(2, {}, nullptr);
  EXPECT_EQ(thrown_by(threads, Hurry::patience,
                      [](int rank) {
                        if (rank == 1) fail(Code::out_of_memory, "5 GB are missing");
                        std::this_thread::sleep_for(std::chrono::milliseconds(50));
                        throw RankLost(1, "rank 0 had no answer from rank 1");
                      }),
            std::pair(Code::device_lost, std::string("rank 1 of 2 failed: 5 GB are missing")));
}

// A model that does not fit on one of them: what it says is the user's business.
TEST(RankThreads, LoadingKeepsTheCode) {
  RankThreads threads(2, {}, nullptr);
  EXPECT_EQ(thrown_by(threads, Hurry::none,
                      [](int rank) {
                        if (rank == 1) fail(Code::out_of_memory, "5 GB are missing");
                      }),
            std::pair(Code::out_of_memory, std::string("rank 1 of 2 failed: 5 GB are missing")));
}

TEST(RankThreads, ThingsThatAreNoExceptionsAreCaughtToo) {
  RankThreads threads(2, {}, nullptr);
  const auto lost = thrown_by(threads, Hurry::patience, [](int rank) {
    if (rank == 0) throw 7;
  });
  EXPECT_EQ(lost.first, Code::device_lost);
  EXPECT_NE(lost.second.find("rank 0 of 2 failed"), std::string::npos) << lost.second;
}

// Its thread cannot be ended: it is left behind with all that it may still touch.
TEST(RankThreads, OneThatStallsIsLeftBehind) {
  const auto door = std::make_shared<Door>();
  auto kept = std::make_shared<int>(7);
  const std::weak_ptr<int> alive = kept;
  {
    RankThreads threads(2, {.patience = std::chrono::milliseconds(200), .give_up = {}}, kept);
    kept.reset();
    EXPECT_EQ(
        thrown_by(threads, Hurry::patience,
                  [door](int rank) {
                    if (rank == 1) door->pass();
                  }),
        std::pair(Code::device_lost, std::string("rank 1 of 2 was not done 200 ms after the first of them")));
  }
  EXPECT_FALSE(alive.expired());
  door->open();
  for (int i = 0; i < 1000 && !alive.expired(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(alive.expired()) << "nobody let it go";
}

}  // namespace
}  // namespace fourfold::backend
