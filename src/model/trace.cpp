#include "model/trace.h"

#include <algorithm>
#include <numeric>

namespace fourfold::model {
namespace {

using backend::Pass;

constexpr std::int64_t kPageTokens = 64;

class Driver {
 public:
  explicit Driver(backend::Prepared& prepared)
      : prepared_(prepared), pages_(static_cast<std::size_t>(prepared.capacity().page_count)) {
    std::iota(pages_.begin(), pages_.end(), 0);
  }

  // Logits of all rows. hidden_row: draft pass, the row of the pass before that the first row continues.
  std::vector<float> step(Pass pass, std::int64_t position, std::span<const std::int32_t> tokens,
                          std::int32_t hidden_row = 0) {
    const auto count = static_cast<std::int32_t>(tokens.size());
    const backend::SequenceRows rows{.row_count = count,
                                     .position = position,
                                     .page_count = static_cast<std::int32_t>(pages_.size()),
                                     .role = count > 1 ? backend::Role::prompt : backend::Role::generated};
    std::vector<std::int32_t> asked(tokens.size()), hidden_rows;
    std::iota(asked.begin(), asked.end(), 0);
    if (pass == Pass::draft)
      for (std::int32_t i = 0; i < count; ++i) hidden_rows.push_back(hidden_row + i);
    std::vector<float> logits(tokens.size() * static_cast<std::size_t>(prepared_.program().vocab_size));
    prepared_.run(pass, {tokens, {&rows, 1}, pages_, asked, hidden_rows}, logits);
    return logits;
  }

 private:
  backend::Prepared& prepared_;
  std::vector<std::int32_t> pages_;
};

void append(std::vector<float>& to, const std::vector<float>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// The prompt's positions with the tokens after them, then one at a time from the pass before.
void run_drafts(Driver& driver, const PromptReference& prompt, std::size_t vocab, Trace& trace) {
  const auto count = static_cast<std::int64_t>(prompt.ids.size());
  std::vector<std::int32_t> next(prompt.ids.begin() + 1, prompt.ids.end());
  next.push_back(prompt.greedy_ids.front());
  trace.mtp = driver.step(Pass::draft, 0, next);
  trace.drafts.assign(trace.mtp.end() - static_cast<std::ptrdiff_t>(vocab), trace.mtp.end());
  trace.mtp.resize(trace.mtp.size() - vocab);
  for (std::size_t i = 1; i < prompt.draft_ids.size(); ++i)
    append(trace.drafts, driver.step(Pass::draft, count + static_cast<std::int64_t>(i) - 1,
                                     std::span(prompt.draft_ids).subspan(i - 1, 1),
                                     i == 1 ? static_cast<std::int32_t>(count) - 1 : 0));
}

}  // namespace

backend::Capacity trace_capacity(std::span<const PromptReference> prompts) {
  std::int64_t rows = 1;
  std::int64_t positions = 1;
  for (const PromptReference& prompt : prompts) {
    const auto count = static_cast<std::int64_t>(prompt.ids.size());
    const auto more = std::max(prompt.greedy_ids.size(), prompt.draft_ids.size() + 1);
    rows = std::max(rows, count);
    positions = std::max(positions, count + static_cast<std::int64_t>(more));
  }
  return {.page_count = (positions + kPageTokens - 1) / kPageTokens,
          .page_tokens = kPageTokens,
          .state_slot_count = 1,
          .row_count = rows};
}

Trace run_trace(backend::Prepared& prepared, const PromptReference& prompt) {
  const backend::Program& program = prepared.program();
  const auto vocab = static_cast<std::size_t>(program.vocab_size);
  Driver driver(prepared);
  Trace trace;
  trace.logits = driver.step(Pass::main, 0, prompt.ids);
  for (const backend::ValueId layer : program.layer_outputs)
    if (const auto kept = prepared.value(layer); !kept.empty())
      trace.hidden.emplace_back(kept.begin(), kept.end());
  const auto last = prepared.value(program.final_hidden);
  trace.final_norm.assign(last.begin(), last.end());
  trace.greedy.assign(trace.logits.end() - static_cast<std::ptrdiff_t>(vocab), trace.logits.end());
  if (!program.draft.empty() && !prompt.draft_ids.empty()) run_drafts(driver, prompt, vocab, trace);
  auto position = static_cast<std::int64_t>(prompt.ids.size());
  for (std::size_t i = 1; i < prompt.greedy_ids.size(); ++i)
    append(trace.greedy, driver.step(Pass::main, position++, std::span(prompt.greedy_ids).subspan(i - 1, 1)));
  return trace;
}

}  // namespace fourfold::model
