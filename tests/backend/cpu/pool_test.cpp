#include "backend/cpu/pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <stdexcept>

namespace fourfold::backend::cpu {
namespace {

TEST(ThreadPool, DoesEveryItemOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.thread_count(), threads);
    for (int loop = 0; loop < 2000; ++loop) {
      std::vector<int> done(static_cast<std::size_t>(loop % 37));
      pool.run(static_cast<std::int64_t>(done.size()),
               [&](std::int64_t item) { ++done[static_cast<std::size_t>(item)]; });
      EXPECT_EQ(std::accumulate(done.begin(), done.end(), 0), loop % 37);
    }
  }
}

TEST(ThreadPool, RangesCoverEverything) {
  ThreadPool pool(3);
  std::vector<int> done(1001);
  pool.run_ranges(1001, 10, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_LE(end - begin, 10);
    for (std::int64_t i = begin; i < end; ++i) ++done[static_cast<std::size_t>(i)];
  });
  for (const int count : done) EXPECT_EQ(count, 1);
  pool.run_ranges(0, 10, [&](std::int64_t, std::int64_t) { ADD_FAILURE(); });
}

TEST(ThreadPool, WakesWhoSleeps) {
  ThreadPool pool(4);
  for (int loop = 0; loop < 20; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> sum{0};
    pool.run(100, [&](std::int64_t item) { sum += static_cast<int>(item); });
    EXPECT_EQ(sum, 4950);
  }
}

TEST(ThreadPool, TheCallerGetsWhatWorkThrows) {
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    for (int loop = 0; loop < 200; ++loop) {
      const auto work = [](std::int64_t item) {
        if (item % 7 == 3) throw std::runtime_error("no memory");
      };
      EXPECT_THROW(pool.run(100, work), std::runtime_error);
      std::atomic<int> sum{0};
      pool.run(100, [&](std::int64_t item) { sum += static_cast<int>(item); });
      EXPECT_EQ(sum, 4950) << "the next loop knows nothing of it";
    }
  }
}

TEST(ThreadPool, FewerThreadsThanAskedAreSaid) {
  EXPECT_EQ(thread_notice(4, 4), "");
  const std::string notice = thread_notice(16, 3);
  EXPECT_NE(notice.find("16 threads were asked for, the system gave 3"), std::string::npos) << notice;
}

TEST(ThreadPool, SomeCpuIsAllowed) { EXPECT_FALSE(allowed_cpus().empty()); }

}  // namespace
}  // namespace fourfold::backend::cpu
