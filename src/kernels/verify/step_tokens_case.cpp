// The proofs of the kernels around a choice: which drafts stand and what follows, rows by index.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/bf16.h"
#include "base/format.h"
#include "kernels/sampling/sampling_params.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {
namespace {

using namespace sampling;

constexpr std::int32_t kNothing = -7;  // where a kernel must not write

struct AcceptSetup {
  std::vector<AcceptPlace> places;
  std::vector<std::int32_t> chosen, step_tokens, counts;
  std::vector<step::RowPlace> rows;
  std::vector<Seen> seen;  // [sequences, limit]
  int limit = 0;
  std::vector<int> accepted;  // that must come out
};

constexpr int kSequences = 6;

AcceptSetup make_accept(StepRun& run) {
  AcceptSetup setup;
  setup.limit = 12 + kDraftsMost;
  for (int s = 0; s < kSequences; ++s) {
    // Rows without a choice lie between the sequences; one place has no sequence.
    for (int i = run.below(3); i > 0; --i) {
      setup.step_tokens.push_back(1);
      setup.rows.push_back({0, 0, 0, 0});
    }
    const int drafts = s == 5 ? kDraftsMost : run.below(6);
    const bool here = s != 2;
    setup.places.push_back({static_cast<std::int32_t>(setup.chosen.size()), here ? drafts + 1 : 0,
                            static_cast<std::int32_t>(setup.step_tokens.size()), s % 2 == 0 ? -1 : s});
    setup.counts.push_back(run.below(12));
    for (int i = 0; i < setup.limit; ++i)
      setup.seen.push_back(i < setup.counts.back() ? Seen{3 * i, run.below(4) - 1, 0.25 * i}
                                                   : Seen{-9, 0, 0});
    setup.accepted.push_back(0);
    if (!here) continue;
    const int position = run.below(1000);
    setup.step_tokens.push_back(3);
    bool standing = true;
    for (int i = 0; i <= drafts; ++i) {
      setup.rows.push_back({0, position + i, 0, 0});
      setup.chosen.push_back(run.below(40));
      if (i == drafts) break;
      const bool stands = s == 5 || run.below(4) != 0;
      setup.step_tokens.push_back(setup.chosen.back() + (stands ? 0 : 1));
      standing = standing && stands;
      setup.accepted.back() += standing ? 1 : 0;
    }
  }
  return setup;
}

// The history with what a sequence emitted: counts of known tokens, entries for the others in order.
void note_tokens(std::vector<Seen>& history, const std::vector<std::int32_t>& emitted) {
  for (const std::int32_t token : emitted) {
    const auto at =
        std::find_if(history.begin(), history.end(), [&](const Seen& seen) { return seen.token == token; });
    if (at == history.end())
      history.push_back({token, 1, 0.0});
    else
      at->count = std::max(at->count, 0) + 1;
  }
}

void check_history(StepRun& run, const AcceptSetup& setup, const AcceptParams& params, int s,
                   const std::vector<std::int32_t>& emitted) {
  std::vector<Seen> want(setup.seen.begin() + s * setup.limit,
                         setup.seen.begin() + s * setup.limit + setup.counts[s]);
  note_tokens(want, emitted);
  run.compare_exact(run.written(params.histories.counts + s, 1)[0], static_cast<double>(want.size()));
  const auto got = run.written(params.histories.seen + s * setup.limit, want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    run.compare_exact(got[i].token, want[i].token);
    run.compare_exact(got[i].count, want[i].count);
    run.compare_exact(got[i].bias, want[i].bias);
  }
}

}  // namespace

void prove_accept(StepRun& run) {
  const AcceptSetup setup = make_accept(run);
  run.result().shape = fourfold::format("{} sequences, {} choices", kSequences, setup.chosen.size());
  const auto words = [&](std::size_t count) {
    return run.upload(std::vector<std::int32_t>(count, kNothing), "out");
  };
  AcceptParams params{};
  params.places = run.upload(setup.places, "places");
  params.chosen = run.upload(setup.chosen, "chosen");
  params.step_tokens = run.upload(setup.step_tokens, "step tokens");
  params.rows = run.upload(setup.rows, "row places");
  params.histories = {run.upload(setup.seen, "seen"), run.upload(setup.counts, "counts"), setup.limit};
  params.emitted = words(kSequences * (kDraftsMost + 1));
  params.accepted = words(kSequences);
  params.next_tokens = words(kSequences);
  params.next_rows = words(kSequences);
  params.next_positions = words(kSequences);
  params.faults = run.upload(std::vector<std::uint32_t>(kSequences, 9), "faults");
  run.launch(run.test().row.row, kSequences, params);
  const auto emitted = run.written(params.emitted, kSequences * (kDraftsMost + 1));
  const auto accepted = run.written(params.accepted, kSequences);
  const auto next_tokens = run.written(params.next_tokens, kSequences);
  const auto next_rows = run.written(params.next_rows, kSequences);
  const auto next_positions = run.written(params.next_positions, kSequences);
  const auto faults = run.written(params.faults, kSequences);
  for (int s = 0; s < kSequences; ++s) {
    const AcceptPlace& place = setup.places[s];
    if (place.choice_count == 0) {
      run.compare_exact(accepted[s], kNothing);
      continue;
    }
    const int count = setup.accepted[s], row = place.first_row + count;
    run.compare_exact(accepted[s], count);
    std::vector<std::int32_t> tokens;
    for (int i = 0; i <= kDraftsMost; ++i) {
      if (i <= count) tokens.push_back(setup.chosen[place.first_choice + i]);
      run.compare_exact(emitted[s * (kDraftsMost + 1) + i], i <= count ? tokens.back() : -1);
    }
    run.compare_exact(next_tokens[s], tokens.back());
    run.compare_exact(next_rows[s], row);
    run.compare_exact(next_positions[s], setup.rows[row].position + 1);
    run.compare_exact(faults[s], 0);
    if (place.history >= 0) check_history(run, setup, params, s, tokens);
  }
}

void prove_embed(StepRun& run) {
  constexpr int columns_of[] = {1032, 64, 4096};
  const int columns = run.test().variant < 3 ? columns_of[run.test().variant] : 8 * (1 + run.below(600));
  const auto width = static_cast<std::size_t>(columns);
  std::vector<std::uint16_t> table(width * 11);
  // Every kind of bits but NaN, whose payload need not survive a move through f32.
  for (auto& element : table) {
    element = static_cast<std::uint16_t>(run.random.bits());
    if (std::isnan(bf16_value(element))) element = 0x7F80;
  }
  const std::vector<std::int32_t> tokens{10, 0, -1, 3, 3};
  run.result().shape = fourfold::format("{} rows of {}", tokens.size(), columns);
  EmbedParams params{run.upload(table, "table"), run.upload(tokens, "tokens"), nullptr,
                     static_cast<std::int32_t>(tokens.size()), columns};
  params.out = run.upload(std::vector<float>(tokens.size() * width, -7.0f), "out");
  run.launch(run.test().row.row, embed_blocks(params), params);
  const auto got = run.written(params.out, tokens.size() * width);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const int token = tokens[i / width];
    run.compare_bits(got[i], token < 0 ? -7.0f : bf16_value(table[token * width + i % width]));
  }
}

void prove_take_rows(StepRun& run) {
  constexpr int words_of[] = {1028, 4, 2052};
  const int words = run.test().variant < 3 ? words_of[run.test().variant] : 4 * (1 + run.below(600));
  const auto width = static_cast<std::size_t>(words);
  std::vector<std::uint32_t> from(width * 6);
  for (auto& word : from) word = static_cast<std::uint32_t>(run.random.bits());
  const std::vector<std::int32_t> indices{5, -1, 0, 5};
  run.result().shape = fourfold::format("{} rows of {} bytes", indices.size(), 4 * words);
  auto* out = run.upload(std::vector<std::uint32_t>(indices.size() * width, 7u), "out");
  const TakeRowsParams params{run.upload(from, "from"), run.upload(indices, "indices"), out,
                              static_cast<std::int32_t>(indices.size()), 4 * words};
  run.launch(run.test().row.row, take_rows_blocks(params), params);
  const auto got = run.written(out, indices.size() * width);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const int index = indices[i / width];
    run.compare_exact(got[i], index < 0 ? 7u : from[index * width + i % width]);
  }
}

}  // namespace fourfold::verify
