// Runs sequences on a prepared program, many in one batch: one main pass, then draft passes until no sequence
// wants another. Who is admitted, and when, is somebody else's business.
#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "engine/sequence.h"

namespace fourfold::engine {

class StepLoop {
 public:
  explicit StepLoop(backend::Prepared& prepared) : prepared_(prepared) {}

  // One step of the unfinished sequences, in the order given as far as their rows fit. Gives the rows of its
  // main pass; 0 when there was nothing to do.
  std::int64_t step(std::span<Sequence* const> sequences);

 private:
  // A sequence's place in the pass that was run last.
  struct Member {
    Sequence* sequence;
    std::int32_t first_row;
    std::int32_t logits_row_count;
  };
  // What every sequence of the pass has as its greedy limit; 0: they differ, or one wants logits.
  std::int64_t greedy_limit() const;
  template <class Take>
  void run(backend::Pass pass, Take take);
  void draft();

  backend::Prepared& prepared_;
  StepBatch batch_;
  std::vector<Member> members_;
  std::vector<float> logits_;
  std::vector<TokenId> tokens_;
};

}  // namespace fourfold::engine
