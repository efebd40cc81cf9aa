#include "evaluate/router_ties.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "backend/reference/experts.h"
#include "base/check.h"
#include "evaluate/compare.h"
#include "evaluate/input_noise.h"

namespace fourfold::evaluate {
namespace {

std::vector<std::int32_t> sorted(std::vector<std::int32_t> items) {
  std::ranges::sort(items);
  return items;
}

// Those of `all` that `others` has not.
std::vector<std::int32_t> without(const std::vector<std::int32_t>& all,
                                  const std::vector<std::int32_t>& others) {
  std::vector<std::int32_t> rest;
  std::ranges::set_difference(all, others, std::back_inserter(rest));
  return rest;
}

// What the router would choose by keys that are off by `factor` times a run's errors.
std::vector<std::int32_t> chosen_with(const RouterChoice& clean, const RouterChoice& noisy, double factor) {
  std::vector<float> keys = clean.keys;
  for (std::size_t i = 0; i < keys.size(); ++i)
    keys[i] += static_cast<float>(factor * (static_cast<double>(noisy.keys[i]) - clean.keys[i]));
  std::vector<std::int32_t> experts(clean.experts.size());
  backend::reference::choose_experts(clean.op, keys, experts);
  return sorted(std::move(experts));
}

double margin_of(const RouterTie& tie, std::span<const float> keys) {
  double sum = 0;
  for (const std::int32_t expert : tie.leave) sum += keys[static_cast<std::size_t>(expert)];
  for (const std::int32_t expert : tie.come) sum -= keys[static_cast<std::size_t>(expert)];
  return sum;
}

}  // namespace

ReferenceRun run_reference(const backend::Program& program, const backend::Capacity& capacity,
                           const PromptReference& prompt, const HeldChoices& held) {
  ReferenceRun run;
  const auto watcher = [&](const backend::ExpertChoice& choice) {
    if (const auto found = held.find(run.choices.size()); found != held.end())
      std::ranges::copy(found->second, choice.experts.begin());
    run.choices.push_back({choice.op,
                           choice.position,
                           {choice.keys.begin(), choice.keys.end()},
                           {choice.experts.begin(), choice.experts.end()}});
  };
  run.trace = run_trace(*backend::ReferenceBackend({}, watcher).prepare(program, capacity), prompt);
  return run;
}

std::vector<RouterTie> find_ties(const backend::Program& program, const backend::Capacity& capacity,
                                 const PromptReference& prompt, const ReferenceRun& clean) {
  HeldChoices held;
  for (std::size_t i = 0; i < clean.choices.size(); ++i) held[i] = clean.choices[i].experts;
  std::vector<ReferenceRun> noisy;
  for (int seed = 1; seed <= kNoiseRuns && !held.empty(); ++seed)
    noisy.push_back(run_reference(NoisyProgram(program, static_cast<std::uint64_t>(seed)).program(), capacity,
                                  prompt, held));
  std::vector<RouterTie> ties;
  for (std::size_t i = 0; i < clean.choices.size(); ++i) {
    const RouterChoice& choice = clean.choices[i];
    const std::vector<std::int32_t> own = sorted(choice.experts);
    std::vector<std::vector<std::int32_t>> seen{own};
    for (const ReferenceRun& run : noisy)
      for (const double factor : {kLargestFactor, -kLargestFactor}) {
        const std::vector<std::int32_t> other = chosen_with(choice, run.choices.at(i), factor);
        if (std::ranges::find(seen, other) != seen.end()) continue;
        seen.push_back(other);
        RouterTie& tie =
            ties.emplace_back(RouterTie{i, choice.op.logits, program.value(choice.op.logits).name,
                                        choice.position, other, without(own, other), without(other, own)});
        tie.margin = margin_of(tie, choice.keys);
        for (const ReferenceRun& with : noisy)
          tie.moved = std::max(tie.moved, std::abs(margin_of(tie, with.choices[i].keys) - tie.margin));
      }
  }
  std::ranges::stable_sort(ties, {}, [](const RouterTie& tie) { return std::abs(tie.margin) / tie.moved; });
  return ties;
}

}  // namespace fourfold::evaluate
