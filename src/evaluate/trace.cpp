#include "evaluate/trace.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/token_grain.h"

namespace fourfold::evaluate {
namespace {

using backend::Pass;

class Driver {
 public:
  explicit Driver(backend::Prepared& prepared)
      : prepared_(prepared), pages_(static_cast<std::size_t>(prepared.capacity().page_count)) {
    std::iota(pages_.begin(), pages_.end(), 0);
  }

  // Logits of the rows asked for. hidden_row: draft pass, the row of the pass before that the first row
  // continues.
  std::vector<float> step(Pass pass, std::int64_t position, std::span<const std::int32_t> tokens,
                          std::span<const std::int32_t> asked, std::int32_t hidden_row = 0) {
    const auto count = static_cast<std::int32_t>(tokens.size());
    const backend::SequenceRows rows{.row_count = count,
                                     .position = position,
                                     .page_count = static_cast<std::int32_t>(pages_.size()),
                                     .role = count > 1 ? backend::Role::prefill : backend::Role::decode};
    std::vector<std::int32_t> hidden_rows;
    if (pass == Pass::draft)
      for (std::int32_t i = 0; i < count; ++i) hidden_rows.push_back(hidden_row + i);
    std::vector<float> logits(asked.size() * static_cast<std::size_t>(prepared_.program().vocab_size));
    prepared_.run(pass, {tokens, {&rows, 1}, pages_, asked, hidden_rows}, logits);
    return logits;
  }
  // The same for one token.
  std::vector<float> step(Pass pass, std::int64_t position, std::int32_t token, std::int32_t hidden_row = 0) {
    const std::int32_t first = 0;
    return step(pass, position, {&token, 1}, {&first, 1}, hidden_row);
  }

 private:
  backend::Prepared& prepared_;
  std::vector<std::int32_t> pages_;
};

void append(std::vector<float>& to, const std::vector<float>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// The rows `asked` of a value [rows, columns], behind what is there.
void append_rows(std::vector<float>& to, std::span<const float> value, std::size_t rows,
                 std::span<const std::int32_t> asked) {
  const std::size_t columns = value.size() / rows;
  for (const std::int32_t row : asked) {
    const auto from = value.subspan(static_cast<std::size_t>(row) * columns, columns);
    to.insert(to.end(), from.begin(), from.end());
  }
}

// The prompt, a step's rows at a time; each piece is followed by its draft pass, which reads the hidden
// states of the pass before it and takes the tokens one further on.
void run_prompt(Driver& driver, const backend::Prepared& prepared, const PromptReference& prompt,
                bool with_drafts, Trace& trace) {
  const backend::Program& program = prepared.program();
  const auto at_once = static_cast<std::size_t>(prepared.capacity().row_count);
  std::vector<std::int32_t> next(prompt.ids.begin() + 1, prompt.ids.end());
  next.push_back(prompt.greedy_ids.front());
  for (std::size_t at = 0; at < prompt.ids.size(); at += at_once) {
    const std::size_t count = std::min(at_once, prompt.ids.size() - at);
    const auto position = static_cast<std::int64_t>(at);
    std::vector<std::int32_t> asked;
    for (const std::int32_t row : prompt.rows)
      if (row >= position && row < position + static_cast<std::int64_t>(count))
        asked.push_back(row - static_cast<std::int32_t>(at));
    append(trace.logits, driver.step(Pass::main, position, std::span(prompt.ids).subspan(at, count), asked));
    std::size_t layer = 0;
    for (const backend::ValueId output : program.layer_outputs)
      if (const auto kept = prepared.value(output); !kept.empty()) {
        trace.hidden.resize(std::max(trace.hidden.size(), layer + 1));
        append_rows(trace.hidden[layer++], kept, count, asked);
      }
    append_rows(trace.final_norm, prepared.value(program.final_hidden), count, asked);
    if (with_drafts)
      append(trace.mtp, driver.step(Pass::draft, position, std::span(next).subspan(at, count), asked));
  }
}

// Drafts one at a time, each from the pass before; the first is of the prompt's last row.
void run_drafts(Driver& driver, const PromptReference& prompt, std::size_t vocab, std::size_t last_piece,
                Trace& trace) {
  const auto count = static_cast<std::int64_t>(prompt.ids.size());
  trace.drafts.assign(trace.mtp.end() - static_cast<std::ptrdiff_t>(vocab), trace.mtp.end());
  trace.mtp.resize(trace.mtp.size() - vocab);
  for (std::size_t i = 1; i < prompt.draft_ids.size(); ++i)
    append(trace.drafts,
           driver.step(Pass::draft, count + static_cast<std::int64_t>(i) - 1, prompt.draft_ids[i - 1],
                       i == 1 ? static_cast<std::int32_t>(last_piece) - 1 : 0));
}

}  // namespace

backend::Capacity trace_capacity(std::span<const PromptReference> prompts, std::int64_t step_rows) {
  if (step_rows < 0 || step_rows % kTokenGrain != 0)
    fail(Code::invalid_request, "{} rows a step; a multiple of {} is needed, or 0 for whole prompts",
         step_rows, kTokenGrain);
  std::int64_t rows = 1;
  std::int64_t positions = 1;
  for (const PromptReference& prompt : prompts) {
    const auto count = static_cast<std::int64_t>(prompt.ids.size());
    const auto more = std::max(prompt.greedy_ids.size(), prompt.draft_ids.size() + 1);
    rows = std::max(rows, count);
    positions = std::max(positions, count + static_cast<std::int64_t>(more));
  }
  return {.page_count = (positions + kTokenGrain - 1) / kTokenGrain,
          .page_tokens = kTokenGrain,
          .state_slot_count = 1,
          .row_count = step_rows > 0 ? std::min(rows, step_rows) : rows};
}

Trace run_trace(backend::Prepared& prepared, const PromptReference& prompt) {
  const backend::Program& program = prepared.program();
  const auto vocab = static_cast<std::size_t>(program.vocab_size);
  const bool with_drafts = !program.draft.empty() && !prompt.draft_ids.empty();
  Driver driver(prepared);
  Trace trace;
  run_prompt(driver, prepared, prompt, with_drafts, trace);
  trace.greedy.assign(trace.logits.end() - static_cast<std::ptrdiff_t>(vocab), trace.logits.end());
  if (with_drafts) {
    const auto at_once = static_cast<std::size_t>(prepared.capacity().row_count);
    run_drafts(driver, prompt, vocab, (prompt.ids.size() - 1) % at_once + 1, trace);
  }
  auto position = static_cast<std::int64_t>(prompt.ids.size());
  for (std::size_t i = 1; i < prompt.greedy_ids.size(); ++i)
    append(trace.greedy, driver.step(Pass::main, position++, prompt.greedy_ids[i - 1]));
  return trace;
}

}  // namespace fourfold::evaluate
