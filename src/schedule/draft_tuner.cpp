#include "schedule/draft_tuner.h"

#include <algorithm>
#include <bit>

namespace fourfold::schedule {
namespace {

constexpr double kFade = 0.97;             // of a step's weight with each that follows
constexpr std::int64_t kTrialSteps = 8;    // a number of drafts is tried so long
constexpr std::int64_t kSteadySteps = 96;  // and then the best one is kept so long
constexpr int kFirstGuess[] = {3, 2, 1, 1, 0, 0, 0, 0, 0, 0};

}  // namespace

std::size_t DraftTuner::load_of(std::int64_t sequence_count) {
  const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(sequence_count, 1));
  const int width = static_cast<int>(std::bit_width(count - 1));
  return static_cast<std::size_t>(std::min(width, kLoads - 1));
}

int DraftTuner::choose(std::int64_t sequence_count) {
  const std::size_t at = load_of(sequence_count);
  Load& load = loads_[at];
  if (load.best < 0) load.best = std::min(kFirstGuess[at], drafts_most_);
  // First every number once, from the guess on: a machine may be nothing like the one guessed for.
  const std::int64_t trials = (drafts_most_ + 1) * kTrialSteps;
  const std::int64_t round = kSteadySteps + kTrialSteps;
  const std::int64_t step = load.steps++;
  if (step < trials) return static_cast<int>((kFirstGuess[at] + step / kTrialSteps) % (drafts_most_ + 1));
  const std::int64_t place = (step - trials) % round;
  if (place < kSteadySteps) {
    load.trying = -1;
    return load.best;
  }
  // A neighbour of the best, one above and one below by turns: acceptance changes with the text.
  if (load.trying < 0) {
    const int other = load.steps / round % 2 == 0 ? load.best + 1 : load.best - 1;
    load.trying = other < 0 || other > drafts_most_ ? 2 * load.best - other : other;
    load.trying = std::clamp(load.trying, 0, drafts_most_);
  }
  return load.trying;
}

void DraftTuner::note(std::int64_t sequence_count, int draft_count, std::int64_t token_count,
                      double seconds) {
  if (draft_count < 0 || draft_count > drafts_most_ || seconds <= 0) return;
  Load& load = loads_[load_of(sequence_count)];
  Pace& pace = load.paces[static_cast<std::size_t>(draft_count)];
  pace.tokens = kFade * pace.tokens + static_cast<double>(token_count);
  pace.seconds = kFade * pace.seconds + seconds;
  judge(load);
}

void DraftTuner::judge(Load& load) const {
  for (int count = 0; count <= drafts_most_; ++count) {
    const Pace& pace = load.paces[static_cast<std::size_t>(count)];
    if (!pace.known()) continue;
    const Pace& best = load.paces[static_cast<std::size_t>(std::max(load.best, 0))];
    if (load.best < 0 || !best.known() || pace.rate() > best.rate()) load.best = count;
  }
}

}  // namespace fourfold::schedule
