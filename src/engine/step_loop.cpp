#include "engine/step_loop.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace fourfold::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

backend::Choices StepLoop::choices_of(backend::Pass pass) {
  choices_.clear();
  // One limit a pass; a backend serves one model, so others are rare, and choose here.
  const std::int64_t limit = members_.front().sequence->token_limit();
  for (Member& member : members_) {
    Sequence& sequence = *member.sequence;
    if (sequence.token_limit() != limit) sequence.choose_here();
    const backend::Choice choice = sequence.choice(pass, prepared_.history_limit());
    member.takes_logits = choice.wants_logits;
    if (choice.has_history && pass == backend::Pass::main && member.logits_row_count > 0 &&
        sequence.takes_history())
      prepared_.set_history(sequence.home().state_slot, sequence.history());
    choices_.insert(choices_.end(), static_cast<std::size_t>(member.logits_row_count), choice);
  }
  return {limit, choices_};
}

template <class Work>
void StepLoop::keep_fault(Sequence& sequence, Work work) {
  if (!keeps_faults_) return work();
  try {
    work();
  } catch (const std::exception& error) {
    sequence.fail(error.what());
  }
}

template <class Take>
void StepLoop::run(backend::Pass pass, Take take) {
  const std::size_t vocab_size = prepared_.program().vocab_size;
  const auto row_count = static_cast<std::size_t>(batch_.logits_row_count());
  const backend::Choices choices = choices_of(pass);
  const auto wanting = static_cast<std::size_t>(std::count_if(
      choices_.begin(), choices_.end(), [](const auto& choice) { return choice.wants_logits; }));
  tokens_.resize(row_count);
  const auto begin = Clock::now();
  if (backend_chooses_) {
    logits_.resize(wanting * vocab_size);
    backend_chooses_ = prepared_.run_sampled(pass, batch_.batch(), choices, {tokens_, logits_});
  }
  if (!backend_chooses_) {
    for (Member& member : members_) member.takes_logits = true;
    logits_.resize(row_count * vocab_size);
    prepared_.run(pass, batch_.batch(), logits_);
  }
  backend_seconds_ += seconds_since(begin);
  std::span<const TokenId> tokens = tokens_;
  std::span<const float> logits = logits_;
  for (const Member& member : members_) {
    const auto count = static_cast<std::size_t>(member.logits_row_count);
    if (pass == backend::Pass::main)
      (member.takes_logits ? counts_.here : counts_.there) += member.logits_row_count;
    RowAnswers answers;
    if (member.takes_logits) {
      answers.logits = logits.first(count * vocab_size);
      logits = logits.subspan(count * vocab_size);
    } else {
      answers.tokens = tokens.first(count);
    }
    tokens = tokens.subspan(count);
    keep_fault(*member.sequence, [&] { take(*member.sequence, answers); });
  }
}

std::int64_t StepLoop::step(std::span<Sequence* const> sequences) {
  turns_.clear();
  for (Sequence* sequence : sequences) turns_.push_back({sequence, prepared_.capacity().row_count});
  return step(turns_);
}

std::int64_t StepLoop::step(std::span<const Turn> turns) {
  batch_.clear();
  members_.clear();
  for (const auto& [sequence, row_limit] : turns) {
    if (sequence->finished()) continue;
    const PassRows rows =
        sequence->main_rows(std::min(row_limit, prepared_.capacity().row_count - batch_.row_count()));
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

void StepLoop::begin_draft(const std::vector<Member>& before) {
  members_.clear();
  batch_.clear();
  for (const Member& member : before) {
    if (!member.sequence->wants_draft()) continue;
    const PassRows rows = member.sequence->draft_rows(member.first_row);
    members_.push_back({member.sequence, batch_.row_count(), rows.logits_row_count});
    batch_.add(rows, member.sequence->home(), backend::Pass::draft);
  }
}

// All drafts of the step by one call, where the backend can and no sequence wants logits.
bool StepLoop::draft_at_once() {
  const backend::Choices choices = choices_of(backend::Pass::draft);
  for (const backend::Choice& choice : choices_)
    if (choice.wants_logits) return false;
  draft_counts_.clear();
  std::size_t draft_count = 0;
  for (const Member& member : members_) {
    if (member.logits_row_count == 0) continue;
    draft_counts_.push_back(member.sequence->drafts_wanted());
    draft_count += static_cast<std::size_t>(draft_counts_.back());
  }
  tokens_.resize(draft_count);
  const auto begin = Clock::now();
  if (!prepared_.run_drafts(batch_.batch(), choices, draft_counts_, tokens_)) return false;
  backend_seconds_ += seconds_since(begin);
  std::span<const TokenId> drafts = tokens_;
  for (const Member& member : members_) {
    const auto count = static_cast<std::size_t>(member.sequence->drafts_wanted());
    keep_fault(*member.sequence, [&] { member.sequence->take_drafts(drafts.first(count)); });
    drafts = drafts.subspan(count);
  }
  return true;
}

void StepLoop::draft() {
  begin_draft(std::vector(members_));
  if (batch_.empty() || draft_at_once()) return;
  while (!batch_.empty()) {
    run(backend::Pass::draft,
        [](Sequence& sequence, const RowAnswers& answers) { sequence.take_draft(answers); });
    begin_draft(std::vector(members_));
  }
}

}  // namespace fourfold::engine
