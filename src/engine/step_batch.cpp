#include "engine/step_batch.h"

namespace fourfold::engine {

void StepBatch::clear() {
  tokens_.clear();
  pages_.clear();
  logits_rows_.clear();
  hidden_rows_.clear();
  sequences_.clear();
}

void StepBatch::add(const PassRows& rows, const Home& home, backend::Pass pass) {
  const auto first = static_cast<std::int32_t>(tokens_.size());
  const auto count = static_cast<std::int32_t>(rows.tokens.size());
  sequences_.push_back({.row_count = count,
                        .position = rows.position,
                        .state_slot = home.state_slot,
                        .page_begin = static_cast<std::int32_t>(pages_.size()),
                        .page_count = static_cast<std::int32_t>(home.pages.size()),
                        .role = rows.role,
                        .draft_row_count = rows.draft_row_count});
  tokens_.insert(tokens_.end(), rows.tokens.begin(), rows.tokens.end());
  pages_.insert(pages_.end(), home.pages.begin(), home.pages.end());
  for (std::int32_t row = count - rows.logits_row_count; row < count; ++row)
    logits_rows_.push_back(first + row);
  if (pass == backend::Pass::draft)
    for (std::int32_t row = 0; row < count; ++row) hidden_rows_.push_back(rows.hidden_row + row);
}

}  // namespace fourfold::engine
