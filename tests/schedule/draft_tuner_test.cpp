#include "schedule/draft_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace fourfold::schedule {
namespace {

// A machine on which a step costs 1 up to so many rows and then grows with them; drafts cost a little each.
double seconds_of(std::int64_t sequences, int drafts, double free_rows) {
  const double rows = static_cast<double>(sequences * (1 + drafts));
  return std::max(1.0, rows / free_rows) + 0.05 * drafts;
}
double tokens_of(std::int64_t sequences, int drafts, double acceptance) {
  double tokens = 1;
  for (int i = 1; i <= drafts; ++i) tokens += std::pow(acceptance, i);
  return tokens * static_cast<double>(sequences);
}
int settled(std::int64_t sequences, double acceptance, double free_rows) {
  DraftTuner tuner(DraftTuner::kDraftsMost);
  int counts[DraftTuner::kDraftsMost + 1] = {};
  for (int step = 0; step < 4000; ++step) {
    const int drafts = tuner.choose(sequences);
    tuner.note(sequences, drafts, static_cast<std::int64_t>(100 * tokens_of(sequences, drafts, acceptance)),
               seconds_of(sequences, drafts, free_rows));
    if (step >= 2000) ++counts[drafts];
  }
  return static_cast<int>(std::max_element(counts, std::end(counts)) - counts);
}

TEST(DraftTuner, ManyDraftsForOneUserWhoAcceptsThem) { EXPECT_EQ(settled(1, 0.9, 16), 5); }
TEST(DraftTuner, NoneUnderLoad) { EXPECT_EQ(settled(64, 0.6, 16), 0); }
TEST(DraftTuner, NoneWhereNoneAreAccepted) { EXPECT_EQ(settled(1, 0.0, 16), 0); }
TEST(DraftTuner, SomeForAFew) {
  const int count = settled(4, 0.85, 16);
  EXPECT_GE(count, 2);
  EXPECT_LE(count, 4);
}

// A processor that is busy with one row already: no drafts pay, and that is known within an answer.
TEST(DraftTuner, FindsOutSoonThatDraftsDoNotPay) {
  DraftTuner tuner(DraftTuner::kDraftsMost);
  std::int64_t drafted = 0;
  for (int step = 0; step < 128; ++step) {
    const int drafts = tuner.choose(1);
    tuner.note(1, drafts, static_cast<std::int64_t>(100 * tokens_of(1, drafts, 0.6)), 1 + drafts);
    if (step >= 64) drafted += drafts;
  }
  EXPECT_EQ(drafted, 0);
}

TEST(DraftTuner, NeverMoreThanItMay) {
  DraftTuner tuner(1);
  for (int step = 0; step < 1000; ++step) {
    const int drafts = tuner.choose(1);
    ASSERT_GE(drafts, 0);
    ASSERT_LE(drafts, 1);
    tuner.note(1, drafts, 1 + drafts, 1);
  }
}

}  // namespace
}  // namespace fourfold::schedule
