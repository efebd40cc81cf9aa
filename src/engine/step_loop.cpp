#include "engine/step_loop.h"

namespace fourfold::engine {

std::int64_t StepLoop::greedy_limit() const {
  std::int64_t limit = 0;
  for (const Member& member : members_) {
    const std::int64_t own = member.sequence->greedy_limit();
    if (own == 0 || (limit != 0 && own != limit)) return 0;
    limit = own;
  }
  return limit;
}

template <class Take>
void StepLoop::run(backend::Pass pass, Take take) {
  const std::size_t vocab_size = prepared_.program().vocab_size;
  const auto row_count = static_cast<std::size_t>(batch_.logits_row_count());
  const std::int64_t limit = greedy_limit();
  tokens_.resize(row_count);
  RowAnswers rest;
  if (limit > 0 && prepared_.run_greedy(pass, batch_.batch(), limit, tokens_)) {
    rest.tokens = tokens_;
  } else {
    logits_.resize(row_count * vocab_size);
    prepared_.run(pass, batch_.batch(), logits_);
    rest.logits = logits_;
  }
  for (const Member& member : members_) {
    const auto count = static_cast<std::size_t>(member.logits_row_count);
    if (rest.tokens.empty()) {
      take(*member.sequence, RowAnswers{.logits = rest.logits.first(count * vocab_size)});
      rest.logits = rest.logits.subspan(count * vocab_size);
    } else {
      take(*member.sequence, RowAnswers{.tokens = rest.tokens.first(count)});
      rest.tokens = rest.tokens.subspan(count);
    }
  }
}

std::int64_t StepLoop::step(std::span<Sequence* const> sequences) {
  batch_.clear();
  members_.clear();
  for (Sequence* sequence : sequences) {
    if (sequence->finished()) continue;
    const PassRows rows = sequence->main_rows(prepared_.capacity().row_count - batch_.row_count());
    if (rows.tokens.empty()) continue;
    members_.push_back({sequence, batch_.row_count(), rows.logits_row_count});
    batch_.add(rows, sequence->home(), backend::Pass::main);
  }
  if (batch_.empty()) return 0;
  const std::int64_t row_count = batch_.row_count();
  run(backend::Pass::main, [this](Sequence& sequence, const RowAnswers& answers) {
    sequence.take_main(answers, prepared_.resumable_from(sequence.home().state_slot));
  });
  draft();
  return row_count;
}

void StepLoop::draft() {
  for (;;) {
    std::vector<Member> before;
    before.swap(members_);
    batch_.clear();
    for (const Member& member : before) {
      if (!member.sequence->wants_draft()) continue;
      const PassRows rows = member.sequence->draft_rows(member.first_row);
      members_.push_back({member.sequence, batch_.row_count(), rows.logits_row_count});
      batch_.add(rows, member.sequence->home(), backend::Pass::draft);
    }
    if (batch_.empty()) return;
    run(backend::Pass::draft,
        [](Sequence& sequence, const RowAnswers& answers) { sequence.take_draft(answers); });
  }
}

}  // namespace fourfold::engine
