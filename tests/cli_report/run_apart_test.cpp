// Code in a process of its own: what it says arrives, however it ends.
#include "cli/run_apart.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/error.h"
#include "tests/cli_report/support.h"

namespace fourfold::cli {
namespace {

using End = Apart::End;

void sleep_long() { std::this_thread::sleep_for(std::chrono::seconds(60)); }

TEST(RunApart, GivesStatusAndBothStreams) {
  const TestFolder folder;
  const pid_t here = ::getpid();
  const Apart ended = run_apart(
      [&](const Console& console) {
        console.out << "out " << (::getpid() != here) << "\n";
        console.err << "err\n";
        return static_cast<int>(kMiss);
      },
      folder.path(), {});
  EXPECT_EQ(ended.end, End::returned);
  EXPECT_EQ(ended.status, kMiss);
  EXPECT_EQ(ended.out, "out 1\n");
  EXPECT_EQ(ended.err, "err\n");
}

TEST(RunApart, AnErrorIsItsSentence) {
  const TestFolder folder;
  const Apart ended =
      run_apart([](const Console&) -> int { fail_with_hint(Code::io, "Do this.", "it is {} full", 7); },
                folder.path(), {});
  EXPECT_EQ(ended.end, End::returned);
  EXPECT_EQ(ended.status, kFailed);
  EXPECT_EQ(ended.err, "fourfold: it is 7 full\n  Do this.\n");
}

// What was written before it died is there.
TEST(RunApart, ACrashCostsTheChildAlone) {
  const TestFolder folder;
  const Apart ended = run_apart(
      [](const Console& console) -> int {
        console.out << "half a table\n" << std::flush;
        ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit
        ::raise(SIGSEGV);
        return kFine;
      },
      folder.path(), {});
  EXPECT_EQ(ended.end, End::killed);
  EXPECT_EQ(ended.status, SIGSEGV);
  EXPECT_EQ(ended.out, "half a table\n");
}

TEST(RunApart, AHangIsEnded) {
  const TestFolder folder;
  int ticks = 0;
  ApartLimits limits;
  limits.seconds = 0.3;
  limits.tick = [&](double) { ++ticks; };
  const Apart ended = run_apart(
      [](const Console&) {
        sleep_long();
        return static_cast<int>(kFine);
      },
      folder.path(), limits);
  EXPECT_EQ(ended.end, End::out_of_time);
  EXPECT_GT(ticks, 0);
  EXPECT_LT(ended.seconds, 30);
}

TEST(RunApart, IsStoppedWhenAsked) {
  const TestFolder folder;
  ApartLimits limits;
  limits.is_over = [] { return true; };
  const Apart ended = run_apart(
      [](const Console&) {
        sleep_long();
        return static_cast<int>(kFine);
      },
      folder.path(), limits);
  EXPECT_EQ(ended.end, End::stopped);
}

// What a hung part had printed is there, though it never flushed.
TEST(RunApart, WordsBeforeAHangAreKept) {
  const TestFolder folder;
  const Apart ended = run_apart(
      [](const Console& console) {
        console.out << "a line\n";
        sleep_long();
        return static_cast<int>(kFine);
      },
      folder.path(), {.seconds = 0.3});
  EXPECT_EQ(ended.end, End::out_of_time);
  EXPECT_EQ(ended.out, "a line\n");
}

TEST(RunApart, OutputThatCannotBeKeptIsAnError) {
  const TestFolder folder;
  const Apart ended = run_apart(
      [](const Console& console) {
        ::dup2(::open("/dev/full", O_WRONLY), STDOUT_FILENO);
        console.out << "lost\n";
        return static_cast<int>(kFine);
      },
      folder.path(), {});
  EXPECT_EQ(ended.end, End::returned);
  EXPECT_EQ(ended.status, kFailed);
  EXPECT_NE(ended.err.find("its output could not be written"), std::string::npos) << ended.err;
}

TEST(RunApart, AProcessThatCannotBeEndedIsNotWaitedForForever) {
  const TestFolder folder;
  const auto start = std::chrono::steady_clock::now();
  const Apart ended = run_apart(
      [](const Console& console) {
        console.out << "held\n";
        return traced_by_a_sleeper() ? static_cast<int>(kFine) : static_cast<int>(kMiss);
      },
      folder.path(), {.seconds = 0.3, .stuck_seconds = 0.3});
  if (ended.end == End::returned) GTEST_SKIP() << "no process may be traced here";
  EXPECT_EQ(ended.end, End::out_of_time);
  EXPECT_TRUE(ended.is_stuck);
  EXPECT_EQ(ended.out, "held\n");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  reap_all();
}

}  // namespace
}  // namespace fourfold::cli
