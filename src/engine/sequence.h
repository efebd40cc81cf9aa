// One request on its way from prompt to last token, as a machine that says which rows it wants next and takes
// the logits they gave. It runs nothing itself: a step loop puts the rows of many sequences into one batch.
//
// A step is one main pass and, with drafts, some draft passes behind it:
//   main    a piece of the prompt; or the newest token and the drafts of the step before, to be verified; or
//           tokens of the answer again, by a sequence that was taken out of its home
//   draft   the rows the main pass kept, each with the token that follows it, so that the draft layer's cache
//           holds true hidden states; then one row a pass, each continuing the layer's own output
// Rejected drafts are undone by going on at an earlier position.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/choice.h"
#include "backend/program.h"
#include "engine/request.h"
#include "engine/step_batch.h"
#include "engine/token_guide.h"
#include "sample/sampler.h"

namespace fourfold::engine {

// What a model allows.
struct ModelLimits {
  std::int64_t vocab_size = 0;
  std::int64_t position_limit = 0;
  bool can_draft = false;
};
ModelLimits limits_of(const backend::Program& program);

// Throws invalid_request: an empty prompt, ids outside the vocabulary, a prompt and max_tokens beyond the
// model's positions, min_tokens beyond max_tokens, drafts asked of a model that has no layer for them, bad
// sampling parameters. Needs no loaded model, so that a bad request does not wait for one.
void require_valid(const Request& request, const ModelLimits& limits);

// What a sequence leaves behind in its home.
struct CachedTokens {
  std::vector<TokenId> tokens;      // from position 0
  std::int64_t end = 0;             // positions the home has seen, rejected drafts included
  std::int64_t draft_end = 0;       // positions the draft layer's cache has
  std::int64_t resumable_from = 0;  // how far back the home can go, by backend::Prepared::resumable_from
};

// How many tokens of the prompt need not be run again in that home: those they have in common, but not all of
// the prompt, and 0 when the recurrent state cannot go back that far. The answer is the same as without where
// a backend computes prompt rows and generated rows alike, as reference and cpu do. A request with drafts
// needs the draft layer's cache as well.
std::int64_t reusable_count(const CachedTokens& cached, const Request& request);

// What a pass gives for a sequence's rows that asked: logits, or tokens that were chosen by choice().
struct RowAnswers {
  std::span<const float> logits = {};    // [rows, vocabulary]
  std::span<const TokenId> tokens = {};  // [rows]
};

class Sequence {
 public:
  // Throws as require_valid does. With a guide every token of the answer is one it allows.
  Sequence(const backend::Program& program, Request request, Home home,
           std::unique_ptr<TokenGuide> guide = nullptr);

  const Home& home() const { return home_; }
  // Another home, whose caches hold the first `cached_count` tokens of prompt and answer. What is missing is
  // computed again as it was before: prompt rows as prompt rows, generated rows as generated ones.
  void move(Home home, std::int64_t cached_count);
  void set_pages(std::span<const std::int32_t> pages) { home_.pages.assign(pages.begin(), pages.end()); }
  // Drafts of the steps from now on. Chosen drafts never change the answer.
  void set_draft_count(int count) { request_.draft_count = count; }
  // The draft layer's cache is filled without drafts too, so that there can be drafts later.
  void keep_draft_cache() { keeps_draft_cache_ = true; }

  Finish finish() const { return finish_; }
  bool finished() const { return finish_ != Finish::running; }
  void cancel() { finish_ = Finish::cancelled; }
  void end(Finish finish) { finish_ = finish; }
  // Finish::failed, and why.
  void fail(std::string error);
  // It was the answer's form that failed: what the caches hold is as good as before.
  bool form_failed() const { return form_failed_; }
  const std::string& error() const { return error_; }
  std::int64_t prompt_count() const { return static_cast<std::int64_t>(request_.prompt.size()); }
  bool in_prompt() const { return next_position_ < prompt_count(); }
  // Positions before it are in the caches.
  std::int64_t position() const { return next_position_; }
  std::int64_t furthest() const { return furthest_; }
  std::int64_t draft_position() const { return draft_end_; }
  std::int64_t pending_drafts() const { return std::ssize(draft_tokens_); }
  // Tokens of the answer so far, a stop id among them.
  std::span<const TokenId> answer() const { return std::span(tokens_).subspan(request_.prompt.size()); }
  // What the last step added, with log-probabilities if asked.
  std::span<const sample::Sampled> newest() const { return newest_; }
  const DraftCounts& drafts() const { return counts_; }
  // Of every token of the prompt but its first, when the prompt has been run and they were asked for; once.
  std::vector<sample::Logprobs> take_prompt_logprobs() {
    return in_prompt() ? std::vector<sample::Logprobs>() : std::exchange(prompt_logprobs_, {});
  }
  CachedTokens cached() const;

  // The rows of the next main pass, at most `row_limit`; none when they do not fit. Valid until take_main.
  PassRows main_rows(std::int64_t row_limit);
  // What the rows asked for. resumable_from: what the backend says of the home's state slot now.
  void take_main(const RowAnswers& answers, std::int64_t resumable_from);
  // How the backend may choose the tokens of its rows itself, or that the logits are wanted here: with
  // log-probabilities, before min_tokens, with drafts that are drawn, and with penalties once the backend's
  // room for histories is not enough. A choice with a history counts on history(), set before the first.
  backend::Choice choice(backend::Pass pass, std::int64_t history_limit);
  std::vector<backend::SeenToken> history() const;
  // Whether the history has to be set in this home; true once.
  bool takes_history() { return !std::exchange(history_is_set_, true); }
  // From now on tokens are chosen here.
  void choose_here() { chooses_here_ = true; }
  std::int64_t token_limit() const { return sampler_.token_limit(); }

  // Behind each main pass and each draft pass: whether there is one more, its rows, and its logits.
  // hidden_row is where the sequence's rows began in the pass before.
  bool wants_draft() const { return draft_rows_wanted_; }
  PassRows draft_rows(std::int32_t hidden_row);
  void take_draft(const RowAnswers& answers);
  // Or all of them at once: how many drafts the passes from here on give, 0 before the newest token.
  int drafts_wanted() const { return behind() ? 0 : static_cast<int>(drafts_wanted_); }
  void take_drafts(std::span<const TokenId> drafts);

 private:
  // Whether there are tokens before the newest one to be run.
  bool behind() const { return in_prompt() || next_position_ < std::ssize(tokens_) - 1; }
  // Whether min_tokens keeps the answer from ending with its next token.
  bool must_go_on() const { return std::ssize(answer()) < request_.min_tokens && !request_.stop_ids.empty(); }
  // Rows of a prompt whose logits are wanted for their own sake, [first, second) by position.
  std::pair<std::int64_t, std::int64_t> measured_rows(std::int64_t begin, std::int64_t end) const;
  void measure_prompt(std::span<const float> logits);
  void allow_tokens();
  template <class Work>
  void ask_guide(Work work);
  void append(const sample::Sampled& sampled);
  void take_first(const RowAnswers& answers);
  sample::Sampled choose(const RowAnswers& answers, std::size_t row, const sample::Draft* draft);
  void verify(const RowAnswers& answers);
  void plan_drafts();

  Request request_;
  Home home_;
  std::int64_t vocab_size_;
  sample::Sampler sampler_;
  std::vector<TokenId> tokens_;     // prompt and answer
  std::int64_t next_position_ = 0;  // of the next main pass: positions before it are in the caches
  std::int64_t home_end_ = 0;       // positions the home has seen
  std::int64_t draft_end_ = 0;      // and those in the draft layer's cache
  std::int64_t resumable_from_ = 0;
  std::int64_t pass_position_ = 0;  // where the last main pass began, and how many of its rows were kept
  std::int64_t kept_count_ = 0;
  std::vector<TokenId> row_tokens_;  // of the pass on its way
  std::vector<sample::Draft> draft_tokens_;
  std::int64_t drafts_wanted_ = 0;
  int draft_pass_ = 0;
  bool draft_rows_wanted_ = false;
  bool chooses_here_ = false;
  bool history_is_set_ = false;
  bool keeps_draft_cache_ = false;
  bool form_failed_ = false;
  std::int64_t furthest_ = 0;  // positions this home was asked for, rejected drafts included
  std::unique_ptr<TokenGuide> guide_;
  std::vector<std::uint64_t> allowed_;  // empty: all tokens
  std::vector<sample::Logprobs> prompt_logprobs_;
  std::int64_t measured_count_ = 0;  // rows of the prompt behind prompt_logprobs_, handed out or not
  bool main_is_here_ = false;        // the main pass on its way gives logits
  std::vector<sample::Sampled> newest_;
  DraftCounts counts_;
  Finish finish_ = Finish::running;
  std::string error_;
};

// Where a prompt is cut: at absolute multiples of 64 where the limit allows, since that is where recurrent
// states move.
std::int64_t cut_prompt(std::int64_t position, std::int64_t prompt_count, std::int64_t row_limit);

}  // namespace fourfold::engine
