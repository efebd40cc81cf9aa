#include "backend/cuda/step/row_group.h"

#include <algorithm>

namespace fourfold::backend::cuda {
namespace {

void add_sequence(RowGroup& group, const Batch& batch, const SequenceRows& rows, std::int32_t first_row) {
  const auto sequence = static_cast<std::int32_t>(group.sequences.size());
  const auto page_begin = static_cast<std::int32_t>(group.pages.size());
  const auto position = static_cast<std::int32_t>(rows.position);
  group.sequences.push_back(
      {group.row_count(), rows.row_count, position, rows.state_slot, page_begin, {0, 0, 0}});
  const auto pages = batch.pages.subspan(static_cast<std::size_t>(rows.page_begin),
                                         static_cast<std::size_t>(rows.page_count));
  group.pages.insert(group.pages.end(), pages.begin(), pages.end());
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

std::vector<RowGroup> groups_of(const Batch& batch) {
  std::vector<RowGroup> groups;
  for (const Role role : {Role::decode, Role::prefill}) {
    RowGroup group;
    group.role = role;
    std::int32_t first_row = 0;
    for (const SequenceRows& rows : batch.sequences) {
      if (rows.role == role && rows.row_count > 0) add_sequence(group, batch, rows, first_row);
      first_row += rows.row_count;
    }
    if (group.rows.empty()) continue;
    add_logits(group, batch);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace fourfold::backend::cuda
