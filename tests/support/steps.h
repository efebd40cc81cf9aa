// Drives a prepared program the way a scheduler would: sequences with their slots and pages, put together
// into batches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace fourfold::backend {

// One sequence's part of a step.
struct Part {
  std::int32_t slot = 0;
  std::vector<std::int32_t> pages;
  std::int64_t position = 0;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> hidden_rows = {};  // draft pass only
  bool all_logits = true;                      // else those of the last row
  std::int32_t draft_row_count = 0;
};

// The integers of a batch, owned.
struct BatchData {
  std::vector<std::int32_t> tokens, pages, logits_rows, hidden_rows;
  std::vector<SequenceRows> sequences;

  explicit BatchData(const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      const auto first = static_cast<std::int32_t>(tokens.size());
      const auto count = static_cast<std::int32_t>(part.tokens.size());
      sequences.push_back({count, part.position, part.slot, static_cast<std::int32_t>(pages.size()),
                           static_cast<std::int32_t>(part.pages.size()),
                           count > 1 ? Role::prefill : Role::decode, part.draft_row_count});
      for (std::int32_t row = part.all_logits ? 0 : count - 1; row < count; ++row)
        logits_rows.push_back(first + row);
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
      pages.insert(pages.end(), part.pages.begin(), part.pages.end());
      hidden_rows.insert(hidden_rows.end(), part.hidden_rows.begin(), part.hidden_rows.end());
    }
  }
  Batch batch() const { return {tokens, sequences, pages, logits_rows, hidden_rows}; }
};

using LogitsRow = std::vector<float>;

// One row of logits for each row asked, in the order of the parts.
inline std::vector<LogitsRow> step(Prepared& prepared, Pass pass, const std::vector<Part>& parts) {
  const BatchData data(parts);
  const std::size_t vocabulary = prepared.program().vocab_size;
  std::vector<float> flat(data.logits_rows.size() * vocabulary);
  prepared.run(pass, data.batch(), flat);
  std::vector<LogitsRow> rows;
  for (std::size_t i = 0; i < data.logits_rows.size(); ++i)
    rows.emplace_back(flat.begin() + i * vocabulary, flat.begin() + (i + 1) * vocabulary);
  return rows;
}

// Pages that belong to a slot alone: slot * count + 0, 1, ...
inline std::vector<std::int32_t> own_pages(std::int32_t slot, std::int32_t count) {
  std::vector<std::int32_t> pages(count);
  for (std::int32_t i = 0; i < count; ++i) pages[i] = slot * count + i;
  return pages;
}

inline std::int32_t argmax(const LogitsRow& row) {
  return static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

}  // namespace fourfold::backend
