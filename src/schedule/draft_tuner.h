// How many drafts a step pay, learnt while running. Whether a draft stands depends on the text, and every
// step that made it tells. What a step costs depends on how many sequences share it, and is nearly a line in
// the number of drafts, so two numbers tried tell of all: the rest is predicted, and measured once it is
// chosen.
#pragma once

#include <array>
#include <cstdint>

namespace fourfold::schedule {

class DraftTuner {
 public:
  static constexpr int kDraftsMost = 5;

  // A step whose sequences each verified and made the same number of drafts.
  struct Step {
    std::int64_t sequence_count = 0;
    int draft_count = 0;
    std::array<std::int64_t, kDraftsMost> accepted{};  // sequences that accepted draft i and those before it
    double seconds = 0;
  };

  explicit DraftTuner(int drafts_most) : drafts_most_(drafts_most) {}

  // Drafts for the next step of so many sequences.
  int choose(std::int64_t sequence_count);
  void note(const Step& step);

 private:
  static constexpr int kLoads = 10;  // 1, 2, 3-4, 5-8, ... sequences
  struct Cost {
    double seconds = 0;  // of a step, of late: old ones fade
    std::int64_t steps = 0;
    bool known() const { return steps > 1; }
  };
  struct Load {
    std::array<Cost, kDraftsMost + 1> costs;
    int best = -1;  // none yet
    int trying = 0;
    std::int64_t trial_steps = 0;  // left
    std::int64_t steady_steps = 0;
  };
  // Of drafts of late whose predecessors were accepted.
  struct Acceptance {
    double made = 0, accepted = 0;
  };
  static std::size_t load_of(std::int64_t sequence_count);
  double tokens_of(int draft_count) const;
  double seconds_of(const Load& load, int draft_count) const;
  double rate_of(const Load& load, int draft_count) const {
    return tokens_of(draft_count) / seconds_of(load, draft_count);
  }
  int best_of(const Load& load) const;
  int start_trial(Load& load, int draft_count) const;

  int drafts_most_;
  std::array<Load, kLoads> loads_;
  std::array<Acceptance, kDraftsMost> acceptance_;
};

}  // namespace fourfold::schedule
