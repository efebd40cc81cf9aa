// A batch cut by role: prompt rows go through prefill arithmetic, generated rows through decode arithmetic,
// whatever else is in the batch (docs/decisions/0009). Within a group sequences keep their order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/batch.h"
#include "kernels/step/step_tables.h"

namespace fourfold::backend::cuda {

struct RowGroup {
  Role role = Role::prefill;
  std::vector<std::int32_t> tokens;
  std::vector<step::RowPlace> rows;
  std::vector<step::SequencePlace> sequences;
  std::vector<std::int32_t> pages;
  std::vector<std::int32_t> window_pages;  // of layers that have a window; as many, or none
  std::vector<std::int32_t> batch_row;     // of each row
  std::vector<std::int32_t> hidden_row;    // draft pass: the row of the pass before that it continues
  std::vector<std::int32_t> logits_row;    // rows of the group whose logits were asked
  std::vector<std::int32_t> logits_place;  // and their places among all that were asked
  std::vector<std::int32_t> draft_count;   // of each row: its sequence's drafts up to and including it
  std::int32_t longest = 0;                // positions of its longest sequence, the new rows included

  int row_count() const { return static_cast<int>(rows.size()); }
  int sequence_count() const { return static_cast<int>(sequences.size()); }
};

// How many pages the sequences of a batch may name, together: more than there are, where prompts begin alike
// and share theirs.
std::size_t page_entries(const Program& program, const Capacity& capacity);

// The groups that have rows: generated rows first, they are waited for.
// window_pages: WindowPages::table() of a main pass.
std::vector<RowGroup> groups_of(const Batch& batch, std::span<const std::int32_t> window_pages = {});

}  // namespace fourfold::backend::cuda
