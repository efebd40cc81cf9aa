#include "engine/batcher.h"

#include <algorithm>
#include <set>
#include <utility>

#include "backend/window_pages.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/cache_room.h"

namespace fourfold::engine {
namespace {

constexpr std::chrono::seconds kLately{5};

// Logits of prompt rows that are wanted for their own sake come to the host: so many bytes of them a step,
// but at least a block's.
constexpr std::int64_t kMeasuredBytes = 128'000'000;

std::int64_t measured_rows(std::int64_t vocab_size) {
  const std::int64_t row_bytes = vocab_size * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t blocks = kMeasuredBytes / row_bytes / schedule::kAnchorTokens;
  return std::max<std::int64_t>(blocks, 1) * schedule::kAnchorTokens;
}

double seconds_between(Batcher::Clock::time_point begin, Batcher::Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

schedule::Limits Batcher::make_limits(const backend::Prepared& prepared, const EngineOptions& options) {
  const backend::Capacity& capacity = prepared.capacity();
  const auto chosen = [](std::int64_t asked, std::int64_t most, std::string_view what) {
    if (asked < 0 || asked > most)
      fail(Code::invalid_request, "{} of {}: there is room for {}", what, asked, most);
    return asked == 0 ? most : asked;
  };
  schedule::Limits limits;
  limits.page_count = capacity.page_count;
  limits.page_tokens = capacity.page_tokens;
  limits.sequence_count = chosen(options.max_sequences, capacity.state_slot_count, "running sequences");
  limits.step_rows = chosen(options.step_rows, capacity.row_count, "rows of a step");
  limits.measured_rows = measured_rows(prepared.program().vocab_size);
  // Where prompt rows have their own arithmetic, prompts are cut at multiples of 64 alone.
  if (!prepared.roles_agree() && limits.step_rows < schedule::kAnchorTokens)
    fail(Code::invalid_request, "{} rows a step: this backend needs at least {}", limits.step_rows,
         schedule::kAnchorTokens);
  limits.anchor_count = capacity.anchor_count;
  limits.recurrent = prepared.anchor_bytes() > 0;
  if (options.prefix_cache_bytes == 0) limits.anchor_count = 0;
  if (options.prefix_cache_bytes > 0 && prepared.anchor_bytes() > 0)
    limits.anchor_count = std::min(limits.anchor_count, options.prefix_cache_bytes / prepared.anchor_bytes());
  limits.shares_answers = prepared.roles_agree();
  // The draft layer's cache at a position depends on the token behind it.
  limits.overlap = options.mtp != 0 && !prepared.program().draft.empty() ? 1 : 0;
  return limits;
}

Batcher::Batcher(backend::Prepared& prepared, const EngineOptions& options)
    : prepared_(prepared),
      options_(options),
      model_(limits_of(prepared.program())),
      drafts_(options.mtp != 0 && model_.can_draft),
      drafts_most_(options.mtp == EngineOptions::kMtpAuto ? kDraftCountMax : options.mtp),
      limits_(make_limits(prepared, options)),
      scheduler_(std::in_place, limits_),
      tuner_(kDraftCountMax),
      loop_(prepared, StepLoop::Faults::kept) {
  if (options.mtp != EngineOptions::kMtpAuto && (options.mtp < 0 || options.mtp > kDraftCountMax))
    fail(Code::invalid_request, "{} drafts a step; it must be at least 0 and at most {}", options.mtp,
         kDraftCountMax);
  if (options.mtp > 0 && !model_.can_draft)
    fail_with_hint(Code::invalid_request, "Ask for 0 drafts.",
                   "{} drafts a step were asked, but the model has no MTP layer to draft with", options.mtp);
  if (options_.on_blocks) scheduler_->note_events();
  if (!drafts_) drafts_most_ = 0;
  drafts_most_ = static_cast<int>(std::min<std::int64_t>(drafts_most_, limits_.step_rows - 1));
}

void Batcher::require_valid(const Submission& submission) const {
  const Request& request = submission.request;
  if (request.draw_drafts || request.draft_count != 0 || request.cached_count != 0)
    fail(Code::invalid_request, "drafts and cached tokens are the engine's own business");
  engine::require_valid(request, model_);
  const std::int64_t end_limit = std::ssize(request.prompt) + request.max_tokens;
  // As Scheduler::fits, which the engine's thread may be putting in order.
  if (end_limit > limits_.page_count * limits_.page_tokens)
    fail_with_hint(
        Code::invalid_request,
        format("Ask for at most {} tokens in all.", limits_.page_count * limits_.page_tokens),
        "a prompt of {} tokens and max_tokens {} need more than the {} pages of {} tokens there are",
        request.prompt.size(), request.max_tokens, limits_.page_count, limits_.page_tokens);
}

void Batcher::add(RequestId id, Submission submission, Clock::time_point submitted) {
  Request& request = submission.request;
  schedule::Arrival arrival{id,
                            request.prompt,
                            std::ssize(request.prompt) + request.max_tokens,
                            std::move(submission.cache_salt),
                            request.prompt_logprobs.has_value(),
                            submission.client};
  Live live;
  live.submitted = submitted;
  if (submission.time_limit) live.deadline = submitted + *submission.time_limit;
  live.sequence = std::make_unique<Sequence>(prepared_.program(), std::move(request), Home{},
                                             std::move(submission.guide));
  if (drafts_) live.sequence->keep_draft_cache();
  scheduler_->arrive(std::move(arrival));  // last: what throws before leaves nothing behind
  live_.emplace(id, std::move(live));
}

Usage Batcher::usage_of(const Live& live) const {
  const Sequence& sequence = *live.sequence;
  const Clock::time_point now = Clock::now();
  Usage usage;
  usage.prompt_count = sequence.prompt_count();
  usage.cached_count = live.cached_count;
  usage.answer_count = std::ssize(sequence.answer());
  usage.drafts = sequence.drafts();
  usage.queued_seconds = seconds_between(live.submitted, live.was_admitted ? live.admitted : now);
  if (!live.was_admitted) return usage;
  const bool has_token = usage.answer_count > 0;
  usage.prompt_seconds = seconds_between(live.admitted, has_token ? live.first_token : now);
  if (has_token) usage.answer_seconds = seconds_between(live.first_token, now);
  return usage;
}

void Batcher::keep(const std::optional<schedule::AnchorSave>& save) {
  if (save) prepared_.save_anchor(save->slot, save->position, save->anchor);
}

void Batcher::retire(RequestId id, bool keeps_state) {
  const Live& live = live_.at(id);
  const Finish finish = live.sequence->finish();
  const bool doubtful = finish == Finish::failed && !live.sequence->form_failed();
  if (finish == Finish::failed)
    ++totals_.failed;
  else if (finish == Finish::stop_id || finish == Finish::max_tokens)
    ++totals_.finished;
  else
    ++totals_.cancelled;
  totals_.drafts.verified += live.sequence->drafts().verified;
  totals_.drafts.accepted += live.sequence->drafts().accepted;
  keep(scheduler_->leave(id, keeps_state));
  if (doubtful) scheduler_->distrust();
  live_.erase(id);
}

void Batcher::end(RequestId id, Finish finish, std::vector<Delivery>& out) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  found->second.sequence->end(finish);
  out.push_back({.id = id, .tokens = {}, .finish = finish, .error = {}, .usage = usage_of(found->second)});
  retire(id, /*keeps_state=*/true);
}

void Batcher::end_all(Finish finish, std::vector<Delivery>& out) {
  while (!live_.empty()) end(live_.begin()->first, finish, out);
}

void Batcher::abandon(const std::string& why, Trouble trouble, std::vector<Delivery>& out) {
  std::set<RequestId> told;
  for (const Delivery& delivery : out)
    if (delivery.finish != Finish::running) told.insert(delivery.id);
  for (const auto& [id, live] : live_)
    if (!told.contains(id))
      out.push_back({.id = id,
                     .tokens = {},
                     .finish = Finish::failed,
                     .error = why,
                     .trouble = trouble,
                     .usage = usage_of(live)});
  totals_.failed += std::ssize(live_);
  live_.clear();
}

void Batcher::begin_anew() {
  check(live_.empty(), "those of before have been told");
  const schedule::Counts& counts = scheduler_->counts();
  totals_.prefix_lookups += counts.lookups;
  totals_.prefix_hits += counts.hits;
  totals_.preempted += counts.preempted;
  scheduler_.emplace(limits_);
  if (options_.on_blocks) scheduler_->note_events();
}

void Batcher::expire(std::vector<Delivery>& out) {
  const Clock::time_point now = Clock::now();
  std::vector<RequestId> late;
  for (const auto& [id, live] : live_)
    if (live.deadline && *live.deadline <= now) late.push_back(id);
  for (const RequestId id : late) end(id, Finish::time_limit, out);
}

int Batcher::choose_draft_count() {
  if (!drafts_) return 0;
  if (options_.mtp != EngineOptions::kMtpAuto) return drafts_most_;
  return std::min(tuner_.choose(scheduler_->running_count()), drafts_most_);
}

void Batcher::enter(const schedule::StepPlan& plan) {
  for (const schedule::Admission& admission : plan.admitted) {
    Live& live = live_.at(admission.id);
    live.sequence->move({admission.slot, {}}, admission.cached_count);
    if (admission.cached_count > 0)
      prepared_.restore_anchor(admission.anchor, admission.slot, admission.cached_count);
    if (std::exchange(live.was_admitted, true)) continue;
    live.admitted = Clock::now();
    live.cached_count = admission.cached_count;
    totals_.prompt_tokens += live.sequence->prompt_count();
    totals_.cached_tokens += admission.cached_count;
  }
}

void Batcher::run(const schedule::StepPlan& plan) {
  turns_.clear();
  for (const schedule::Work& work : plan.work) {
    Sequence& sequence = *live_.at(work.id).sequence;
    sequence.set_pages(scheduler_->pages(work.id));
    sequence.set_draft_count(draft_count_);
    turns_.push_back({&sequence, work.row_count});
  }
  // Nothing is known of what they left in their homes.
  const auto fail_all = [&](const char* why) {
    for (const Turn& turn : turns_) turn.sequence->fail(why);
  };
  try {
    const std::int64_t rows = loop_.step(turns_);
    std::int64_t planned = 0;
    for (const schedule::Work& work : plan.work) planned += work.row_count;
    check(rows == planned, "the step's rows are those of the plan", rows, planned);
  } catch (const Error& error) {
    if (error.code() == Code::device_lost) throw;  // no step can follow: see Engine::Body::break_down
    fail_all(error.what());
  } catch (const std::exception& error) {
    fail_all(error.what());
  }
}

// Steps of generated rows alone, with as many drafts as the step before, say what drafts are worth.
void Batcher::note_pace(const schedule::StepPlan& plan, double seconds) {
  schedule::DraftTuner::Step step{.sequence_count = std::ssize(plan.work),
                                  .draft_count = draft_count_,
                                  .accepted = {},
                                  .seconds = seconds};
  std::int64_t rows = 0;
  for (const schedule::Work& work : plan.work) {
    const Sequence& sequence = *live_.at(work.id).sequence;
    if (sequence.newest().empty()) return;
    // The last token is the model's own.
    const std::size_t accepted = std::min(sequence.newest().size() - 1, step.accepted.size());
    for (std::size_t i = 0; i < accepted; ++i) ++step.accepted[i];
    rows += work.row_count;
  }
  if (draft_count_ == draft_count_before_ && rows == step.sequence_count * (1 + draft_count_))
    tuner_.note(step);
}

void Batcher::advance(const schedule::Work& work, std::vector<Delivery>& out) {
  Live& live = live_.at(work.id);
  Sequence& sequence = *live.sequence;
  const bool failed = sequence.finish() == Finish::failed;
  if (!failed) {
    std::vector<std::int32_t> appended;
    for (const sample::Sampled& sampled : sequence.newest()) appended.push_back(sampled.token);
    totals_.answer_tokens += std::ssize(appended);
    if (!appended.empty() && std::ssize(sequence.answer()) == std::ssize(appended))
      live.first_token = Clock::now();
    keep(scheduler_->advance(work.id, {.position = sequence.position(),
                                       .shareable = drafts_ ? sequence.draft_position() : sequence.position(),
                                       .furthest = sequence.furthest(),
                                       .appended = appended,
                                       .draft_count = sequence.pending_drafts()}));
  }
  if (!sequence.newest().empty() || sequence.finished())
    out.push_back({.id = work.id,
                   .tokens = {sequence.newest().begin(), sequence.newest().end()},
                   .finish = sequence.finish(),
                   .error = sequence.error(),
                   .prompt_logprobs = sequence.take_prompt_logprobs(),
                   .usage = usage_of(live)});
  if (sequence.finished()) retire(work.id, !failed);
}

bool Batcher::step(std::vector<Delivery>& out) {
  expire(out);
  if (idle()) return false;
  const Clock::time_point begin = Clock::now();
  const double backend_before = loop_.backend_seconds();
  draft_count_before_ = std::exchange(draft_count_, choose_draft_count());
  const schedule::StepPlan& plan = scheduler_->plan(draft_count_);
  check(!plan.work.empty(), "the oldest request always gets on", scheduler_->running_count(),
        scheduler_->waiting_count());
  enter(plan);
  run(plan);
  note_pace(plan, seconds_between(begin, Clock::now()));
  const std::int64_t tokens_before = totals_.answer_tokens;
  for (const schedule::Work& work : plan.work) advance(work, out);
  lately_.emplace_back(Clock::now(), totals_.answer_tokens - tokens_before);
  const double in_backend = loop_.backend_seconds() - backend_before;
  ++totals_.steps;
  totals_.step_seconds += in_backend;
  totals_.overhead_seconds += seconds_between(begin, Clock::now()) - in_backend;
  while (!lately_.empty() && lately_.front().first < begin - kLately) lately_.pop_front();
  return true;
}

void Batcher::tell_blocks() {
  if (!options_.on_blocks) return;
  std::vector<schedule::BlockEvent> events = scheduler_->take_events();
  if (blocks_missed_) events = scheduler_->all_events();
  if (!events.empty()) blocks_missed_ = !options_.on_blocks(std::move(events), limits_.page_tokens);
}

EngineStatus Batcher::status() const {
  EngineStatus status = totals_;
  status.running = scheduler_->running_count();
  status.waiting = scheduler_->waiting_count();
  status.sequence_limit = limits_.sequence_count;
  status.queue_limit = options_.max_queue;
  status.page_count = limits_.page_count;
  status.pages_used = limits_.page_count - scheduler_->free_pages();
  status.page_tokens = limits_.page_tokens;
  status.pages_cached = scheduler_->idle_pages();
  status.window_pages = backend::WindowPages::count_of(prepared_.program(), prepared_.capacity());
  status.window_bytes = window_bytes(prepared_.program(), prepared_.capacity());
  status.shares_prefixes = limits_.anchor_count > 0;
  status.anchors = scheduler_->anchors_used();
  status.anchor_bytes = status.anchors * prepared_.anchor_bytes();
  status.anchor_byte_limit = limits_.anchor_count * prepared_.anchor_bytes();
  status.prefix_lookups += scheduler_->counts().lookups;
  status.prefix_hits += scheduler_->counts().hits;
  status.preempted += scheduler_->counts().preempted;
  status.mtp = draft_count_;
  for (const auto& [id, live] : live_) {
    status.drafts.verified += live.sequence->drafts().verified;
    status.drafts.accepted += live.sequence->drafts().accepted;
  }
  std::int64_t tokens = 0;
  for (const auto& [time, count] : lately_) tokens += count;
  const Clock::time_point now = Clock::now();
  if (!lately_.empty() && lately_.back().first >= now - kLately) {
    const double span = seconds_between(lately_.front().first, now);
    status.tokens_per_second = static_cast<double>(tokens) / std::max(span, 0.5);
  }
  return status;
}

}  // namespace fourfold::engine
