#include "kernels/all_reduce/nccl_member.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"

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
        mine.connect(id, rank, 2);
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

// Whoever waits for a rank that is gone is let go by leave(), and told in the library's own words.
TEST(NcclMember, LeavingEndsAWait) {
  NcclMember one(FOURFOLD_FAKE_NCCL), two(FOURFOLD_FAKE_NCCL);
  const NcclMember::Id id = one.make_id();
  std::jthread other([&] { two.connect(id, 1, 2); });
  one.connect(id, 0, 2);
  other.join();
  one.require_well();
  setenv("FAKE_NCCL_ASYNC_ERROR", "2", 1);
  EXPECT_NE(error_of([&] { one.require_well(); }, Code::device_lost)
                .find("NCCL, behind a call: unhandled system error (2)"),
            std::string::npos);
  unsetenv("FAKE_NCCL_ASYNC_ERROR");
  std::jthread leaves([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    one.leave();
  });
  std::vector<float> part(3), all(6);
  EXPECT_NE(error_of([&] { one.all_gather(part.data(), all.data(), 3, nullptr); }, Code::device_lost)
                .find("NCCL, gathering the ranks' parts: unhandled system error (2)"),
            std::string::npos);
  leaves.join();
  EXPECT_NE(error_of([&] { one.all_gather(part.data(), all.data(), 3, nullptr); }, Code::device_lost)
                .find("the group was left"),
            std::string::npos);
}

TEST(NcclMember, SaysWhyItCannot) {
  const std::string missing =
      error_of([] { NcclMember library("libnccl-not-here.so.2"); }, Code::unsupported_op);
  EXPECT_NE(missing.find("NCCL cannot be opened: libnccl-not-here.so.2"), std::string::npos) << missing;
  EXPECT_NE(missing.find("FOURFOLD_NCCL=path"), std::string::npos) << missing;
  EXPECT_NE(missing.find("--collective tcp"), std::string::npos) << missing;
  NcclMember library(FOURFOLD_FAKE_NCCL);
  const std::string wrong = error_of([&] { library.connect(NcclMember::Id{}, 0, 2); }, Code::device_lost);
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
