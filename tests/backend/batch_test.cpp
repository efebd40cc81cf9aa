// What is refused before anything is computed.
#include "backend/batch.h"

#include "tests/backend/support.h"
#include "tests/support/steps.h"

namespace fourfold::backend {
namespace {

constexpr Capacity kCapacity{.page_count = 4, .page_tokens = 8, .state_slot_count = 2, .row_count = 20};

// Two sequences: ten rows from 0 in pages 0 and 1, one row at 9 in pages 2 and 3.
BatchData good_batch() {
  return BatchData({{.slot = 0, .pages = {0, 1}, .position = 0, .tokens = std::vector<std::int32_t>(10, 1)},
                    {.slot = 1, .pages = {2, 3}, .position = 9, .tokens = {4}, .draft_row_count = 0}});
}

void expect_bad(const std::vector<std::string>& parts, const std::function<void(BatchData&)>& damage,
                Pass pass = Pass::main, std::int64_t hidden_row_count = 0) {
  const SmallModel model;
  Program program = model.program;
  program.draft = program.main;
  BatchData data = good_batch();
  if (pass == Pass::draft) data.hidden_rows.assign(11, 0);
  require_valid(data.batch(), program, kCapacity, pass, hidden_row_count);
  damage(data);
  expect_refused(parts, [&] { require_valid(data.batch(), program, kCapacity, pass, hidden_row_count); });
}

TEST(Batch, TokensAndRows) {
  expect_bad({"row 3", "token id 5", "vocabulary of 5"}, [](BatchData& b) { b.tokens[3] = 5; });
  expect_bad({"token id -1"}, [](BatchData& b) { b.tokens[0] = -1; });
  expect_bad({"no rows"}, [](BatchData& b) { b.tokens.clear(); });
  expect_bad({"21 rows", "at most 20"}, [](BatchData& b) { b.tokens.resize(21); });
  expect_bad({"have 11 rows, the batch 12"}, [](BatchData& b) { b.tokens.push_back(0); });
  expect_bad({"sequence 1", "rows 0"}, [](BatchData& b) { b.sequences[1].row_count = 0; });
}

TEST(Batch, PositionsAndSlots) {
  expect_bad({"position -1"}, [](BatchData& b) { b.sequences[0].position = -1; });
  expect_bad({"end position 101", "limit is 100"}, [](BatchData& b) { b.sequences[1].position = 100; });
  expect_bad({"state slot 2", "slots: 2"}, [](BatchData& b) { b.sequences[1].state_slot = 2; });
  expect_bad({"state slot 0 belongs to two"}, [](BatchData& b) { b.sequences[1].state_slot = 0; });
  expect_bad({"draft rows 10", "fewer than its rows, 10"},
             [](BatchData& b) { b.sequences[0].draft_row_count = 10; });
}

TEST(Batch, Pages) {
  expect_bad({"page 4", "pages: 4"}, [](BatchData& b) { b.pages[1] = 4; });
  expect_bad({"pages 1", "need 2"}, [](BatchData& b) { b.sequences[0].page_count = 1; });
  expect_bad({"last page entry 5", "entries: 4"}, [](BatchData& b) { b.sequences[1].page_begin = 3; });
  expect_bad({"page 1 would be written twice"}, [](BatchData& b) { b.pages[3] = 1; });
  expect_bad({"page 0 would be written twice"}, [](BatchData& b) { b.pages[1] = 0; });
  expect_bad({"page 1 is written and read"}, [](BatchData& b) { b.pages[2] = 1; });
}

TEST(Batch, RowsOfLogitsAndHiddenStates) {
  expect_bad({"logits row 11 of 11"}, [](BatchData& b) { b.logits_rows = {2, 11}; });
  expect_bad({"logits row 2", "out of order"}, [](BatchData& b) { b.logits_rows = {2, 2}; });
  expect_bad(
      {"11 rows names 3 hidden"}, [](BatchData& b) { b.hidden_rows.resize(3); }, Pass::draft, 1);
  expect_bad(
      {"hidden row 1", "left 1"}, [](BatchData& b) { b.hidden_rows[5] = 1; }, Pass::draft, 1);
}

TEST(Batch, ADraftPassNeedsAnMtpLayer) {
  const SmallModel model;
  expect_refused({"no MTP layer"},
                 [&] { require_valid(good_batch().batch(), model.program, kCapacity, Pass::draft, 0); });
}

// Runs rows [position, end) through a slot's bookkeeping.
void pass(SlotPast& slot, std::int64_t position, std::int64_t end) {
  SequenceRows rows;
  rows.position = position;
  rows.row_count = static_cast<std::int32_t>(end - position);
  slot.require_resumable(position, 3);
  slot.begin(rows);
  slot.finish(rows);
}

TEST(SlotPast, GoesOnWithinItsLastTwoBlocks) {
  SlotPast slot;
  expect_refused({"slot 3", "holds 0 positions", "at 1"}, [&] { slot.require_resumable(1, 3); });
  pass(slot, 0, 190);
  for (const std::int64_t position : {0, 64, 100, 128, 190}) slot.require_resumable(position, 3);
  expect_refused({"slot 3", "has held 190 positions", "at 64 to 190, not at 63"},
                 [&] { slot.require_resumable(63, 3); });
  expect_refused({"holds 190 positions", "at 191"}, [&] { slot.require_resumable(191, 3); });
}

TEST(SlotPast, WhatWasOverwrittenIsNotThereAgainAfterGoingBack) {
  SlotPast slot;
  pass(slot, 0, 150);
  pass(slot, 70, 80);
  EXPECT_EQ(slot.end(), 80);
  EXPECT_EQ(slot.resumable_from(), 64);
  expect_refused({"has held 150 positions", "at 64 to 80, not at 20"},
                 [&] { slot.require_resumable(20, 3); });
  expect_refused({"holds 80 positions", "at 81"}, [&] { slot.require_resumable(81, 3); });
  pass(slot, 0, 30);
  EXPECT_EQ(slot.resumable_from(), 0);
  slot.require_resumable(20, 3);
}

TEST(SlotPast, APassThatFailsLeavesTheSlotBeforeIt) {
  SlotPast slot;
  pass(slot, 0, 100);
  SequenceRows rows;
  rows.position = 90, rows.row_count = 102;
  slot.begin(rows);
  EXPECT_EQ(slot.end(), 90);
  EXPECT_EQ(slot.resumable_from(), 128) << "only 0 is left";
}

}  // namespace
}  // namespace fourfold::backend
