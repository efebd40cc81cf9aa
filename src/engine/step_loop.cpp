#include "engine/step_loop.h"

namespace fourfold::engine {

template <class Take>
void StepLoop::run(backend::Pass pass, Take take) {
  const std::size_t vocab_size = prepared_.program().vocab_size;
  logits_.resize(static_cast<std::size_t>(batch_.logits_row_count()) * vocab_size);
  prepared_.run(pass, batch_.batch(), logits_);
  std::span<const float> rest(logits_);
  for (const Member& member : members_) {
    const std::size_t count = static_cast<std::size_t>(member.logits_row_count) * vocab_size;
    take(*member.sequence, rest.first(count));
    rest = rest.subspan(count);
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
  run(backend::Pass::main, [this](Sequence& sequence, std::span<const float> logits) {
    sequence.take_main(logits, prepared_.resumable_from(sequence.home().state_slot));
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
        [](Sequence& sequence, std::span<const float> logits) { sequence.take_draft(logits); });
  }
}

}  // namespace fourfold::engine
