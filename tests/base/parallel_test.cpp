#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace fourfold {
namespace {

TEST(ParallelFor, CoversEachIndexOnceInRangesOfTheGrain) {
  for (const std::int64_t count : {0, 1, 2, 7, 64, 1000}) {
    for (const std::int64_t grain : {1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
        EXPECT_LT(begin, end);
        EXPECT_LE(end - begin, grain);
        EXPECT_EQ(begin % grain, 0);
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      for (const auto& visit : visits) EXPECT_EQ(visit.load(), 1);
    }
  }
}

TEST(ParallelFor, HugeCountsDoNotOverflow) {
  std::atomic<std::int64_t> last{0};
  parallel_for(INT64_MAX, INT64_MAX / 2, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_LT(begin, end);
    if (end == INT64_MAX) last = end;
  });
  EXPECT_EQ(last.load(), INT64_MAX);
}

TEST(ParallelFor, OneRangeRunsOnTheCaller) {
  std::thread::id ran_on;
  parallel_for(10, 10, [&](std::int64_t, std::int64_t) { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

// Several ranges fail, late and early ones at once: the lowest is reported every time.
TEST(ParallelFor, ReportsTheLowestFailure) {
  for (int round = 0; round < 50; ++round) {
    try {
      parallel_for(100, 1, [&](std::int64_t begin, std::int64_t) {
        if (begin == 5) std::this_thread::yield();
        if (begin >= 5) throw std::runtime_error("range " + std::to_string(begin));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "range 5");
    }
  }
}

TEST(ParallelFor, NestedCallsStayOnTheirThread) {
  std::atomic<int> inner_ranges{0};
  parallel_for(8, 1, [&](std::int64_t, std::int64_t) {
    const auto outer_thread = std::this_thread::get_id();
    parallel_for(16, 1, [&](std::int64_t, std::int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), outer_thread);
      ++inner_ranges;
    });
  });
  EXPECT_EQ(inner_ranges.load(), 8 * 16);
}

TEST(ParallelFor, NestedFailuresReachTheOutermostCaller) {
  EXPECT_THROW(parallel_for(4, 1,
                            [](std::int64_t, std::int64_t) {
                              parallel_for(4, 1, [](std::int64_t, std::int64_t) {
                                throw std::runtime_error("inner");
                              });
                            }),
               std::runtime_error);
  int after = 0;
  parallel_for(1, 1, [&](std::int64_t, std::int64_t) { ++after; });
  EXPECT_EQ(after, 1) << "a failure leaves nothing behind";
}

}  // namespace
}  // namespace fourfold
