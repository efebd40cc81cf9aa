#include "kernels/all_reduce/nccl_member.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/kernels/all_reduce/fake_nccl.h"

namespace fourfold::all_reduce {
namespace {

std::string error_of(const std::function<void()>& work, Code code) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return std::string(error.what()) + " | " + error.hint();
  }
  return "nothing was refused";
}

TEST(NcclMember, RanksOfAGroupGather) {
  NcclMember one(FOURFOLD_FAKE_NCCL), two(FOURFOLD_FAKE_NCCL);
  EXPECT_EQ(one.version(), "2.27.3");
  EXPECT_FALSE(one.is_connected());
  for (int round = 0; round < 2; ++round) {  // a group that was left can be followed by another
    const NcclMember::Id id = one.make_id();
    std::vector<float> got[2] = {std::vector<float>(6), std::vector<float>(6)};
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        NcclMember& mine = rank == 0 ? one : two;
        mine.connect(id, rank, 2, {});
        for (int call = 0; call < 3; ++call) {
          const std::vector<float> part(3, static_cast<float>(10 * rank + call));
          mine.all_gather(part.data(), got[rank].data(), 3, nullptr);
        }
        mine.require_well();
      });
    threads.clear();
    EXPECT_EQ(got[0], (std::vector<float>{2, 2, 2, 12, 12, 12}));
    EXPECT_EQ(got[1], got[0]);
    one.leave();
    two.leave();
    EXPECT_FALSE(two.is_connected());
  }
}

// Whoever waits for a rank that is gone is let go by leave(), and told so.
TEST(NcclMember, LeavingEndsAWait) {
  const FakeNccl fake;
  NcclMember one(FOURFOLD_FAKE_NCCL), two(FOURFOLD_FAKE_NCCL);
  const NcclMember::Id id = one.make_id();
  std::jthread other([&] { two.connect(id, 1, 2, {}); });
  one.connect(id, 0, 2, {});
  other.join();
  one.require_well();
  fake.tell(2);
  EXPECT_NE(error_of([&] { one.require_well(); }, Code::device_lost)
                .find("NCCL, behind a call: unhandled system error (2)"),
            std::string::npos);
  fake.tell(0);
  std::jthread leaves([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    one.leave();
  });
  std::vector<float> part(3), all(6);
  for (int call = 0; call < 2; ++call)  // the second when there is no group any more
    EXPECT_NE(error_of([&] { one.all_gather(part.data(), all.data(), 3, nullptr); }, Code::device_lost)
                  .find("the group was left"),
              std::string::npos);
}

// NCCL frees a communicator that is aborted: nobody may be in a call of it, nor make another.
TEST(NcclMember, AGroupIsNotLeftInTheMiddleOfACall) {
  const FakeNccl fake;
  const int before = fake.misuses();
  NcclMember one(FOURFOLD_FAKE_NCCL), two(FOURFOLD_FAKE_NCCL);
  for (int round = 0; round < 20; ++round) {
    const NcclMember::Id id = one.make_id();
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        NcclMember& mine = rank == 0 ? one : two;
        std::vector<float> part(3), all(6);
        const auto gather_on = [&] {
          mine.connect(id, rank, 2, {});
          for (;;) mine.all_gather(part.data(), all.data(), 3, nullptr);
        };
        EXPECT_NE(error_of(gather_on, Code::device_lost).find("the group was left"), std::string::npos);
      });
    std::jthread watches([&] {  // as the thread that looks after a step does
      for (int look = 0; look < 100; ++look) one.require_well(), two.require_well();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    while (!one.is_connected() || !two.is_connected()) std::this_thread::yield();
    one.leave();
    two.leave();
  }
  EXPECT_EQ(fake.misuses(), before);
}

// NCCL waits for all ranks, for ever. The wait has an end, whoever knows more can end it, and another group
// can be made behind it.
TEST(NcclMember, ARankThatNeverJoinsIsNotWaitedForForEver) {
  using namespace std::chrono_literals;
  NcclMember one(FOURFOLD_FAKE_NCCL);
  const std::string late =
      error_of([&] { one.connect(one.make_id(), 0, 2, {.patience = 200ms}); }, Code::device_lost);
  EXPECT_NE(late.find("NCCL has not connected the 2 ranks within 200 ms"), std::string::npos) << late;
  EXPECT_FALSE(one.is_connected());
  const auto look = [looks = 0]() mutable {
    if (++looks == 10) fail(Code::io, "rank 1 was switched off");
  };
  EXPECT_NE(error_of([&] { one.connect(one.make_id(), 0, 2, {.look = look}); }, Code::io)
                .find("rank 1 was switched off"),
            std::string::npos);
  EXPECT_FALSE(one.is_connected());
  one.connect(one.make_id(), 0, 1, {});
  EXPECT_TRUE(one.is_connected());
}

TEST(NcclMember, AnErrorWhileTheRanksConnectIsTold) {
  const FakeNccl fake;
  fake.tell(2);
  NcclMember one(FOURFOLD_FAKE_NCCL);
  EXPECT_NE(error_of([&] { one.connect(one.make_id(), 0, 2, {}); }, Code::device_lost)
                .find("NCCL, connecting the ranks: unhandled system error (2)"),
            std::string::npos);
  EXPECT_FALSE(one.is_connected());
}

TEST(NcclMember, SaysWhyItCannot) {
  const std::string missing =
      error_of([] { NcclMember library("libnccl-not-here.so.2"); }, Code::unsupported_op);
  EXPECT_NE(missing.find("NCCL cannot be opened: libnccl-not-here.so.2"), std::string::npos) << missing;
  EXPECT_NE(missing.find("FOURFOLD_NCCL=path"), std::string::npos) << missing;
  EXPECT_NE(missing.find("--collective tcp"), std::string::npos) << missing;
  NcclMember library(FOURFOLD_FAKE_NCCL);
  const std::string wrong = error_of([&] { library.connect(NcclMember::Id{}, 0, 2, {}); }, Code::device_lost);
  EXPECT_NE(wrong.find("NCCL, connecting the ranks: invalid argument (4)"), std::string::npos) << wrong;
  EXPECT_FALSE(library.is_connected());
}

TEST(NcclMember, TheFileIsTheUsersOrTheSystems) {
  unsetenv("FOURFOLD_NCCL");
  EXPECT_EQ(nccl_file(), "libnccl.so.2");
  setenv("FOURFOLD_NCCL", "/opt/nccl/libnccl.so.2", 1);
  EXPECT_EQ(nccl_file(), "/opt/nccl/libnccl.so.2");
  unsetenv("FOURFOLD_NCCL");
}

}  // namespace
}  // namespace fourfold::all_reduce
