// The integers of one batch, owned, put together sequence by sequence. Keeps its memory from step to step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/batch.h"

namespace fourfold::engine {

// One sequence's rows of one pass.
struct PassRows {
  std::span<const std::int32_t> tokens = {};
  std::int64_t position = 0;
  backend::Role role = backend::Role::prefill;
  std::int32_t draft_row_count = 0;
  std::int32_t logits_row_count = 0;  // the last so many of them
  // Draft pass: the row of the pass before that the first row continues; the others follow it.
  std::int32_t hidden_row = 0;
};

// Where a sequence lives in a prepared program.
struct Home {
  std::int32_t state_slot = 0;
  std::vector<std::int32_t> pages;
};

class StepBatch {
 public:
  void clear();
  void add(const PassRows& rows, const Home& home, backend::Pass pass);

  bool empty() const { return sequences_.empty(); }
  std::int32_t row_count() const { return static_cast<std::int32_t>(tokens_.size()); }
  std::int64_t logits_row_count() const { return static_cast<std::int64_t>(logits_rows_.size()); }
  backend::Batch batch() const { return {tokens_, sequences_, pages_, logits_rows_, hidden_rows_}; }

 private:
  std::vector<std::int32_t> tokens_, pages_, logits_rows_, hidden_rows_;
  std::vector<backend::SequenceRows> sequences_;
};

}  // namespace fourfold::engine
