#include "schedule/draft_tuner.h"

#include <algorithm>
#include <bit>

namespace fourfold::schedule {
namespace {

constexpr double kFade = 0.97;             // of a step's weight with each that follows
constexpr std::int64_t kTrialSteps = 4;    // a number of drafts is tried so long
constexpr std::int64_t kSteadySteps = 96;  // and the best one kept so long, before a neighbour is tried again
constexpr double kWorthAChange = 1.02;     // rates nearer than that are the same
// Until a draft was made some times: as often accepted as the one before it; the first one so often.
constexpr double kFirstAcceptance = 0.7, kGuessWeight = 2;
constexpr int kFirstGuess[] = {3, 2, 1, 1, 0, 0, 0, 0, 0, 0};

}  // namespace

std::size_t DraftTuner::load_of(std::int64_t sequence_count) {
  const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(sequence_count, 1));
  const int width = static_cast<int>(std::bit_width(count - 1));
  return static_cast<std::size_t>(std::min(width, kLoads - 1));
}

double DraftTuner::tokens_of(int draft_count) const {
  double tokens = 1, all = 1, guess = kFirstAcceptance;
  for (int i = 0; i < draft_count; ++i) {
    const Acceptance& seen = acceptance_[static_cast<std::size_t>(i)];
    const double weight = kGuessWeight / (1 + seen.made);
    guess = (seen.accepted + weight * guess) / (seen.made + weight);
    all *= guess;
    tokens += all;
  }
  return tokens;
}

// Measured, or on the line through the two nearest that were; the caller knows that there are two.
double DraftTuner::seconds_of(const Load& load, int draft_count) const {
  const auto cost = [&](int count) -> const Cost& { return load.costs[static_cast<std::size_t>(count)]; };
  if (cost(draft_count).known()) return cost(draft_count).seconds;
  int near = -1, next = -1;
  for (int away = 1; away <= drafts_most_ && next < 0; ++away)
    for (const int count : {draft_count - away, draft_count + away}) {
      if (count < 0 || count > drafts_most_ || !cost(count).known() || next >= 0) continue;
      (near < 0 ? near : next) = count;
    }
  const double slope = (cost(next).seconds - cost(near).seconds) / (next - near);
  const double there = cost(near).seconds + std::max(slope, 0.0) * (draft_count - near);
  return std::max(there, cost(near).seconds / 4);
}

int DraftTuner::best_of(const Load& load) const {
  int best = std::clamp(load.best, 0, drafts_most_);
  const double kept = rate_of(load, best) * kWorthAChange;
  double highest = kept;
  for (int count = 0; count <= drafts_most_; ++count)
    if (const double rate = rate_of(load, count); rate > highest) {
      highest = rate;
      best = count;
    }
  return best;
}

int DraftTuner::start_trial(Load& load, int draft_count) const {
  load.trying = std::clamp(draft_count, 0, drafts_most_);
  load.trial_steps = kTrialSteps - 1;
  return load.trying;
}

int DraftTuner::choose(std::int64_t sequence_count) {
  if (drafts_most_ == 0) return 0;
  const std::size_t at = load_of(sequence_count);
  Load& load = loads_[at];
  if (load.trial_steps > 0) {
    --load.trial_steps;
    return load.trying;
  }
  // Two numbers first, the guess and its neighbour: a machine may be nothing like the one guessed for.
  const int guess = std::min(kFirstGuess[at], drafts_most_);
  const int beside = guess < drafts_most_ ? guess + 1 : guess - 1;
  for (const int count : {guess, beside})
    if (!load.costs[static_cast<std::size_t>(count)].known()) return start_trial(load, count);
  if (load.best < 0) load.best = guess;
  load.best = best_of(load);
  if (!load.costs[static_cast<std::size_t>(load.best)].known()) return start_trial(load, load.best);
  if (++load.steady_steps % kSteadySteps != 0) return load.best;
  // One above and one below by turns: acceptance changes with the text, and is seen only where drafts are
  // made.
  const int other = load.steady_steps / kSteadySteps % 2 == 0 ? load.best - 1 : load.best + 1;
  return start_trial(load, other < 0 || other > drafts_most_ ? 2 * load.best - other : other);
}

void DraftTuner::note(const Step& step) {
  if (step.draft_count < 0 || step.draft_count > drafts_most_ || step.seconds <= 0) return;
  Cost& cost = loads_[load_of(step.sequence_count)].costs[static_cast<std::size_t>(step.draft_count)];
  // The first step with a new number may prepare what later ones find: it counts for nothing once there are
  // others.
  const double weight = cost.steps < 2 ? 1.0 : std::max(1.0 / static_cast<double>(cost.steps), 1 - kFade);
  cost.seconds += weight * (step.seconds - cost.seconds);
  ++cost.steps;
  auto made = static_cast<double>(step.sequence_count);
  for (std::size_t i = 0; i < static_cast<std::size_t>(step.draft_count); ++i) {
    const auto accepted = static_cast<double>(step.accepted[i]);
    acceptance_[i].made = kFade * acceptance_[i].made + made;
    acceptance_[i].accepted = kFade * acceptance_[i].accepted + accepted;
    made = accepted;
  }
}

}  // namespace fourfold::schedule
