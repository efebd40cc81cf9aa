#include "backend/cuda/step/row_group.h"

#include <gtest/gtest.h>

namespace fourfold::backend::cuda {
namespace {

// Of windows a page for each of the batch's, sequence by sequence.
TEST(RowGroup, HasPagesOfWindowsBesideTheOthers) {
  const std::vector<std::int32_t> tokens{10, 20}, pages{5, 6, 7}, window_pages{2, 0, 1};
  const std::vector<SequenceRows> sequences{{1, 64, 0, 0, 2, Role::prefill, 0},
                                            {1, 0, 1, 2, 1, Role::decode, 0}};
  const Batch batch{tokens, sequences, pages, {}, {}};
  const auto groups = groups_of(batch, window_pages);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].window_pages, (std::vector<std::int32_t>{1}));
  EXPECT_EQ(groups[1].pages, (std::vector<std::int32_t>{5, 6}));
  EXPECT_EQ(groups[1].window_pages, (std::vector<std::int32_t>{2, 0}));
  EXPECT_TRUE(groups_of(batch)[0].window_pages.empty());
}

// Three requests that share a long prompt name its pages three times.
TEST(RowGroup, HasRoomForPagesThatSequencesShare) {
  Program program;
  program.position_limit = 10 * 64;
  const Capacity capacity{.page_count = 12, .state_slot_count = 3, .row_count = 64};
  EXPECT_EQ(page_entries(program, capacity), 3u * 10);
  program.position_limit = 20 * 64 - 1;
  EXPECT_EQ(page_entries(program, capacity), 3u * 12);
}

// Prompt rows of two sequences around a generated one with two drafts.
TEST(RowGroup, PartsRolesAndKeepsOrder) {
  const std::vector<std::int32_t> tokens{10, 11, 20, 21, 22, 30};
  const std::vector<SequenceRows> sequences{{2, 64, 3, 0, 2, Role::prefill, 0},
                                            {3, 100, 1, 2, 2, Role::decode, 2},
                                            {1, 0, 0, 4, 1, Role::prefill, 0}};
  const std::vector<std::int32_t> pages{5, 6, 7, 8, 9}, asked{1, 2, 4, 5}, hidden{0, 1, 2, 3, 4, 5};
  const auto groups = groups_of({tokens, sequences, pages, asked, hidden});
  ASSERT_EQ(groups.size(), 2u);
  const RowGroup& generated = groups[0];
  EXPECT_EQ(generated.role, Role::decode);
  EXPECT_EQ(generated.tokens, (std::vector<std::int32_t>{20, 21, 22}));
  EXPECT_EQ(generated.batch_row, (std::vector<std::int32_t>{2, 3, 4}));
  EXPECT_EQ(generated.hidden_row, (std::vector<std::int32_t>{2, 3, 4}));
  EXPECT_EQ(generated.pages, (std::vector<std::int32_t>{7, 8}));
  EXPECT_EQ(generated.logits_row, (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(generated.logits_place, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(generated.longest, 103);
  EXPECT_EQ(generated.rows[2].position, 102);
  EXPECT_EQ(generated.rows[2].state_slot, 1);

  const RowGroup& prompt = groups[1];
  EXPECT_EQ(prompt.role, Role::prefill);
  EXPECT_EQ(prompt.tokens, (std::vector<std::int32_t>{10, 11, 30}));
  ASSERT_EQ(prompt.sequence_count(), 2);
  EXPECT_EQ(prompt.sequences[1].first_row, 2);
  EXPECT_EQ(prompt.sequences[1].page_begin, 2);
  EXPECT_EQ(prompt.pages, (std::vector<std::int32_t>{5, 6, 9}));
  EXPECT_EQ(prompt.rows[2].sequence, 1);
  EXPECT_EQ(prompt.rows[2].page_begin, 2);
  EXPECT_EQ(prompt.logits_row, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(prompt.logits_place, (std::vector<std::int32_t>{0, 3}));
}

TEST(RowGroup, LeavesOutWhatHasNoRows) {
  const std::vector<std::int32_t> tokens{1};
  const std::vector<SequenceRows> sequences{{1, 0, 0, 0, 1, Role::prefill, 0}};
  const std::vector<std::int32_t> pages{0};
  EXPECT_EQ(groups_of({tokens, sequences, pages, {}, {}}).size(), 1u);
  EXPECT_TRUE(groups_of({}).empty());
}

}  // namespace
}  // namespace fourfold::backend::cuda
