// Who runs next, in integers alone: it knows neither models nor time.
//
// A request waits, runs and leaves. Running it has a state slot and pages for its tokens; both may be taken
// away from the youngest when an older one needs pages (it is preempted and waits again, at its old place in
// the queue, and is computed again). Older requests are never preempted for younger ones, so the oldest
// always makes progress, and every request becomes the oldest.
//
// A step's rows go to generated tokens first, the least recently served before the others, and what is left
// to prompts, the oldest first, cut at multiples of 64. Where no prompt got anything, one comes first in the
// next step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/token_grain.h"
#include "schedule/page_pool.h"
#include "schedule/prefix_index.h"

namespace fourfold::schedule {

using Id = std::uint64_t;  // ascending as requests arrive

inline constexpr std::int64_t kAnchorTokens = kTokenGrain;  // recurrent states move at multiples of it
inline constexpr std::int64_t kReplayRows = 32;  // generated rows of a sequence that is computed again
// A long prompt's state is kept at multiples of this, at most so many times: more would push out those of
// other prompts.
inline constexpr std::int64_t kAnchorStride = 2'048;
inline constexpr std::int64_t kAnchorsAlong = 8;

struct Limits {
  std::int64_t page_count = 0;
  std::int64_t page_tokens = kTokenGrain;
  std::int64_t sequence_count = 0;  // running at once
  std::int64_t step_rows = 0;
  std::int64_t measured_rows = 0;  // of them prompt rows that give logits; 0: all may
  std::int64_t anchor_count = 0;   // 0: prefixes are not shared
  bool recurrent = true;           // the model has states, which pages alone do not hold
  bool shares_answers = false;     // pages of generated rows are as good as those of prompt rows
  std::int64_t overlap = 0;        // tokens behind a page that its contents depend on
};

struct Arrival {
  Id id = 0;
  std::vector<std::int32_t> prompt;
  std::int64_t end_limit = 0;  // tokens of prompt and answer together, at most
  std::string salt;
  // Every row of the prompt gives logits that are wanted: none may be left out for a prefix hit.
  bool measures_prompt = false;
  std::uint64_t client = 0;  // whoever asks: clients take turns
};

// A waiting request runs: with these tokens of it in the caches already, and their state at `anchor`.
struct Admission {
  Id id = 0;
  std::int32_t slot = 0;
  std::int64_t cached_count = 0;
  std::int32_t anchor = -1;  // none: it begins at 0, or the model has no states
};

struct Work {
  Id id = 0;
  std::int64_t row_count = 0;
};

struct StepPlan {
  std::vector<Id> preempted;  // before the others are admitted
  std::vector<Admission> admitted;
  std::vector<Work> work;
};

// What a step left of a sequence.
struct Progress {
  std::int64_t position = 0;               // tokens in the caches
  std::int64_t shareable = 0;              // of them complete in every cache
  std::int64_t furthest = 0;               // positions written, rejected drafts included
  std::span<const std::int32_t> appended;  // new tokens
  std::int64_t draft_count = 0;            // drafts to be verified next
};

// The state in a slot at a position is to be kept.
struct AnchorSave {
  std::int32_t anchor = 0;
  std::int32_t slot = 0;
  std::int64_t position = 0;
};

// Lookups and hits are those of requests when they are admitted first, not when they are computed again.
struct Counts {
  std::int64_t lookups = 0, hits = 0, cached_tokens = 0, preempted = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const Limits& limits);

  // Whether it could run if it were alone.
  bool fits(std::int64_t end_limit) const;
  void arrive(Arrival arrival);
  // It has ended, or is not wanted any more. With keeps_state its state may be worth keeping, before the
  // slot is used again.
  std::optional<AnchorSave> leave(Id id, bool keeps_state);
  // A request failed, and the cause may be in pages that later requests would share: every cached page that
  // is not in use is dropped.
  void distrust();

  // draft_room: drafts a sequence may write behind its rows.
  const StepPlan& plan(std::int64_t draft_room);
  std::span<const std::int32_t> pages(Id id) const;
  // Once for each Work of the plan that was run.
  std::optional<AnchorSave> advance(Id id, const Progress& progress);

  // What becomes of cached pages; see PrefixIndex.
  void note_events() { index_.note_events(); }
  std::vector<BlockEvent> take_events() { return index_.take_events(); }
  std::vector<BlockEvent> all_events() const { return index_.all_events(); }

  bool idle() const { return sequences_.empty(); }
  std::int64_t waiting_count() const { return static_cast<std::int64_t>(waiting_.size()); }
  std::int64_t running_count() const { return static_cast<std::int64_t>(running_.size()); }
  std::int64_t cached_pages() const { return index_.node_count(); }
  std::int64_t idle_pages() const { return index_.idle_pages(); }  // of them held by the index alone
  std::int64_t free_pages() const { return pool_.free_count(); }
  std::int64_t anchors_used() const { return index_.anchors_used(); }
  const Counts& counts() const { return counts_; }

  // What is wrong with the books, for tests: nothing.
  std::string problem() const;

 private:
  struct Sequence {
    std::vector<std::int32_t> tokens;  // prompt and answer
    std::int64_t prompt_count = 0;
    std::int64_t end_limit = 0;
    std::string salt;
    std::uint64_t client = 0;
    std::int64_t position = 0;
    std::int64_t furthest = 0;
    std::int64_t draft_count = 0;
    std::int64_t stop = 0;  // where its prompt should be cut, so that the state there can be kept
    bool measures_prompt = false;
    std::int64_t measured = 0;  // rows of its prompt that have been run once
    std::int32_t slot = -1;
    std::vector<std::int32_t> pages;
    PrefixIndex::Node node = PrefixIndex::kNone;  // of its last page that is in the index
    std::int64_t indexed_pages = 0;
    std::uint64_t last_step = 0;
    bool counted = false;  // in Counts, when it was admitted first
    bool in_prompt() const { return position < prompt_count; }
    // Its state is kept at multiples of this along its prompt, and where the prompt's last block begins.
    std::int64_t anchor_stride() const;
    std::int64_t last_anchor() const { return (prompt_count - 1) / kAnchorTokens * kAnchorTokens; }
    std::int64_t behind() const { return std::ssize(tokens) - 1 - position; }
    // Generated rows: the newest token and its drafts, or tokens to be computed again.
    std::int64_t generated_rows() const;
  };
  using Entry = std::pair<const Id, Sequence>;
  bool sharing() const { return limits_.anchor_count > 0; }
  bool keeping_states() const { return sharing() && limits_.recurrent; }
  std::int64_t pages_for(std::int64_t token_count) const;
  std::int64_t prompt_rows(const Sequence& sequence, std::int64_t row_limit) const;
  bool grow(Entry& entry, std::int64_t end);
  bool drop_younger(Id id);
  void give_up_home(Sequence& sequence);
  void begin_waiting(Id id);
  void end_waiting(Id id);
  void admit();
  Id next_waiting() const;
  bool can_admit(const Sequence& sequence, const PrefixIndex::Hit& hit) const;
  void serve(Entry& entry, std::int64_t row_count, std::int64_t draft_room);
  void serve_prompts(std::int64_t draft_room, bool one_block);
  void serve_generated(std::int64_t draft_room);
  void index_pages(Sequence& sequence, std::int64_t shareable);
  std::optional<AnchorSave> keep_state(Sequence& sequence, std::int64_t position);

  Limits limits_;
  PagePool pool_;
  PrefixIndex index_;
  std::map<Id, Sequence> sequences_;
  std::set<Id> waiting_, running_;
  std::map<std::uint64_t, std::set<Id>> waiting_of_;  // the same ones, by client
  std::vector<std::int32_t> free_slots_;
  StepPlan plan_;
  std::set<Id> served_;
  std::int64_t rows_left_ = 0, measured_left_ = 0;
  bool pages_short_ = false;  // a request had to wait for pages in this step
  bool prompt_waited_ = false;
  std::uint64_t step_ = 0;
  Counts counts_;
};

}  // namespace fourfold::schedule
