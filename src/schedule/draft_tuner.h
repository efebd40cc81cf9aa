// How many drafts a step pay, learnt from the steps themselves: tokens and seconds of steps with so many
// sequences and so many drafts. One sequence leaves a machine idle enough for five; many need its arithmetic
// for themselves.
#pragma once

#include <array>
#include <cstdint>

namespace fourfold::schedule {

class DraftTuner {
 public:
  static constexpr int kDraftsMost = 5;

  explicit DraftTuner(int drafts_most) : drafts_most_(drafts_most) {}

  // Drafts for the next step of so many sequences.
  int choose(std::int64_t sequence_count);
  // What a step gave whose sequences each verified and made the same number of drafts.
  void note(std::int64_t sequence_count, int draft_count, std::int64_t token_count, double seconds);

 private:
  static constexpr int kLoads = 10;  // 1, 2, 3-4, 5-8, ... sequences
  struct Pace {
    double tokens = 0, seconds = 0;  // of late: old ones fade
    bool known() const { return seconds > 0; }
    double rate() const { return tokens / seconds; }
  };
  struct Load {
    std::array<Pace, kDraftsMost + 1> paces;
    int best = -1;  // none yet
    int trying = -1;
    std::int64_t steps = 0;
  };
  static std::size_t load_of(std::int64_t sequence_count);
  void judge(Load& load) const;

  int drafts_most_;
  std::array<Load, kLoads> loads_;
};

}  // namespace fourfold::schedule
