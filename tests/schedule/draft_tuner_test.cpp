#include "schedule/draft_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <random>

namespace fourfold::schedule {
namespace {

using Seconds = std::function<double(std::int64_t sequences, int drafts)>;

// A step costs 1 up to so many rows and then grows with them; drafts cost a little each.
Seconds free_up_to(double free_rows) {
  return [=](std::int64_t sequences, int drafts) {
    return std::max(1.0, static_cast<double>(sequences * (1 + drafts)) / free_rows) + 0.05 * drafts;
  };
}

// A machine and a text: each draft is accepted so often, one after another.
struct World {
  std::int64_t sequences;
  double acceptance;
  Seconds seconds;
  DraftTuner tuner{DraftTuner::kDraftsMost};
  std::mt19937 random{7};

  int step() {
    DraftTuner::Step step{
        .sequence_count = sequences, .draft_count = tuner.choose(sequences), .accepted = {}, .seconds = 0};
    for (std::int64_t s = 0; s < sequences; ++s)
      for (int i = 0; i < step.draft_count && std::bernoulli_distribution(acceptance)(random); ++i)
        ++step.accepted[static_cast<std::size_t>(i)];
    step.seconds = seconds(sequences, step.draft_count);
    tuner.note(step);
    return step.draft_count;
  }
  // What it chooses most in so many steps.
  int settled(int steps) {
    int counts[DraftTuner::kDraftsMost + 1] = {};
    for (int i = 0; i < steps; ++i) ++counts[step()];
    return static_cast<int>(std::max_element(counts, std::end(counts)) - counts);
  }
};

int settled(std::int64_t sequences, double acceptance, double free_rows) {
  World world{sequences, acceptance, free_up_to(free_rows)};
  world.settled(1000);
  return world.settled(1000);
}

TEST(DraftTuner, ManyDraftsForOneUserWhoAcceptsThem) { EXPECT_EQ(settled(1, 0.95, 16), 5); }
TEST(DraftTuner, NoneUnderLoad) { EXPECT_EQ(settled(64, 0.6, 16), 0); }
TEST(DraftTuner, NoneWhereNoneAreAccepted) { EXPECT_EQ(settled(1, 0.0, 16), 0); }
TEST(DraftTuner, SomeForAFew) {
  const int count = settled(4, 0.85, 16);
  EXPECT_GE(count, 2);
  EXPECT_LE(count, 4);
}

// Two numbers are tried, eight steps; the others are predicted from them.
TEST(DraftTuner, KnowsAfterTwoTrials) {
  World few{1, 1.0, free_up_to(16)};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(few.step(), i < 4 ? 3 : 4);
  EXPECT_EQ(few.step(), 5);
  World many{64, 0.6, free_up_to(16)};
  for (int i = 0; i < 8; ++i) many.step();
  EXPECT_EQ(many.step(), 0);
}

// A processor that is busy with one row already: no drafts pay, and that is known within an answer.
TEST(DraftTuner, FindsOutSoonThatDraftsDoNotPay) {
  World world{1, 0.6, [](std::int64_t, int drafts) { return 1.0 + drafts; }};
  for (int i = 0; i < 16; ++i) world.step();
  int drafted = 0;
  for (int i = 0; i < 64; ++i) drafted += world.step();
  EXPECT_EQ(drafted, 0);
}

// A text whose drafts are not accepted after one whose drafts all were, and back.
TEST(DraftTuner, FollowsTheText) {
  World world{1, 1.0, free_up_to(16)};
  EXPECT_EQ(world.settled(200), 5);
  world.acceptance = 0.0;
  world.settled(200);
  EXPECT_EQ(world.settled(400), 0);
  world.acceptance = 1.0;
  world.settled(400);
  EXPECT_EQ(world.settled(400), 5);
}

// The first step with another number of drafts may be far slower than those that follow.
TEST(DraftTuner, FirstStepsDoNotCount) {
  bool seen[DraftTuner::kDraftsMost + 1] = {};
  World world{1, 0.9,
              [&](std::int64_t, int drafts) { return std::exchange(seen[drafts], true) ? 1.0 : 50.0; }};
  for (int i = 0; i < 20; ++i) world.step();
  EXPECT_EQ(world.settled(100), 5);
}

TEST(DraftTuner, NeverMoreThanItMay) {
  for (const int most : {0, 1}) {
    DraftTuner tuner(most);
    for (int step = 0; step < 1000; ++step) {
      const int drafts = tuner.choose(1);
      ASSERT_GE(drafts, 0);
      ASSERT_LE(drafts, most);
      tuner.note({.sequence_count = 1, .draft_count = drafts, .accepted = {drafts}, .seconds = 1});
    }
  }
}

}  // namespace
}  // namespace fourfold::schedule
