#include "engine/step_batch.h"

#include <gtest/gtest.h>

namespace fourfold::engine {
namespace {

std::vector<std::int32_t> list(std::span<const std::int32_t> values) {
  return {values.begin(), values.end()};
}

TEST(StepBatch, PutsSequencesBehindOneAnother) {
  StepBatch batch;
  EXPECT_TRUE(batch.empty());
  const std::vector<std::int32_t> prompt{5, 6, 7}, verify{8, 9};
  batch.add({.tokens = prompt, .position = 64, .logits_row_count = 1}, {2, {10, 11}}, backend::Pass::main);
  batch.add({.tokens = verify,
             .position = 3,
             .role = backend::Role::decode,
             .draft_row_count = 1,
             .logits_row_count = 2},
            {0, {4}}, backend::Pass::main);
  const backend::Batch b = batch.batch();
  EXPECT_EQ(list(b.tokens), (std::vector{5, 6, 7, 8, 9}));
  EXPECT_EQ(list(b.pages), (std::vector{10, 11, 4}));
  EXPECT_EQ(list(b.logits_rows), (std::vector{2, 3, 4}));
  EXPECT_TRUE(b.hidden_rows.empty());
  EXPECT_EQ(batch.logits_row_count(), 3);
  ASSERT_EQ(b.sequences.size(), 2u);
  EXPECT_EQ(b.sequences[1].page_begin, 2);
  EXPECT_EQ(b.sequences[1].page_count, 1);
  EXPECT_EQ(b.sequences[1].draft_row_count, 1);
  EXPECT_EQ(b.sequences[0].state_slot, 2);
  EXPECT_EQ(b.sequences[0].position, 64);
}

TEST(StepBatch, DraftRowsContinueHiddenRowsInOrder) {
  StepBatch batch;
  const std::vector<std::int32_t> tokens{1, 2, 3};
  batch.add({.tokens = tokens}, {0, {0}}, backend::Pass::main);
  batch.clear();
  EXPECT_TRUE(batch.empty());
  batch.add({.tokens = tokens, .hidden_row = 4}, {0, {0}}, backend::Pass::draft);
  EXPECT_EQ(list(batch.batch().hidden_rows), (std::vector{4, 5, 6}));
  EXPECT_EQ(batch.logits_row_count(), 0);
}

}  // namespace
}  // namespace fourfold::engine
