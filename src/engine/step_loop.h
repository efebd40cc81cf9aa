// Runs sequences on a prepared program, many in one batch: one main pass, then draft passes until no sequence
// wants another. Who is admitted, and when, is the scheduler's business.
#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "engine/sequence.h"

namespace fourfold::engine {

// Where tokens were chosen: by the backend, beside the logits, or here. Drafts are not counted.
struct ChoiceCounts {
  std::int64_t there = 0;
  std::int64_t here = 0;
};

// A sequence and how many rows of the step it may have.
struct Turn {
  Sequence* sequence = nullptr;
  std::int64_t row_limit = 0;
};

class StepLoop {
 public:
  // Logits no token can be chosen from are thrown as internal, or end their own sequence alone as failed.
  enum class Faults { thrown, kept };
  explicit StepLoop(backend::Prepared& prepared, Faults faults = Faults::thrown)
      : prepared_(prepared), keeps_faults_(faults == Faults::kept) {}

  // One step of the unfinished sequences, in the order given as far as their rows fit. Gives the rows of its
  // main pass; 0 when there was nothing to do.
  std::int64_t step(std::span<Sequence* const> sequences);
  std::int64_t step(std::span<const Turn> turns);

  // Of the rows asked so far, chosen ones that were thrown away with their drafts included.
  const ChoiceCounts& choices() const { return counts_; }
  // Of all steps, spent waiting for the backend.
  double backend_seconds() const { return backend_seconds_; }

 private:
  // A sequence's place in the pass that was run last.
  struct Member {
    Sequence* sequence;
    std::int32_t first_row;
    std::int32_t logits_row_count;
    bool takes_logits = true;
  };
  // How the tokens of the pass are chosen, sequence by sequence; histories are set where they are new.
  backend::Choices choices_of(backend::Pass pass);
  template <class Work>
  void keep_fault(Sequence& sequence, Work work);
  template <class Take>
  void run(backend::Pass pass, Take take);
  void begin_draft(const std::vector<Member>& before);
  bool draft_at_once();
  void draft();

  backend::Prepared& prepared_;
  bool keeps_faults_;
  std::vector<Turn> turns_;
  StepBatch batch_;
  std::vector<Member> members_;
  std::vector<backend::Choice> choices_;
  std::vector<int> draft_counts_;
  std::vector<float> logits_;
  std::vector<TokenId> tokens_;
  ChoiceCounts counts_;
  double backend_seconds_ = 0;
  bool backend_chooses_ = true;  // until it says no
};

}  // namespace fourfold::engine
