// Running requests in tests: on golden models with the reference backend, and on a model of three words whose
// distribution is known exactly.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "engine/step_loop.h"
#include "tests/model/support.h"

namespace fourfold::engine {

inline Request greedy_request(std::vector<TokenId> prompt, std::int64_t max_tokens, int draft_count = 0) {
  Request request;
  request.prompt = std::move(prompt);
  request.params.temperature = 0;
  request.max_tokens = max_tokens;
  request.draft_count = draft_count;
  return request;
}

inline Home home(std::int32_t slot) { return {slot, backend::own_pages(slot, model::kPagesEach)}; }

// To the last bit.
inline bool same_logprobs(const std::vector<sample::Logprobs>& a, const std::vector<sample::Logprobs>& b) {
  const auto same_token = [](const sample::TokenLogprob& x, const sample::TokenLogprob& y) {
    return x.id == y.id && x.logprob == y.logprob;
  };
  return std::ranges::equal(a, b, [&](const sample::Logprobs& x, const sample::Logprobs& y) {
    return same_token(x.chosen, y.chosen) && x.rank == y.rank &&
           std::ranges::equal(x.best, y.best, same_token);
  });
}

// Alone, until it ends.
inline std::vector<TokenId> answer_of(backend::Prepared& prepared, Request request,
                                      DraftCounts* counts = nullptr) {
  Sequence sequence(prepared.program(), std::move(request), home(0));
  Sequence* all[] = {&sequence};
  StepLoop loop(prepared);
  while (!sequence.finished()) loop.step(all);
  if (counts != nullptr) *counts = sequence.drafts();
  return {sequence.answer().begin(), sequence.answer().end()};
}

// Three words; the next one depends on the last alone. Drafts come from another table. Checks that rows come
// as the door wants them: without gaps, going back over drafts only.
class ThreeWords final : public backend::Prepared {
 public:
  static constexpr int kWords = 3;
  using Table = std::array<std::array<float, kWords>, kWords>;

  ThreeWords() {
    program_.vocab_size = kWords;
    program_.position_limit = 64;
    program_.main.resize(1);
    program_.draft.resize(1);
  }
  const backend::Program& program() const override { return program_; }
  const backend::Capacity& capacity() const override { return capacity_; }
  std::span<const float> value(backend::ValueId) const override { return {}; }
  std::int64_t resumable_from(std::int32_t) const override { return 0; }

  void run(backend::Pass pass, const backend::Batch& batch, std::span<float> logits) override {
    backend::require_valid(batch, program_, capacity_, pass, hidden_row_count_);
    const backend::SequenceRows& rows = batch.sequences.front();
    if (pass == backend::Pass::main) {
      EXPECT_LE(rows.position, end_);
      EXPECT_GE(rows.position, end_ - draft_row_count_);
      end_ = rows.position + rows.row_count;
      draft_row_count_ = rows.draft_row_count;
    }
    hidden_row_count_ = rows.row_count;
    std::size_t i = 0;
    for (const std::int32_t row : batch.logits_rows)
      for (const float x : (pass == backend::Pass::main ? kMain : kDraft)[batch.tokens[row]]) logits[i++] = x;
  }
  void begin() { end_ = 0, draft_row_count_ = 0; }

  static constexpr Table kMain{{{0.5f, -0.3f, 0.1f}, {1.2f, 0.f, -1.f}, {-0.4f, 0.9f, 0.6f}}};
  static constexpr Table kDraft{{{0.1f, 0.4f, 0.f}, {0.9f, 0.3f, -0.5f}, {0.7f, 0.2f, 0.2f}}};

 private:
  backend::Program program_;
  backend::Capacity capacity_{.page_count = 48, .page_tokens = 16, .state_slot_count = 4, .row_count = 64};
  std::int64_t end_ = 0;
  std::int64_t hidden_row_count_ = 0;
  std::int32_t draft_row_count_ = 0;
};

}  // namespace fourfold::engine
