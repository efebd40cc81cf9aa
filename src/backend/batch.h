// One step of many sequences, described by integers. A prompt chunk, a decoded token and the verification of
// drafts are the same program with different integers.
#pragma once

#include <cstdint>
#include <span>

#include "backend/program.h"

namespace fourfold::backend {

// Prompt rows may use prefill arithmetic, generated rows decode arithmetic. The role is the sequence's own,
// so what a row computes never depends on its neighbours in the batch.
enum class Role { prompt, generated };

struct SequenceRows {
  std::int32_t row_count = 0;   // its rows follow those of the sequence before it
  std::int64_t position = 0;    // of its first row; 0 starts a new sequence in its slot
  std::int32_t state_slot = 0;  // its recurrent state in every DeltaNet layer
  std::int32_t page_begin = 0;  // its pages in Batch::pages: position t lies in page t / page_tokens
  std::int32_t page_count = 0;
  Role role = Role::prompt;
  // The last rows that may be taken back: the next step may begin at any of their positions. Nothing else is
  // needed to undo them.
  std::int32_t draft_row_count = 0;
};

struct Batch {
  std::span<const std::int32_t> tokens;  // [rows]
  std::span<const SequenceRows> sequences;
  std::span<const std::int32_t> pages;
  std::span<const std::int32_t> logits_rows;  // rows that want logits, ascending
  // Draft pass: for each row, the row of the pass before it whose hidden state it continues.
  std::span<const std::int32_t> hidden_rows;
};

// What a prepared program has room for.
struct Capacity {
  std::int64_t page_count = 0;
  std::int64_t page_tokens = 64;
  std::int64_t state_slot_count = 0;
  std::int64_t row_count = 0;  // rows of one batch
};

// Throws invalid_request when the batch cannot be run: token ids outside the vocabulary, positions beyond the
// model's limit, pages or slots that do not exist or are shared by two sequences, rows that do not add up.
// hidden_row_count is how many rows the pass before left (draft pass only).
void require_valid(const Batch& batch, const Program& program, const Capacity& capacity, Pass pass,
                   std::int64_t hidden_row_count);

// Throws invalid_request when a slot whose sequence has `end` positions cannot go on at `position`: after a
// gap, or further back than the block of 64 before the last one.
void require_resumable(std::int64_t position, std::int64_t end, std::int32_t slot);

}  // namespace fourfold::backend
