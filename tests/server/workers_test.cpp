#include "server/workers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

namespace fourfold::server {
namespace {

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 5'000 && !condition(); ++i) usleep(1'000);
  return condition();
}

// One worker, held until the line is as the test wants it.
class Line {
 public:
  Line() {
    add("gate", [this](bool) { gate_.wait(false); });
    EXPECT_TRUE(eventually([&] { return workers.status().busy == 1; }));
  }
  ~Line() { open(); }
  Workers::Answer add(const std::string& client, std::function<void(bool)> work, std::size_t bytes = 1,
                      std::function<bool()> wanted = {}) {
    return workers.add(
        {.client = client, .bytes = bytes, .wanted = std::move(wanted), .work = std::move(work)});
  }
  void open() {
    gate_ = true;
    gate_.notify_all();
  }

 private:
  std::atomic<bool> gate_{false};

 public:
  Workers workers{1, 100, 10'000};
};

TEST(Workers, ClientsTakeTurns) {
  std::string order;
  {
    Line line;
    for (const char who : {'a', 'a', 'a', 'a', 'b', 'b', 'c'})
      EXPECT_EQ(line.add(std::string(1, who), [&order, who](bool) { order += who; }), Workers::Answer::taken);
    line.open();
    EXPECT_TRUE(
        eventually([&] { return line.workers.status().waiting == 0 && line.workers.status().busy == 0; }));
  }
  EXPECT_EQ(order, "abcabaa");
}

TEST(Workers, WorkOfClientsThatLeftIsNotBegun) {
  Line line;
  std::atomic<int> ran{0}, dropped{0};
  std::atomic<bool> there{true};
  const auto work = [&](bool wanted) { ++(wanted ? ran : dropped); };
  for (int i = 0; i < 10; ++i) line.add("a", work, 1, [&there, i] { return there || i % 2 == 0; });
  there = false;
  line.open();
  EXPECT_TRUE(eventually([&] { return ran + dropped == 10; }));
  EXPECT_EQ(ran, 5);
  EXPECT_TRUE(eventually([&] { return line.workers.status().skipped == 5; }));
}

TEST(Workers, OneClientNeverTakesAllRoom) {
  Line line;
  int taken = 0;
  Workers::Answer last = Workers::Answer::taken;
  while ((last = line.add("greedy", [](bool) {})) == Workers::Answer::taken) ++taken;
  EXPECT_EQ(last, Workers::Answer::client_has_its_share);
  EXPECT_EQ(taken, 75);
  EXPECT_EQ(line.add("other", [](bool) {}), Workers::Answer::taken);
  // And of bytes: three times what is left.
  EXPECT_EQ(line.add(
                "large", [](bool) {}, 9'000),
            Workers::Answer::client_has_its_share);
  EXPECT_EQ(line.add(
                "large", [](bool) {}, 7'000),
            Workers::Answer::taken);
  EXPECT_EQ(line.add(
                "small", [](bool) {}, 1'000),
            Workers::Answer::taken);
  EXPECT_EQ(line.add(
                "large", [](bool) {}, 10'001),
            Workers::Answer::all_is_taken);
}

TEST(Workers, ALoneBodyOfAnySizeIsTaken) {
  Workers workers(1, 10, 100);
  std::atomic<bool> ran{false};
  EXPECT_EQ(workers.add({.client = "a", .bytes = 1'000'000, .wanted = {}, .work = [&](bool) { ran = true; }}),
            Workers::Answer::taken);
  EXPECT_TRUE(eventually([&] { return ran.load(); }));
}

TEST(Workers, SaysHowLongItWorks) {
  Workers workers(2, 10, 100);
  std::atomic<bool> gate{false};
  const auto wait = [&](bool) { gate.wait(false); };
  EXPECT_EQ(workers.status().busy, 0u);
  workers.add({.client = "a", .bytes = 1, .wanted = {}, .work = wait});
  EXPECT_TRUE(eventually([&] { return workers.status().longest > std::chrono::milliseconds(20); }));
  EXPECT_EQ(workers.status().shortest, Workers::Clock::duration{}) << "one is free";
  workers.add({.client = "a", .bytes = 1, .wanted = {}, .work = wait});
  EXPECT_TRUE(eventually([&] { return workers.status().shortest > std::chrono::milliseconds(20); }));
  EXPECT_GT(workers.status().longest, workers.status().shortest);
  gate = true;
  gate.notify_all();
  EXPECT_TRUE(eventually([&] { return workers.status().busy == 0; }));
}

}  // namespace
}  // namespace fourfold::server
