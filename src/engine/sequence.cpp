#include "engine/sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/sampling_limits.h"

namespace fourfold::engine {

namespace {

TokenId known_draft(TokenId token) {
  if (token < 0) fail(Code::internal, "the logits of a draft are not finite: no token can be chosen");
  return token;
}

}  // namespace

ModelLimits limits_of(const backend::Program& program) {
  return {program.vocab_size, program.position_limit, !program.draft.empty()};
}

void require_valid(const Request& request, const ModelLimits& limits) {
  if (request.prompt.empty())
    fail_with_hint(Code::invalid_request, "Give at least one token.", "the prompt is empty");
  for (std::size_t i = 0; i < request.prompt.size(); ++i)
    if (request.prompt[i] < 0 || request.prompt[i] >= limits.vocab_size)
      fail(Code::invalid_request, "token {} of the prompt has id {}; the vocabulary has {}", i,
           request.prompt[i], limits.vocab_size);
  const auto prompt_count = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t least_tokens = request.prompt_logprobs ? 0 : 1;
  if (prompt_count + least_tokens > limits.position_limit)
    fail_with_hint(Code::invalid_request, "Shorten the prompt.",
                   "the prompt has {} tokens; the model's limit is {} for prompt and answer together",
                   prompt_count, limits.position_limit);
  if (request.max_tokens < least_tokens)
    fail(Code::invalid_request, "max_tokens is {}; it must be at least {}", request.max_tokens, least_tokens);
  if (request.max_tokens > limits.position_limit - prompt_count)
    fail_with_hint(Code::invalid_request,
                   format("Ask for at most {} tokens.", limits.position_limit - prompt_count),
                   "a prompt of {} tokens and max_tokens {} exceed the model's limit of {}", prompt_count,
                   request.max_tokens, limits.position_limit);
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens)
    fail(Code::invalid_request, "min_tokens is {}; it must be at least 0 and at most max_tokens, which is {}",
         request.min_tokens, request.max_tokens);
  if (request.prompt_logprobs && (*request.prompt_logprobs < 0 || *request.prompt_logprobs > kLogprobsMax))
    fail(Code::invalid_request, "prompt_logprobs is {}; it must be at least 0 and at most {}",
         *request.prompt_logprobs, kLogprobsMax);
  if (request.draft_count < 0 || request.draft_count > kDraftCountMax)
    fail(Code::invalid_request, "{} drafts a step; it must be at least 0 and at most {}", request.draft_count,
         kDraftCountMax);
  if (request.draft_count > 0 && !limits.can_draft)
    fail_with_hint(Code::invalid_request, "Ask for 0 drafts.",
                   "{} drafts a step were asked, but the model has no MTP layer to draft with",
                   request.draft_count);
  if (request.cached_count < 0 || request.cached_count >= prompt_count)
    fail(Code::invalid_request, "{} tokens of a prompt of {} are cached; at least one must be run",
         request.cached_count, prompt_count);
  if (request.prompt_logprobs && request.cached_count > 0)
    fail(Code::invalid_request, "{} tokens of the prompt are cached, but log-probabilities of all are wanted",
         request.cached_count);
  sample::require_valid(request.params, limits.vocab_size);
}

std::int64_t reusable_count(const CachedTokens& cached, const Request& request) {
  const std::vector<TokenId>& prompt = request.prompt;
  std::int64_t common = 0;
  std::int64_t most = std::min(std::ssize(cached.tokens), std::ssize(prompt) - 1);
  if (request.draft_count > 0) most = std::min(most, cached.draft_end);
  while (common < most && cached.tokens[common] == prompt[common]) ++common;
  return common >= cached.resumable_from ? common : 0;
}

std::int64_t cut_prompt(std::int64_t position, std::int64_t prompt_count, std::int64_t row_limit) {
  if (prompt_count - position <= row_limit) return prompt_count;
  const std::int64_t block = (position + row_limit) / backend::kAnchorTokens * backend::kAnchorTokens;
  return block > position ? block : position + row_limit;
}

Sequence::Sequence(const backend::Program& program, Request request, Home home,
                   std::unique_ptr<TokenGuide> guide)
    : request_(std::move(request)),
      home_(std::move(home)),
      vocab_size_(program.vocab_size),
      sampler_(request_.params, vocab_size_, request_.token_limit > 0 ? request_.token_limit : vocab_size_),
      tokens_(request_.prompt),
      next_position_(request_.cached_count),
      home_end_(request_.cached_count),
      draft_end_(request_.draft_count > 0 ? request_.cached_count : 0),
      // Until a step has run this is all that is known.
      resumable_from_(request_.cached_count),
      furthest_(request_.cached_count),
      guide_(std::move(guide)) {
  require_valid(request_, limits_of(program));
  sampler_.note_prompt(request_.prompt);
}

void Sequence::move(Home home, std::int64_t cached_count) {
  check(cached_count < std::ssize(tokens_), "at least one row is run", cached_count, tokens_.size());
  home_ = std::move(home);
  next_position_ = home_end_ = furthest_ = resumable_from_ = cached_count;
  draft_end_ = keeps_draft_cache_ || request_.draft_count > 0 ? cached_count : 0;
  draft_tokens_.clear();
  draft_rows_wanted_ = false;
  history_is_set_ = false;
}

void Sequence::fail(std::string error) {
  finish_ = Finish::failed;
  error_ = std::move(error);
  draft_tokens_.clear();
  draft_rows_wanted_ = false;
}

PassRows Sequence::main_rows(std::int64_t row_limit) {
  check(!finished(), "only a running sequence has rows");
  PassRows rows{.position = next_position_};
  newest_.clear();  // also where the step fails: what the one before gave has been delivered
  row_tokens_.clear();
  if (in_prompt()) {
    if (row_limit < 1) return rows;
    const std::int64_t end = cut_prompt(next_position_, prompt_count(), row_limit);
    row_tokens_.assign(tokens_.begin() + next_position_, tokens_.begin() + end);
    rows.logits_row_count = end == std::ssize(tokens_) ? 1 : 0;
    // All rows from the first that is measured on: where that is the last piece, its last row as well.
    if (const auto [first, last] = measured_rows(next_position_, end); first < last)
      rows.logits_row_count = static_cast<std::int32_t>(end - first);
  } else if (behind()) {
    if (row_limit < 1) return rows;
    const std::int64_t end = std::min(next_position_ + row_limit, std::ssize(tokens_) - 1);
    row_tokens_.assign(tokens_.begin() + next_position_, tokens_.begin() + end);
    rows.role = backend::Role::decode;
  } else {
    if (row_limit < 1 + std::ssize(draft_tokens_)) return rows;
    row_tokens_.push_back(tokens_.back());
    for (const sample::Draft& draft : draft_tokens_) row_tokens_.push_back(draft.token);
    rows.role = backend::Role::decode;
    rows.draft_row_count = static_cast<std::int32_t>(draft_tokens_.size());
    rows.logits_row_count = static_cast<std::int32_t>(row_tokens_.size());
  }
  rows.tokens = row_tokens_;
  return rows;
}

// A row tells of the token behind it, so the prompt's last one is not among them. Rows before
// measured_count_ are run again by a sequence that was taken out of its home.
std::pair<std::int64_t, std::int64_t> Sequence::measured_rows(std::int64_t begin, std::int64_t end) const {
  if (!request_.prompt_logprobs) return {0, 0};
  return {std::max(begin, measured_count_), std::min(end, prompt_count() - 1)};
}

void Sequence::measure_prompt(std::span<const float> logits) {
  const auto [first, last] = measured_rows(pass_position_, home_end_);
  if (first >= last) return;
  check(first == measured_count_, "no row of the prompt is left out", first, measured_count_);
  const auto count = static_cast<std::size_t>(last - first);
  std::vector<sample::Logprobs> rows =
      sample::measure_rows(logits.first(count * static_cast<std::size_t>(vocab_size_)),
                           std::span(tokens_).subspan(static_cast<std::size_t>(first) + 1, count),
                           *request_.prompt_logprobs, sampler_.token_limit());
  std::ranges::move(rows, std::back_inserter(prompt_logprobs_));
  measured_count_ = last;
}

// What it throws ends this answer, and says nothing against the caches.
template <class Work>
void Sequence::ask_guide(Work work) {
  form_failed_ = true;
  work();
  form_failed_ = false;
}

void Sequence::append(const sample::Sampled& sampled) {
  tokens_.push_back(sampled.token);
  newest_.push_back(sampled);
  if (guide_ != nullptr) ask_guide([&] { guide_->accept(sampled.token); });
  if (std::ranges::find(request_.stop_ids, sampled.token) != request_.stop_ids.end())
    finish_ = Finish::stop_id;
  else if (std::ssize(answer()) == request_.max_tokens)
    finish_ = Finish::max_tokens;
}

// Which tokens may come next, to allowed_.
void Sequence::allow_tokens() {
  const std::size_t words = static_cast<std::size_t>(vocab_size_ + 63) / 64;
  allowed_.clear();
  if (guide_ != nullptr) {
    allowed_.assign(words, 0);
    ask_guide([&] { guide_->allowed(allowed_); });
  }
  if (!must_go_on()) return;
  if (allowed_.empty()) allowed_.assign(words, ~std::uint64_t{0});
  std::vector<std::uint64_t> without_end = allowed_;
  for (const TokenId id : request_.stop_ids)
    if (id >= 0 && id < vocab_size_)
      without_end[static_cast<std::size_t>(id) / 64] &= ~(std::uint64_t{1} << (id % 64));
  // A form that is complete and cannot go on ends all the same.
  if (sampler_.allows_any(without_end)) allowed_ = std::move(without_end);
}

sample::Sampled Sequence::choose(const RowAnswers& answers, std::size_t row, const sample::Draft* draft) {
  if (!answers.tokens.empty()) {
    if (answers.tokens[row] < 0)
      fourfold::fail(Code::internal, "the logits at position {} are not finite: no token can be chosen",
                     tokens_.size());
    return sampler_.note_chosen(answers.tokens[row], draft);
  }
  allow_tokens();
  return sampler_.sample(answers.logits.subspan(row * vocab_size_, vocab_size_), std::ssize(tokens_), draft,
                         allowed_);
}

// Row j has seen the drafts before it, so its answer counts only while all of them stand.
void Sequence::verify(const RowAnswers& answers) {
  for (std::size_t row = 0; !finished(); ++row) {
    const sample::Draft* draft = row < draft_tokens_.size() ? &draft_tokens_[row] : nullptr;
    const sample::Sampled sampled = choose(answers, row, draft);
    if (draft != nullptr) {
      ++counts_.verified;
      counts_.accepted += sampled.draft_accepted;
    }
    append(sampled);
    if (!sampled.draft_accepted) break;
  }
}

void Sequence::take_first(const RowAnswers& answers) {
  if (request_.max_tokens == 0) {
    finish_ = Finish::max_tokens;
    return;
  }
  const std::size_t rows = answers.tokens.empty()
                               ? answers.logits.size() / static_cast<std::size_t>(vocab_size_)
                               : answers.tokens.size();
  append(choose(answers, rows - 1, nullptr));
}

void Sequence::take_main(const RowAnswers& answers, std::int64_t resumable_from) {
  resumable_from_ = resumable_from;
  pass_position_ = next_position_;
  home_end_ = pass_position_ + std::ssize(row_tokens_);
  furthest_ = std::max(furthest_, home_end_);
  if (behind()) {
    measure_prompt(answers.logits);
    kept_count_ = std::ssize(row_tokens_);
    next_position_ += kept_count_;
    if (next_position_ == std::ssize(tokens_)) take_first(answers);
  } else {
    verify(answers);
    kept_count_ = std::ssize(newest_);
    next_position_ += kept_count_;
  }
  draft_tokens_.clear();
  plan_drafts();
}

void Sequence::plan_drafts() {
  draft_pass_ = 0;
  // A step gives one token more than drafts that stand; what lies beyond max_tokens is not drafted.
  drafts_wanted_ = finished() ? 0
                              : std::min<std::int64_t>(request_.draft_count,
                                                       request_.max_tokens - std::ssize(answer()) - 1);
  // An answer of one token leaves its prompt behind, for requests that begin alike and draft.
  const bool leaves_prompt = pass_position_ < prompt_count() && std::ssize(tokens_) > next_position_;
  draft_rows_wanted_ = drafts_wanted_ > 0 || (keeps_draft_cache_ && (!finished() || leaves_prompt));
}

CachedTokens Sequence::cached() const {
  return {{tokens_.begin(), tokens_.begin() + next_position_}, home_end_, draft_end_, resumable_from_};
}

PassRows Sequence::draft_rows(std::int32_t hidden_row) {
  PassRows rows{.role = pass_position_ < prompt_count() ? backend::Role::prefill : backend::Role::decode,
                .logits_row_count = drafts_wanted() > 0 ? 1 : 0,
                .hidden_row = hidden_row};
  const std::int64_t kept_end = pass_position_ + kept_count_;
  row_tokens_.clear();
  if (draft_pass_ == 0) {
    row_tokens_.assign(tokens_.begin() + pass_position_ + 1, tokens_.begin() + kept_end + 1);
    rows.position = pass_position_;
  } else {
    // The pass before may have had more rows; its last one is continued.
    if (draft_pass_ == 1) rows.hidden_row += static_cast<std::int32_t>(kept_count_) - 1;
    row_tokens_.push_back(draft_tokens_.back().token);
    rows.position = kept_end - 1 + draft_pass_;
    rows.role = backend::Role::decode;
  }
  rows.tokens = row_tokens_;
  return rows;
}

backend::Choice Sequence::choice(backend::Pass pass, std::int64_t history_limit) {
  const sample::Params& params = sampler_.params();
  // The tokens of a step are noted where they are chosen before they are seen here.
  if (sampler_.needs_history() && sampler_.seen_count() + kDraftCountMax + 1 > history_limit) choose_here();
  const bool drawn = request_.draw_drafts && request_.draft_count > 0;
  if (pass == backend::Pass::main) {
    const auto [first, last] = measured_rows(next_position_, next_position_ + std::ssize(row_tokens_));
    main_is_here_ = sampler_.wants_logits() || guide_ != nullptr || must_go_on() || first < last;
  }
  if (chooses_here_ || drawn || (pass == backend::Pass::main && main_is_here_)) return {.wants_logits = true};
  // Nothing is noted there when the main pass gives logits.
  if (sampler_.needs_history() && main_is_here_) return {.wants_logits = true};
  backend::Choice choice;
  choice.has_history = sampler_.needs_history();
  choice.repetition_penalty = params.repetition_penalty;
  choice.presence_penalty = params.presence_penalty;
  choice.frequency_penalty = params.frequency_penalty;
  if (pass == backend::Pass::draft) return choice;  // a draft is the most probable token
  choice.seed = params.seed;
  choice.temperature = params.temperature;
  choice.top_k = params.top_k;
  choice.top_p = params.top_p;
  choice.min_p = params.min_p;
  return choice;
}

std::vector<backend::SeenToken> Sequence::history() const {
  std::vector<backend::SeenToken> out;
  for (const sample::Seen& seen : sampler_.seen())
    out.push_back({seen.token, static_cast<std::int32_t>(seen.count), seen.bias});
  return out;
}

void Sequence::take_drafts(std::span<const TokenId> drafts) {
  draft_end_ = pass_position_ + kept_count_;
  draft_pass_ = std::max(static_cast<int>(drafts.size()), 1);
  for (const TokenId token : drafts) draft_tokens_.push_back({known_draft(token), std::nullopt});
  draft_rows_wanted_ = false;
}

void Sequence::take_draft(const RowAnswers& answers) {
  // What later passes write are guesses, to be overwritten.
  if (draft_pass_ == 0) draft_end_ = pass_position_ + kept_count_;
  ++draft_pass_;
  if (drafts_wanted() > 0 && !answers.tokens.empty())
    draft_tokens_.push_back({known_draft(answers.tokens.front()), std::nullopt});
  else if (drafts_wanted() > 0)
    draft_tokens_.push_back(sampler_.draft(answers.logits, std::ssize(tokens_) + std::ssize(draft_tokens_),
                                           request_.draw_drafts));
  draft_rows_wanted_ = std::ssize(draft_tokens_) < drafts_wanted();
}

}  // namespace fourfold::engine
