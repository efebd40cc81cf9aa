// What a batch must be before anything is computed from it.
#include "backend/batch.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"

namespace fourfold::backend {
namespace {

void require_sequence(const SequenceRows& rows, std::size_t index, const Batch& batch, const Program& program,
                      const Capacity& capacity) {
  const auto refuse = [&](std::string_view what, std::int64_t is, std::string_view limit,
                          std::int64_t bound) {
    fail(Code::invalid_request, "sequence {} of the batch: {} {}; {} {}", index, what, is, limit, bound);
  };
  if (rows.row_count < 1) refuse("rows", rows.row_count, "at least", 1);
  if (rows.position < 0) refuse("position", rows.position, "at least", 0);
  const std::int64_t end = rows.position + rows.row_count;
  if (end > program.position_limit)
    refuse("end position", end, "the model's limit is", program.position_limit);
  if (rows.state_slot < 0 || rows.state_slot >= capacity.state_slot_count)
    refuse("state slot", rows.state_slot, "slots:", capacity.state_slot_count);
  if (rows.draft_row_count < 0 || rows.draft_row_count >= rows.row_count)
    refuse("draft rows", rows.draft_row_count, "must be fewer than its rows,", rows.row_count);
  if (rows.draft_row_count >= kAnchorTokens)
    refuse("draft rows", rows.draft_row_count, "must be fewer than", kAnchorTokens);
  const auto page_total = static_cast<std::int64_t>(batch.pages.size());
  if (rows.page_begin < 0 || rows.page_count < 0 ||
      rows.page_begin + std::int64_t{rows.page_count} > page_total)
    refuse("last page entry", rows.page_begin + std::int64_t{rows.page_count}, "entries:", page_total);
  const std::int64_t pages_needed = (end + capacity.page_tokens - 1) / capacity.page_tokens;
  if (rows.page_count < pages_needed) refuse("pages", rows.page_count, "its positions need", pages_needed);
  for (std::int32_t i = 0; i < rows.page_count; ++i) {
    const std::int32_t page = batch.pages[rows.page_begin + i];
    if (page < 0 || page >= capacity.page_count) refuse("page", page, "pages:", capacity.page_count);
  }
}

// Two sequences may read a page together (a common prefix), but a page that is written in this step belongs
// to one sequence, and once.
void require_own_pages(const Batch& batch, const Capacity& capacity) {
  // Asked of every page of every sequence in every pass: marks, since a set of them takes milliseconds.
  std::vector<char> written(static_cast<std::size_t>(capacity.page_count));
  const auto page_of = [&](const SequenceRows& rows, std::int64_t i) {
    return static_cast<std::size_t>(batch.pages[static_cast<std::size_t>(rows.page_begin + i)]);
  };
  for (const SequenceRows& rows : batch.sequences) {
    const std::int64_t end =
        (rows.position + rows.row_count + capacity.page_tokens - 1) / capacity.page_tokens;
    for (std::int64_t i = rows.position / capacity.page_tokens; i < end; ++i)
      if (std::exchange(written[page_of(rows, i)], 1) != 0)
        fail(Code::invalid_request, "page {} would be written twice in one batch", page_of(rows, i));
  }
  for (const SequenceRows& rows : batch.sequences)
    for (std::int64_t i = 0; i < rows.position / capacity.page_tokens; ++i)
      if (written[page_of(rows, i)] != 0)
        fail(Code::invalid_request, "page {} is written and read as a prefix", page_of(rows, i));
}

}  // namespace

void require_valid(const Batch& batch, const Program& program, const Capacity& capacity, Pass pass,
                   std::int64_t hidden_row_count) {
  const auto row_count = static_cast<std::int64_t>(batch.tokens.size());
  if (program.ops(pass).empty())
    fail_with_hint(Code::invalid_request, "run it without drafts",
                   "the model has no MTP layer to draft with");
  if (row_count == 0) fail(Code::invalid_request, "the batch has no rows");
  if (row_count > capacity.row_count)
    fail(Code::invalid_request, "the batch has {} rows; at most {}", row_count, capacity.row_count);
  for (std::int64_t row = 0; row < row_count; ++row)
    if (batch.tokens[row] < 0 || batch.tokens[row] >= program.vocab_size)
      fail(Code::invalid_request, "row {}: token id {} is outside the vocabulary of {}", row,
           batch.tokens[row], program.vocab_size);
  std::int64_t rows_of_sequences = 0;
  std::set<std::int32_t> slots;
  for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
    require_sequence(batch.sequences[i], i, batch, program, capacity);
    rows_of_sequences += batch.sequences[i].row_count;
    if (!slots.insert(batch.sequences[i].state_slot).second)
      fail(Code::invalid_request, "state slot {} belongs to two sequences of the batch",
           batch.sequences[i].state_slot);
  }
  if (rows_of_sequences != row_count)
    fail(Code::invalid_request, "the sequences have {} rows, the batch {}", rows_of_sequences, row_count);
  require_own_pages(batch, capacity);
  for (std::size_t i = 0; i < batch.logits_rows.size(); ++i) {
    const std::int32_t row = batch.logits_rows[i];
    if (row < 0 || row >= row_count || (i > 0 && row <= batch.logits_rows[i - 1]))
      fail(Code::invalid_request, "logits row {} of {} rows is out of order or outside the batch", row,
           row_count);
  }
  if (pass == Pass::main) return;
  if (batch.hidden_rows.size() != batch.tokens.size())
    fail(Code::invalid_request, "a draft pass of {} rows names {} hidden rows", row_count,
         batch.hidden_rows.size());
  for (const std::int32_t row : batch.hidden_rows)
    if (row < 0 || row >= hidden_row_count)
      fail(Code::invalid_request, "hidden row {}; the pass before left {}", row, hidden_row_count);
}

std::int64_t SlotPast::resumable_from() const {
  return std::max({furthest_ / kAnchorTokens * kAnchorTokens - kAnchorTokens, lowest_, std::int64_t{0}});
}

void SlotPast::require_state(std::int64_t position, std::int32_t slot) const {
  if (position < 1 || position % kAnchorTokens != 0 || position > end_ || position < resumable_from())
    fail(Code::invalid_request,
         "state slot {} has no state to be kept at {}: it has those at multiples of {} from {} to {}", slot,
         position, kAnchorTokens, resumable_from(), end_);
}

void SlotPast::require_resumable(std::int64_t position, std::int32_t slot) const {
  if (position == 0) return;
  if (position > end_)
    fail(Code::invalid_request, "state slot {} holds {} positions and cannot go on at {}", slot, end_,
         position);
  if (position < resumable_from())
    fail_with_hint(Code::invalid_request, "begin again at position 0",
                   "state slot {} has held {} positions and can go on at {} to {}, not at {}", slot,
                   furthest_, resumable_from(), end_, position);
}

void SlotPast::begin(const SequenceRows& rows) {
  if (rows.position == 0) furthest_ = lowest_ = 0;
  furthest_ = std::max(furthest_, rows.position + rows.row_count);
  end_ = rows.position;
}

}  // namespace fourfold::backend
