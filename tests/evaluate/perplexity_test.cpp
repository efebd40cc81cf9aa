#include "evaluate/perplexity.h"

#include <algorithm>
#include <numeric>

#include "tests/model/support.h"

namespace fourfold::evaluate {
namespace {

using checkpoint::expect_error;
using model::Activations;
using model::Golden;

// What the other implementation's logits say about the same tokens.
TextScore expected_score(const Golden& golden, const std::vector<std::int32_t>& ids) {
  const auto vocab = static_cast<std::size_t>(golden.config.vocab_size);
  const auto logits = golden.floats("long.logits_f32");
  const auto drafts = golden.floats("long.mtp_logits_f32");
  const auto best = [&](std::span<const float> all, std::size_t i) {
    const auto row = all.subspan(i * vocab, vocab);
    return std::max_element(row.begin(), row.end()) - row.begin();
  };
  TextScore score;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    const auto row = std::span(logits).subspan(i * vocab, vocab);
    double sum = 0;
    for (const float x : row) sum += std::exp(static_cast<double>(x));
    score.surprise += std::log(sum) - static_cast<double>(row[static_cast<std::size_t>(ids[i + 1])]);
    score.best_count += best(logits, i) == ids[i + 1] ? 1 : 0;
    ++score.token_count;
    if (i == 0) continue;
    const auto draft = best(drafts, i - 1);
    ++score.draft_count;
    score.accepted_count += draft == best(logits, i) ? 1 : 0;
    score.accepted_probability += std::exp(static_cast<double>(row[static_cast<std::size_t>(draft)])) / sum;
  }
  return score;
}

// Logits agree to 1e-3 (compare.h), so a logarithm of a probability does to 2e-3 and a probability to that
// share of itself; with gaps of this size no best token changes.
TEST(Perplexity, AgreesWithTheLogitsOfAnotherImplementation) {
  const Golden golden("modelopt");
  const std::vector<std::int32_t> ids = golden.ids("long.input_ids");
  const auto count = static_cast<std::int64_t>(ids.size());
  const TextScore wanted = expected_score(golden, ids);
  const auto prepared = golden.prepare(Activations::f32, score_capacity(count));
  const TextScore score = score_text(*prepared, ids, count);
  EXPECT_EQ(score.token_count, count - 1);
  EXPECT_EQ(score.best_count, wanted.best_count);
  EXPECT_EQ(score.draft_count, count - 2);
  EXPECT_EQ(score.accepted_count, wanted.accepted_count);
  EXPECT_NEAR(score.mean_surprise(), wanted.mean_surprise(), 2e-3);
  EXPECT_NEAR(score.accepted_probability, wanted.accepted_probability, 2e-3 * wanted.accepted_probability);
  EXPECT_DOUBLE_EQ(score.perplexity(), std::exp(score.mean_surprise()));
}

TEST(Perplexity, WindowsStartAnewAndPassesDoNotShow) {
  const Golden golden("modelopt");
  const std::vector<std::int32_t> ids = golden.ids("long.input_ids");
  constexpr std::int64_t window = 64;
  const auto prepared = golden.prepare(Activations::f32, score_capacity(window));
  std::vector<std::int64_t> seen;
  const TextScore whole =
      score_text(*prepared, ids, window, [&](std::int64_t done) { seen.push_back(done); });
  EXPECT_EQ(seen, (std::vector<std::int64_t>{64, 128, static_cast<std::int64_t>(ids.size()) - 1}));
  TextScore parts;
  for (std::size_t at = 0; at + 1 < ids.size(); at += window) {
    const auto part = std::span(ids).subspan(at, std::min<std::size_t>(window + 1, ids.size() - at));
    const TextScore score = score_text(*prepared, part, window);
    parts.surprise += score.surprise;
    parts.accepted_count += score.accepted_count;
  }
  EXPECT_NEAR(whole.surprise, parts.surprise, 1e-9 * whole.surprise);
  EXPECT_EQ(whole.accepted_count, parts.accepted_count);
  // The same window in passes of 20 rows: a row's bits do not depend on the cut.
  backend::Capacity narrow = score_capacity(window);
  narrow.row_count = 20;
  const auto small = golden.prepare(Activations::f32, narrow);
  const TextScore cut = score_text(*small, ids, window);
  EXPECT_NEAR(cut.surprise, whole.surprise, 1e-9 * whole.surprise);
  EXPECT_EQ(cut.draft_count, whole.draft_count);
  EXPECT_EQ(cut.accepted_count, whole.accepted_count);
}

TEST(Perplexity, OneTokenHasNothingToPredict) {
  const Golden golden("modelopt");
  const auto prepared = golden.prepare(Activations::f32, score_capacity(64));
  const std::vector<std::int32_t> one{1};
  expect_error(Code::invalid_request, {"1 tokens"}, [&] { score_text(*prepared, one, 64); });
}

}  // namespace
}  // namespace fourfold::evaluate
