// Where a prompt is cut so that its recurrent state can be kept, and what later prompts take up.
#include <gtest/gtest.h>

#include "schedule/scheduler.h"

namespace fourfold::schedule {
namespace {

// Runs a prompt to its first token, and ends it: the rows of its pieces, and where its state was kept.
struct PromptRun {
  std::int64_t cached = 0;
  std::int32_t anchor = -1;
  std::vector<std::int64_t> pieces, kept;
};
PromptRun run_prompt(Scheduler& scheduler, Id id, const std::vector<std::int32_t>& prompt) {
  PromptRun out;
  scheduler.arrive({id, prompt, std::ssize(prompt) + 1, ""});
  std::int64_t at = 0;
  while (at < std::ssize(prompt)) {
    const StepPlan plan = scheduler.plan(0);
    for (const Admission& one : plan.admitted) {
      at = out.cached = one.cached_count;
      out.anchor = one.anchor;
    }
    at += plan.work.at(0).row_count;
    out.pieces.push_back(plan.work[0].row_count);
    std::vector<std::int32_t> appended;
    if (at == std::ssize(prompt)) appended.push_back(7);
    if (const auto save = scheduler.advance(id, {at, at, at, appended, 0}))
      out.kept.push_back(save->position);
  }
  scheduler.leave(id, false);
  return out;
}

std::vector<std::int32_t> counted(std::int32_t first, std::size_t count) {
  std::vector<std::int32_t> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = first + static_cast<std::int32_t>(i);
  return out;
}

// Its pages were found, its state is gone: a step more would keep what the prompt's end keeps in any case.
TEST(Scheduler, APromptThatComesBackIsNotCut) {
  Scheduler scheduler(
      {.page_count = 64, .page_tokens = 64, .sequence_count = 1, .step_rows = 2048, .anchor_count = 1});
  const auto first = counted(0, 512), other = counted(10'000, 512);
  EXPECT_EQ(run_prompt(scheduler, 1, first).kept, std::vector<std::int64_t>{448});
  EXPECT_EQ(run_prompt(scheduler, 2, other).kept, std::vector<std::int64_t>{448}) << "in the only place";
  const PromptRun again = run_prompt(scheduler, 3, first);
  EXPECT_EQ(again.cached, 0);
  EXPECT_EQ(again.pieces, std::vector<std::int64_t>{512});
  EXPECT_EQ(again.kept, std::vector<std::int64_t>{448});
  EXPECT_EQ(run_prompt(scheduler, 4, first).cached, 448);
}

TEST(Scheduler, ACommonBeginningIsCutOnceSoThatItsStateIsKept) {
  Scheduler scheduler(
      {.page_count = 64, .page_tokens = 64, .sequence_count = 1, .step_rows = 2048, .anchor_count = 8});
  const auto with_end = [](std::int32_t end) {
    auto prompt = counted(0, 200);
    for (const std::int32_t token : counted(end, 300)) prompt.push_back(token);
    return prompt;
  };
  EXPECT_EQ(run_prompt(scheduler, 1, with_end(1'000)).pieces, std::vector<std::int64_t>{500});
  const PromptRun second = run_prompt(scheduler, 2, with_end(2'000));
  EXPECT_EQ(second.pieces, (std::vector<std::int64_t>{192, 308}));
  EXPECT_EQ(second.kept, (std::vector<std::int64_t>{192, 448}));
  const PromptRun third = run_prompt(scheduler, 3, with_end(3'000));
  EXPECT_EQ(third.cached, 192);
  EXPECT_GE(third.anchor, 0);
  EXPECT_EQ(third.pieces, std::vector<std::int64_t>{308});
}

TEST(Scheduler, WithoutStatesACommonBeginningIsTakenUpAtOnce) {
  Scheduler scheduler({.page_count = 128,
                       .page_tokens = 64,
                       .sequence_count = 1,
                       .step_rows = 8192,
                       .anchor_count = 1,
                       .recurrent = false});
  auto prompt = counted(0, 5'000);
  EXPECT_EQ(run_prompt(scheduler, 1, prompt).pieces, std::vector<std::int64_t>{5'000}) << "nothing to keep";
  prompt.resize(3'000);
  for (const std::int32_t token : counted(20'000, 100)) prompt.push_back(token);
  const PromptRun second = run_prompt(scheduler, 2, prompt);
  EXPECT_EQ(second.cached, 2'944);
  EXPECT_EQ(second.anchor, -1);
  EXPECT_EQ(second.pieces, std::vector<std::int64_t>{156});
  EXPECT_TRUE(second.kept.empty());
}

// One long prompt must not push out the states of everybody else.
TEST(Scheduler, ALongPromptKeepsFewStates) {
  Scheduler scheduler(
      {.page_count = 2048, .page_tokens = 64, .sequence_count = 1, .step_rows = 2048, .anchor_count = 64});
  const auto kept_along = [&](Id id, std::size_t count) {
    return run_prompt(scheduler, id, counted(static_cast<std::int32_t>(id) << 20, count)).kept;
  };
  EXPECT_EQ(kept_along(1, 5'000), (std::vector<std::int64_t>{2'048, 4'096, 4'992}));
  const auto kept = kept_along(2, 100'000);
  ASSERT_EQ(kept.size(), 7u);
  EXPECT_EQ(kept.front(), 7 * 2'048);
  EXPECT_EQ(kept.back(), 99'968);
}

}  // namespace
}  // namespace fourfold::schedule
