#include "backend/cuda/step/row_group.h"

#include <algorithm>

namespace fourfold::backend::cuda {
namespace {

void add_sequence(RowGroup& group, const Batch& batch, std::span<const std::int32_t> window_pages,
                  const SequenceRows& rows, std::int32_t first_row) {
  const auto sequence = static_cast<std::int32_t>(group.sequences.size());
  const auto page_begin = static_cast<std::int32_t>(group.pages.size());
  const auto position = static_cast<std::int32_t>(rows.position);
  group.sequences.push_back(
      {group.row_count(), rows.row_count, position, rows.state_slot, page_begin, {0, 0, 0}});
  const auto add_pages = [&](std::span<const std::int32_t> from, std::vector<std::int32_t>& to) {
    const auto pages =
        from.subspan(static_cast<std::size_t>(rows.page_begin), static_cast<std::size_t>(rows.page_count));
    to.insert(to.end(), pages.begin(), pages.end());
  };
  add_pages(batch.pages, group.pages);
  if (!window_pages.empty()) add_pages(window_pages, group.window_pages);
  for (std::int32_t i = 0; i < rows.row_count; ++i) {
    const std::int32_t row = first_row + i;
    group.tokens.push_back(batch.tokens[static_cast<std::size_t>(row)]);
    group.rows.push_back({sequence, position + i, rows.state_slot, page_begin});
    group.batch_row.push_back(row);
    group.draft_count.push_back(std::max(0, i + 1 + rows.draft_row_count - rows.row_count));
    if (!batch.hidden_rows.empty())
      group.hidden_row.push_back(batch.hidden_rows[static_cast<std::size_t>(row)]);
  }
  group.longest = std::max(group.longest, position + rows.row_count);
}

void add_logits(RowGroup& group, const Batch& batch) {
  std::size_t at = 0;
  for (std::size_t place = 0; place < batch.logits_rows.size(); ++place) {
    const std::int32_t wanted = batch.logits_rows[place];
    while (at < group.batch_row.size() && group.batch_row[at] < wanted) ++at;
    if (at == group.batch_row.size()) return;
    if (group.batch_row[at] != wanted) continue;
    group.logits_row.push_back(static_cast<std::int32_t>(at));
    group.logits_place.push_back(static_cast<std::int32_t>(place));
  }
}

}  // namespace

std::size_t page_entries(const Program& program, const Capacity& capacity) {
  const std::int64_t longest = (program.position_limit + capacity.page_tokens - 1) / capacity.page_tokens;
  return static_cast<std::size_t>(
      std::max(capacity.page_count, capacity.state_slot_count * std::min(longest, capacity.page_count)));
}

std::vector<RowGroup> groups_of(const Batch& batch, std::span<const std::int32_t> window_pages) {
  std::vector<RowGroup> groups;
  for (const Role role : {Role::decode, Role::prefill}) {
    RowGroup group;
    group.role = role;
    std::int32_t first_row = 0;
    for (const SequenceRows& rows : batch.sequences) {
      if (rows.role == role && rows.row_count > 0) add_sequence(group, batch, window_pages, rows, first_row);
      first_row += rows.row_count;
    }
    if (group.rows.empty()) continue;
    add_logits(group, batch);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace fourfold::backend::cuda
