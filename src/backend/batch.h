// One step of many sequences, described by integers. A prompt chunk, a decoded token and the verification of
// drafts are the same program with different integers.
#pragma once

#include <cstdint>
#include <span>

#include "backend/program.h"

namespace fourfold::backend {

// Prompt rows may use prefill arithmetic, generated rows decode arithmetic. The role is the sequence's own,
// so what a row computes never depends on its neighbours in the batch.
enum class Role { prefill, decode };

// What a row of this role is rounded to in front of a matrix.
constexpr InputFormat input_of(InputFormat format, Role role) {
  if (format != InputFormat::nvfp4_prefill && format != InputFormat::fp8_prefill) return format;
  if (role != Role::prefill) return InputFormat::bf16;
  return format == InputFormat::nvfp4_prefill ? InputFormat::nvfp4 : InputFormat::fp8;
}

struct SequenceRows {
  std::int32_t row_count = 0;   // its rows follow those of the sequence before it
  std::int64_t position = 0;    // of its first row; 0 starts a new sequence in its slot
  std::int32_t state_slot = 0;  // its recurrent state in every DeltaNet layer
  std::int32_t page_begin = 0;  // its pages in Batch::pages: position t lies in page t / page_tokens
  std::int32_t page_count = 0;
  Role role = Role::prefill;
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
  std::int64_t page_tokens = kTokenGrain;
  std::int64_t state_slot_count = 0;
  std::int64_t row_count = 0;     // rows of one batch
  std::int64_t anchor_count = 0;  // recurrent states kept apart, see Prepared::save_anchor
};

// Throws invalid_request when the batch cannot be run: token ids outside the vocabulary, positions beyond the
// model's limit, pages or slots that do not exist or are shared by two sequences, rows that do not add up.
// hidden_row_count is how many rows the pass before left (draft pass only).
void require_valid(const Batch& batch, const Program& program, const Capacity& capacity, Pass pass,
                   std::int64_t hidden_row_count);

// What a state slot still knows of its sequence. Two anchors and the rows of two blocks are kept by absolute
// position, and the furthest ones written overwrote those before them: going back does not bring them again.
// So a sequence that was once long can go back no further than its longest past allows, until it starts anew.
class SlotPast {
 public:
  std::int64_t end() const { return end_; }
  // The lowest position above 0 the slot can go on at: that of the block of 64 before the furthest one.
  std::int64_t resumable_from() const;
  // Throws invalid_request when the slot cannot go on at `position`: after a gap, or too far back.
  void require_resumable(std::int64_t position, std::int32_t slot) const;

  // Around the rows of a main pass. A pass that ends in an exception leaves the slot at its position.
  void begin(const SequenceRows& rows);
  void finish(const SequenceRows& rows) { end_ = rows.position + rows.row_count; }
  // Whoever filled the slot's memory in another way says how long its sequence is.
  void assume(std::int64_t position) { end_ = furthest_ = position, lowest_ = 0; }
  // A state that was kept was brought to the slot: there is nothing before it.
  void restore(std::int64_t position) { end_ = furthest_ = lowest_ = position; }
  // Throws invalid_request unless the slot has the state at the start of the block at `position`.
  void require_state(std::int64_t position, std::int32_t slot) const;

 private:
  std::int64_t end_ = 0;       // positions of its sequence
  std::int64_t furthest_ = 0;  // positions written since it started at 0, those taken back included
  std::int64_t lowest_ = 0;    // where a state was brought back
};

}  // namespace fourfold::backend
