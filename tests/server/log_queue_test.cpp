#include "server/log_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

namespace fourfold::server {
namespace {

using std::chrono::milliseconds;

TEST(LogQueue, WritesLinesInTheirOrder) {
  std::string written;
  {
    LogQueue log([&](const std::string& line) { written += line; });
    for (int i = 0; i < 100; ++i) log.add("line " + std::to_string(i));
    EXPECT_TRUE(log.flush(milliseconds(5'000)));
    EXPECT_EQ(log.dropped(), 0u);
  }
  EXPECT_TRUE(written.starts_with("line 0\nline 1\n"));
  EXPECT_TRUE(written.ends_with("line 99\n"));
}

// A pipe nobody reads: whoever logs never waits, and when it is read again the missing lines are counted.
TEST(LogQueue, APipeThatIsFullStopsNobody) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::string read_back;
  {
    LogQueue log(
        [end = ends[1]](const std::string& line) { EXPECT_GT(write(end, line.data(), line.size()), 0); },
        100);
    const std::string line(1000, 'x');
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 10'000; ++i) log.add(line);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
    EXPECT_FALSE(log.flush(milliseconds(50)));
    EXPECT_GT(log.dropped(), 9'000u);
    const std::size_t dropped = log.dropped();
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    char bytes[4096];
    for (int i = 0; i < 5'000 && !log.flush(milliseconds(1)); ++i)
      for (ssize_t got; (got = read(ends[0], bytes, sizeof bytes)) > 0;)
        read_back.append(bytes, static_cast<std::size_t>(got));
    for (ssize_t got; (got = read(ends[0], bytes, sizeof bytes)) > 0;)
      read_back.append(bytes, static_cast<std::size_t>(got));
    EXPECT_NE(read_back.find("warning server " + std::to_string(dropped) + " log lines were dropped"),
              std::string::npos);
  }
  close(ends[0]);
  close(ends[1]);
}

// Its end does not wait for the reader either.
TEST(LogQueue, EndsWhileAWriteHangs) {
  // They outlive the thread that is left behind.
  static std::atomic<bool> hanging{false};
  const auto begin = std::chrono::steady_clock::now();
  {
    LogQueue log([](const std::string&) {
      hanging = true;
      while (true) pause();
    });
    log.add("a line");
    while (!hanging) usleep(1'000);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace fourfold::server
