// Submissions in, deliveries out, one step at a time on the caller's thread: what Engine runs on its own.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "engine/step_loop.h"
#include "schedule/draft_tuner.h"
#include "schedule/scheduler.h"

namespace fourfold::engine {

class Batcher {
 public:
  using Clock = std::chrono::steady_clock;
  // Throws invalid_request for options that do not fit the prepared program.
  Batcher(backend::Prepared& prepared, const EngineOptions& options);

  // Any thread: it reads what never changes. Throws invalid_request.
  void require_valid(const Submission& submission) const;
  std::int64_t sequence_limit() const { return limits_.sequence_count; }

  // Ids ascend.
  void add(RequestId id, Submission submission, Clock::time_point submitted);
  // Ends it now, whatever it is doing; ids that are not here are ignored.
  void end(RequestId id, Finish finish, std::vector<Delivery>& out);
  void end_all(Finish finish, std::vector<Delivery>& out);
  // After an exception of step() or end(): all have failed, and nothing can be run any more, unless it begins
  // anew: with no page, prefix or state of before.
  void abandon(const std::string& why, Trouble trouble, std::vector<Delivery>& out);
  void begin_anew();
  bool idle() const { return live_.empty(); }
  // One step of those that run; false when there is nothing to do.
  bool step(std::vector<Delivery>& out);
  // Hands what became of cached blocks to whoever asked for it.
  void tell_blocks();

  EngineStatus status() const;
  // What is wrong with the books, for tests: nothing.
  std::string problem() const { return scheduler_->problem(); }

 private:
  struct Live {
    std::unique_ptr<Sequence> sequence;
    Clock::time_point submitted, admitted, first_token;
    std::optional<Clock::time_point> deadline;
    bool was_admitted = false;
    std::int64_t cached_count = 0;  // when it was admitted first
  };
  static schedule::Limits make_limits(const backend::Prepared& prepared, const EngineOptions& options);
  int choose_draft_count();
  void enter(const schedule::StepPlan& plan);
  void run(const schedule::StepPlan& plan);
  void note_pace(const schedule::StepPlan& plan, double seconds);
  void advance(const schedule::Work& work, std::vector<Delivery>& out);
  void retire(RequestId id, bool keeps_state);
  void keep(const std::optional<schedule::AnchorSave>& save);
  Usage usage_of(const Live& live) const;
  void expire(std::vector<Delivery>& out);

  backend::Prepared& prepared_;
  EngineOptions options_;
  ModelLimits model_;
  bool drafts_ = false;  // the draft layer is in use
  int drafts_most_ = 0;
  schedule::Limits limits_;
  std::optional<schedule::Scheduler> scheduler_;  // always there; another after begin_anew()
  schedule::DraftTuner tuner_;
  StepLoop loop_;
  std::map<RequestId, Live> live_;
  std::vector<Turn> turns_;
  int draft_count_ = 0;         // of this step
  int draft_count_before_ = 0;  // of the one before
  bool blocks_missed_ = false;  // events were dropped
  EngineStatus totals_;         // what is counted, not what is
  std::deque<std::pair<Clock::time_point, std::int64_t>> lately_;
};

}  // namespace fourfold::engine
