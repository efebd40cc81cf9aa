// The proofs of the sampling kernels: what a step draws from its logits, kernel by kernel, against scalar
// loops (kernels/sampling/reference.h). Everything is a comparison or a sum of whole numbers, so the answer
// is equal or wrong.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/bf16.h"
#include "base/format.h"
#include "kernels/sampling/keys.h"
#include "kernels/sampling/reference.h"
#include "kernels/sampling/sampling_params.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {
namespace {

using namespace sampling;

constexpr int kChoices = 10;
constexpr std::int32_t kNoToken = -7;

// Ten choices: every way to draw, a place without a choice, logits that are no numbers.
struct ChoiceSetup {
  int tokens = 0;
  std::vector<std::vector<float>> logits;  // empty: no choice at this place
  std::vector<std::vector<float>> scores;  // what `scores` must make of them
  std::vector<SampleRow> sampling;
  std::vector<step::RowPlace> rows;
  std::vector<std::int32_t> step_tokens;
  std::vector<std::vector<Seen>> histories;
  int row_of(int choice) const { return 2 * choice + 1; }
  bool present(int choice) const { return !logits[choice].empty(); }
};

std::vector<Seen> random_history(StepRun& run, int tokens) {
  std::vector<Seen> history;
  for (int token = run.below(5); token < tokens + 3; token += 1 + run.below(std::max(tokens / 8, 1))) {
    const int kind = run.below(4);
    history.push_back({token, kind == 0 ? -1 : kind == 1 ? 0 : kind, kind < 2 ? run.random.normal() : 0.0});
  }
  return history;
}

SampleRow random_sampling(StepRun& run, int choice, int tokens) {
  SampleRow row{};
  row.seed = run.random.bits();
  row.temperature = choice == 0 ? 0.0 : run.random.uniform(0.3, 2.0);
  row.top_p = choice == 3 || choice == 4 || choice == 8 ? run.random.uniform(0.3, 0.99) : 1.0;
  row.min_p = choice == 4 || choice == 5 ? run.random.uniform(0.01, 0.2) : 0.0;
  row.top_k = choice == 2 || choice == 4 ? 1 + run.below(60) : choice == 9 ? 1 + run.below(tokens) : 0;
  row.history = choice == 1 || choice == 2 || choice == 4 ? choice % 3 : -1;
  row.draft_count = row.history >= 0 ? run.below(2) + 1 : 0;
  row.repetition_penalty = run.random.uniform(0.8, 1.5);
  row.presence_penalty = run.random.uniform(-1.0, 1.0);
  row.frequency_penalty = run.random.uniform(-0.5, 0.5);
  return row;
}

ChoiceSetup make_choices(StepRun& run) {
  constexpr int tokens_of[] = {2500, 65, 5003};
  ChoiceSetup setup;
  setup.tokens = run.test().variant < 3 ? tokens_of[run.test().variant] : 1 + run.below(6000);
  if (run.test().large) setup.tokens = run.large_shape().vocabulary;
  run.result().shape = fourfold::format("{} choices of {} tokens", kChoices, setup.tokens);
  for (int i = 0; i < 3; ++i) setup.histories.push_back(random_history(run, setup.tokens));
  for (int i = 0; i < 2 * kChoices; ++i) {
    setup.rows.push_back({0, run.below(100'000), 0, 0});
    setup.step_tokens.push_back(run.below(setup.tokens));
  }
  for (int choice = 0; choice < kChoices; ++choice) {
    const bool flat = choice == 8;
    std::vector<float> logits = run.normals(static_cast<std::size_t>(setup.tokens) + 3, flat ? 0.1 : 3.0);
    if (choice == 5)
      for (float& x : logits) x = std::round(x);  // equals
    // The padding behind the vocabulary is better than any token.
    std::fill(logits.end() - 3, logits.end(), 1e9f);
    if (choice == 7) logits[run.below(setup.tokens)] = std::numeric_limits<float>::quiet_NaN();
    if (choice == 6) logits.clear();
    setup.logits.push_back(logits);
    setup.sampling.push_back(random_sampling(run, choice, setup.tokens));
    const SampleRow& row = setup.sampling.back();
    if (row.history >= 0) {
      const auto end = setup.step_tokens.begin() + setup.row_of(choice) + 1;
      score_reference(logits, setup.tokens, row, setup.histories[row.history], {end - row.draft_count, end});
    }
    setup.scores.push_back(logits);
  }
  return setup;
}

// The arguments of all kernels, with everything on the machine.
ChoiceParams upload_choices(StepRun& run, const ChoiceSetup& setup) {
  ChoiceParams params{};
  params.stride = (setup.tokens + 3 + 3) / 4 * 4;
  params.tokens = setup.tokens;
  params.choices = kChoices;
  params.logits = run.take<float>(static_cast<std::size_t>(kChoices * params.stride), "logits");
  std::vector<std::int32_t> choice_rows, counts;
  std::size_t limit = 1;
  for (const auto& history : setup.histories) limit = std::max(limit, history.size());
  std::vector<Seen> seen(limit * setup.histories.size(), Seen{-1, -1, 0.0});
  for (int choice = 0; choice < kChoices; ++choice) {
    choice_rows.push_back(setup.present(choice) ? setup.row_of(choice) : -1);
    run.write(params.logits + choice * params.stride, setup.logits[choice]);
  }
  for (std::size_t i = 0; i < setup.histories.size(); ++i) {
    counts.push_back(static_cast<std::int32_t>(setup.histories[i].size()));
    std::copy(setup.histories[i].begin(), setup.histories[i].end(), seen.begin() + i * limit);
  }
  params.choice_rows = run.upload(choice_rows, "choice rows");
  params.sampling = run.upload(setup.sampling, "sampling");
  params.rows = run.upload(setup.rows, "row places");
  params.step_tokens = run.upload(setup.step_tokens, "step tokens");
  params.histories = {run.upload(seen, "histories"), run.upload(counts, "history counts"),
                      static_cast<std::int32_t>(limit)};
  const std::size_t groups = static_cast<std::size_t>(kChoices * groups_of(setup.tokens));
  params.group_keys = run.take<std::uint32_t>(groups, "group keys");
  params.group_weights = run.take<std::uint64_t>(groups, "group weights");
  params.parts = run.take<PartBest>(static_cast<std::size_t>(kChoices * parts_of(setup.tokens)), "parts");
  params.chosen = run.upload(std::vector<std::int32_t>(kChoices, kNoToken), "chosen");
  params.chosen_scores = run.upload(std::vector<float>(kChoices, -7.0f), "chosen scores");
  params.faults = run.upload(std::vector<std::uint32_t>(kChoices, 7), "faults");
  return params;
}

// Scores made on the host: the kernels behind `scores` are proved without it.
ChoiceParams upload_scores(StepRun& run, ChoiceSetup& setup) {
  setup.logits = setup.scores;
  return upload_choices(run, setup);
}
void launch_peaks(StepRun& run, const ChoiceParams& params) {
  run.launch(sampling::kPeaksRow, part_blocks(params), params);
}

void compare_choices(StepRun& run, const ChoiceSetup& setup, const ChoiceParams& params,
                     const std::vector<int>& wanted) {
  const auto tokens = run.written(params.chosen, kChoices);
  const auto scores = run.written(params.chosen_scores, kChoices);
  const auto faults = run.written(params.faults, kChoices);
  for (int choice = 0; choice < kChoices; ++choice) {
    if (!setup.present(choice)) {
      run.compare_exact(tokens[choice], kNoToken);
      continue;
    }
    run.compare_exact(tokens[choice], wanted[choice]);
    run.compare_bits(scores[choice], setup.scores[choice][wanted[choice]]);
    run.compare_exact(faults[choice], all_finite(setup.scores[choice], setup.tokens) ? 0.0 : kNotFinite);
  }
}

}  // namespace

void prove_scores(StepRun& run) {
  const ChoiceSetup setup = make_choices(run);
  const ChoiceParams params = upload_choices(run, setup);
  run.launch(run.test().row.row, choice_blocks(params), params);
  for (int choice = 0; choice < kChoices; ++choice) {
    const auto got = run.written(params.logits + choice * params.stride, setup.scores[choice].size());
    for (std::size_t i = 0; i < got.size(); ++i) run.compare_bits(got[i], setup.scores[choice][i]);
  }
}

void prove_peaks(StepRun& run) {
  ChoiceSetup setup = make_choices(run);
  const ChoiceParams params = upload_scores(run, setup);
  launch_peaks(run, params);
  const int groups = groups_of(setup.tokens), parts = parts_of(setup.tokens);
  // The best of tokens first to end: its number (NaN counts as none) and the lowest token that has it.
  const auto best_of = [&](const std::vector<float>& scores, int first, int count) {
    const int end = std::min(first + count, setup.tokens);
    const std::vector<float> some(scores.begin() + first, scores.begin() + end);
    return first + first_largest(some, end - first);
  };
  for (int choice = 0; choice < kChoices; ++choice) {
    if (!setup.present(choice)) continue;
    const auto& scores = setup.scores[choice];
    const auto keys = run.written(params.group_keys + choice * groups, static_cast<std::size_t>(groups));
    const auto bests = run.written(params.parts + choice * parts, static_cast<std::size_t>(parts));
    for (int group = 0; group < groups; ++group) {
      const float best = scores[best_of(scores, group * kGroupTokens, kGroupTokens)];
      run.compare_exact(keys[group], std::isnan(best) ? 0.0 : order_key<Host>(best));
    }
    for (int part = 0; part < parts; ++part) {
      const int first = part * kPartTokens, token = best_of(scores, first, kPartTokens);
      const int end = std::min(first + kPartTokens, setup.tokens);
      const bool odd = std::any_of(scores.begin() + first, scores.begin() + end,
                                   [](float x) { return !std::isfinite(x); });
      run.compare_exact(token_of(bests[part].best), token);
      run.compare_exact(value_of_key(key_of(bests[part].best)), scores[token] + 0.0f);
      run.compare_exact(bests[part].not_finite, odd ? kNotFinite : 0);
    }
  }
}

void prove_argmax(StepRun& run) {
  ChoiceSetup setup = make_choices(run);
  ChoiceParams params = upload_scores(run, setup);
  // Greedy choices need neither parameters nor keys; tokens also go where the next step's drafts are.
  params.sampling = nullptr;
  params.group_keys = nullptr;
  params.group_weights = nullptr;
  std::vector<std::int32_t> places, drafts(kChoices, kNoToken), wanted_drafts = drafts;
  std::vector<int> wanted;
  for (int choice = 0; choice < kChoices; ++choice) {
    places.push_back(choice % 4 == 1 ? -1 : kChoices - 1 - choice);
    wanted.push_back(setup.present(choice) ? first_largest(setup.scores[choice], setup.tokens) : 0);
    if (places.back() >= 0 && setup.present(choice)) wanted_drafts[places.back()] = wanted.back();
  }
  params.draft_tokens = run.upload(drafts, "drafts");
  params.draft_places = run.upload(places, "draft places");
  launch_peaks(run, params);
  run.launch(run.test().row.row, choice_blocks(params), params);
  compare_choices(run, setup, params, wanted);
  const auto got = run.written(params.draft_tokens, kChoices);
  for (int i = 0; i < kChoices; ++i) run.compare_exact(got[i], wanted_drafts[i]);
}

// Against e^x in long double (2^-44 of a weight and half a unit of it, base/token_weights.h), and bit for
// bit.
void prove_weigh(StepRun& run) {
  ChoiceSetup setup = make_choices(run);
  const ChoiceParams params = upload_scores(run, setup);
  launch_peaks(run, params);
  run.launch(run.test().row.row, part_blocks(params), params);
  const int groups = groups_of(setup.tokens);
  for (int choice = 0; choice < kChoices; ++choice) {
    const SampleRow& row = setup.sampling[choice];
    const auto& scores = setup.scores[choice];
    if (!setup.present(choice) || row.temperature == 0.0 || row.top_k > 0 ||
        !all_finite(scores, setup.tokens))
      continue;
    const float best = scores[first_largest(scores, setup.tokens)];
    const Scale scale = scale_of<Host>(best, row.temperature);
    const double min_p = row.top_p < 1.0 ? 0.0 : row.min_p;
    const auto got = run.written(params.group_weights + choice * groups, static_cast<std::size_t>(groups));
    for (int group = 0; group < groups; ++group) {
      std::uint64_t bits = 0;
      long double sum = 0, bound = 0;
      for (int token = group * kGroupTokens; token < std::min((group + 1) * kGroupTokens, setup.tokens);
           ++token) {
        const std::uint64_t weight = weight_of<Host>(scores[token], scale, min_p);
        bits += weight;
        if (weight == 0 && min_p > 0.0) continue;  // left out, not small
        const long double exact =
            std::exp((static_cast<long double>(scores[token]) - best) / row.temperature);
        sum += exact;
        bound += exact * 0x1p-44L + 0x1p-45L;
      }
      run.result().compare(static_cast<double>(static_cast<long double>(got[group]) * 0x1p-44L),
                           static_cast<double>(sum), static_cast<double>(bound) + 64 * 0x1p-52,
                           got[group] == bits);
    }
  }
}

void prove_choose(StepRun& run) {
  ChoiceSetup setup = make_choices(run);
  const ChoiceParams params = upload_scores(run, setup);
  launch_peaks(run, params);
  run.launch(sampling::kWeighRow, part_blocks(params), params);
  run.launch(run.test().row.row, choice_blocks(params), params);
  std::vector<int> wanted;
  for (int choice = 0; choice < kChoices; ++choice)
    wanted.push_back(setup.present(choice)
                         ? chosen_reference<Host>(setup.scores[choice], setup.tokens, setup.sampling[choice],
                                                  setup.rows[setup.row_of(choice)].position + 1)
                         : 0);
  compare_choices(run, setup, params, wanted);
}

}  // namespace fourfold::verify
