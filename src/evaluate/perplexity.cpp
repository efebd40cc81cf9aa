#include "evaluate/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/log_softmax.h"
#include "base/token_grain.h"

namespace fourfold::evaluate {
namespace {

using backend::Pass;

constexpr std::int64_t kRowsMax = 256;

// What is asked of a row of logits: the best of them and their normaliser, which costs a pass over the
// vocabulary and is therefore computed once.
struct Row {
  explicit Row(std::span<const float> all) : logits(all) {
    best = std::max_element(all.begin(), all.end()) - all.begin();
    log_total = log_normalizer(all);
  }
  double log_probability(std::int64_t token) const {
    return static_cast<double>(logits[static_cast<std::size_t>(token)]) - log_total;
  }

  std::span<const float> logits;
  std::int64_t best = 0;
  double log_total = 0;
};

class Scorer {
 public:
  explicit Scorer(backend::Prepared& prepared)
      : prepared_(prepared),
        vocab_(static_cast<std::size_t>(prepared.program().vocab_size)),
        pages_(static_cast<std::size_t>(prepared.capacity().page_count)) {
    std::iota(pages_.begin(), pages_.end(), 0);
  }

  // tokens: the rows' own and the one behind the last. position 0 starts a window.
  void pass(std::int64_t position, std::span<const std::int32_t> tokens, TextScore& score) {
    const std::size_t count = tokens.size() - 1;
    run(Pass::main, position, tokens.first(count), logits_);
    // A draft is held against the row after its own; that of a pass's last row waits for the next pass.
    if (position == 0) waiting_.clear();
    if (!prepared_.program().draft.empty()) {
      run(Pass::draft, position, tokens.subspan(1), drafts_);
      for (std::size_t i = 0; i < count; ++i) {
        const std::span<const float> draft = row(drafts_, i);
        waiting_.push_back(std::max_element(draft.begin(), draft.end()) - draft.begin());
      }
    }
    const std::size_t first_judged = position == 0 ? 1 : 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Row own(row(logits_, i));
      score.surprise -= own.log_probability(tokens[i + 1]);
      score.best_count += own.best == tokens[i + 1] ? 1 : 0;
      if (waiting_.empty() || i < first_judged) continue;
      const std::int64_t draft = waiting_[i - first_judged];
      ++score.draft_count;
      score.accepted_count += own.best == draft ? 1 : 0;
      score.accepted_probability += std::exp(own.log_probability(draft));
    }
    score.token_count += static_cast<std::int64_t>(count);
    if (!waiting_.empty()) waiting_.erase(waiting_.begin(), waiting_.end() - 1);
  }

 private:
  std::span<const float> row(const std::vector<float>& logits, std::size_t i) const {
    return std::span(logits).subspan(i * vocab_, vocab_);
  }

  void run(Pass pass, std::int64_t position, std::span<const std::int32_t> tokens, std::vector<float>& out) {
    const auto count = static_cast<std::int32_t>(tokens.size());
    const backend::SequenceRows rows{.row_count = count,
                                     .position = position,
                                     .page_count = static_cast<std::int32_t>(pages_.size()),
                                     .role = backend::Role::prefill};
    rows_.resize(tokens.size());
    std::iota(rows_.begin(), rows_.end(), 0);
    out.resize(tokens.size() * vocab_);
    const std::span<const std::int32_t> hidden =
        pass == Pass::draft ? rows_ : std::span<const std::int32_t>();
    prepared_.run(pass, {tokens, {&rows, 1}, pages_, rows_, hidden}, out);
  }

  backend::Prepared& prepared_;
  std::size_t vocab_;
  std::vector<std::int32_t> pages_, rows_;
  std::vector<float> logits_, drafts_;
  std::vector<std::int64_t> waiting_;  // drafts whose row has not come yet
};

}  // namespace

double TextScore::mean_surprise() const { return surprise / static_cast<double>(token_count); }
double TextScore::perplexity() const { return std::exp(mean_surprise()); }

backend::Capacity score_capacity(std::int64_t window) {
  return {.page_count = (window + kTokenGrain - 1) / kTokenGrain,
          .page_tokens = kTokenGrain,
          .state_slot_count = 1,
          .row_count = std::min(window, kRowsMax)};
}

TextScore score_text(backend::Prepared& prepared, std::span<const std::int32_t> tokens, std::int64_t window,
                     const std::function<void(std::int64_t)>& progress) {
  if (tokens.size() < 2)
    fail(Code::invalid_request, "a text of {} tokens has nothing to predict; two are the least",
         tokens.size());
  const auto total = static_cast<std::int64_t>(tokens.size());
  const std::int64_t rows_max = prepared.capacity().row_count;
  Scorer scorer(prepared);
  TextScore score;
  for (std::int64_t begin = 0; begin + 1 < total; begin += window) {
    const std::int64_t end = std::min(begin + window, total - 1);
    for (std::int64_t at = begin; at < end; at += rows_max) {
      const std::int64_t count = std::min(rows_max, end - at);
      scorer.pass(at - begin,
                  tokens.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count) + 1), score);
      if (progress) progress(score.token_count);
    }
  }
  return score;
}

}  // namespace fourfold::evaluate
