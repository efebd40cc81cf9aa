#include <gtest/gtest.h>

#include "kernels/delta/prompt_reference.h"
#include "kernels/delta/reference.h"
#include "kernels/delta/rows.h"
#include "plan/arch.h"
#include "tests/kernels/delta/delta_bench.h"

namespace fourfold::delta {
namespace {

std::vector<HostRow> make_rows(const Layout& layout, std::uint64_t seed, int position, int count) {
  std::vector<HostRow> rows;
  for (int i = 0; i < count; ++i) rows.push_back(make_row(layout, seed, position + i, true));
  return rows;
}

// A row sent to any of the kernels against the model; `at` counts results.
void expect_rows(const std::vector<std::uint16_t>& got, std::size_t& at,
                 const std::vector<std::vector<Bounded>>& want) {
  for (std::size_t row = 0; row < want.size(); ++row)
    for (std::size_t i = 0; i < want[row].size(); ++i, ++at)
      ASSERT_LE(std::abs(to_float(Bf16{got[at]}) - want[row][i].value), want[row][i].error)
          << "row " << row << " column " << i << ": " << to_float(Bf16{got[at]}) << ", want "
          << want[row][i].value;
}

// Without rounding the model is the recurrence; with it, it stays near.
TEST(DeltaPrompt, TheModelIsTheRecurrence) {
  const Layout layout = layout_of(1, 2, 32);
  const HostWeights weights = make_weights(layout, 4);
  PromptModel exact(layout, weights), rounding(layout, weights);
  Recurrence recurrence(layout, weights, Precision{});
  const auto rows = make_rows(layout, 4, 0, 150);
  const auto generated = exact.generate(rows), prompt = rounding.prompt(rows);
  double error = 0, size = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto want = recurrence.step(rows[row]);
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(generated[row][i].value, want[i].value, 1e-9 * (1 + std::abs(want[i].value)));
      error += std::abs(prompt[row][i].value - want[i].value);
      size += std::abs(want[i].value);
    }
  }
  EXPECT_LT(error, 0x1p-6 * size);
  EXPECT_GT(error, 0x1p-12 * size);  // or nothing was rounded
}

// Steps of a prompt, then generated rows, for several sequences in one batch.
struct Sequence {
  std::vector<int> prompts;    // rows of each prompt step; 0: sits out
  std::vector<int> generated;  // rows of each step after them
};

template <int D>
void check_sequences(const Layout& layout, const std::vector<Sequence>& sequences, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "head dimension " << D << ", seed " << seed);
  HostWeights weights = make_weights(layout, seed);
  weights.gate_is_sigmoid = seed % 2 == 1;
  DeltaBench bench(layout, weights, static_cast<int>(sequences.size()), seed);
  std::vector<PromptModel> models(sequences.size(), PromptModel(layout, weights));
  const auto run = [&](auto counts_of, bool as_prompt) {
    const std::size_t steps = counts_of(sequences[0]).size();
    for (std::size_t i = 0; i < steps; ++i) {
      std::vector<StepRows> step;
      std::vector<std::vector<std::vector<Bounded>>> want;
      for (std::size_t s = 0; s < sequences.size(); ++s) {
        const int count = counts_of(sequences[s])[i], position = models[s].position();
        step.push_back({static_cast<int>(s), position, make_rows(layout, seed + s, position, count)});
        want.push_back(as_prompt ? models[s].prompt(step.back().rows) : models[s].generate(step.back().rows));
      }
      const auto got = as_prompt ? bench.prompt<D, plan::Sm120>(step)
                                 : bench.template decode<DecodeRow<plan::Sm120, D>>(step);
      std::size_t at = 0;
      for (const auto& rows : want) {
        expect_rows(got, at, rows);
        if (testing::Test::HasFatalFailure()) return;
      }
      EXPECT_EQ(at, got.size());
    }
  };
  run([](const Sequence& s) { return s.prompts; }, true);
  if (!testing::Test::HasFatalFailure()) run([](const Sequence& s) { return s.generated; }, false);
}

TEST(DeltaPrompt, FollowsTheModelAndGenerationFollowsIt) {
  const Layout layout = layout_of(2, 4, 32);
  for (const std::uint64_t seed : {0u, 1u, 2u})
    check_sequences<32>(
        layout, {{{200, 0}, {1, 5}}, {{64, 64}, {2, 1}}, {{0, 1}, {1, 8}}, {{128, 75}, {0, 60}}}, seed);
  check_sequences<64>(layout_of(1, 3, 64), {{{130}, {3}}, {{63}, {4}}}, 3);
}

TEST(DeltaPrompt, FollowsTheModelAtTheSizeOfRealHeads) {
  check_sequences<128>(layout_of(1, 2, 128), {{{150}, {4}}}, 5);
}

// No schedule cuts a prompt there, yet it must be right.
TEST(DeltaPrompt, GoesOnInsideABlock) {
  check_sequences<32>(layout_of(1, 2, 32), {{{30, 20, 40, 1, 100}, {3}}, {{65, 0, 62, 2, 70}, {9}}}, 6);
}

// Rows of a prompt that are taken back: the sequence goes on as if it had ended there.
TEST(DeltaPrompt, GoesBackByAsMuchAsTwoBlocks) {
  const Layout layout = layout_of(1, 2, 32);
  const HostWeights weights = make_weights(layout, 12);
  const auto rows = make_rows(layout, 12, 0, 200);
  for (const int position : {128, 129, 150, 191, 192, 199}) {
    DeltaBench bench(layout, weights, 1, static_cast<std::uint64_t>(position));
    bench.prompt<32, plan::Sm120>({{0, 0, rows}});
    PromptModel model(layout, weights);
    model.prompt({rows.begin(), rows.begin() + position});
    const auto others = make_rows(layout, 13, position, 3);
    const auto got = bench.decode<DecodeRow<plan::Sm120, 32>>({{0, position, others}});
    std::size_t at = 0;
    expect_rows(got, at, model.generate(others));
    if (HasFatalFailure()) return;
  }
}

template <int D>
std::vector<float> state_of(DeltaBench& bench, int slot, int end) {
  const Layout& layout = bench.layout();
  const auto state = slot_of<D>(bench.state(), layout, slot);
  std::vector<float> all;
  const auto add = [&](const float* from, int count) {
    const auto values = bench.read(from, count);
    all.insert(all.end(), values.begin(), values.end());
  };
  const int first = rows_kept_from(end);
  for (int h = 0; h < layout.value_heads; ++h) {
    for (int block = std::max(end / kBlockRows - 1, 1); block <= end / kBlockRows; ++block)
      add(state.anchor(block, h), D * D);
    for (int position = first; position < end; ++position) {
      add(state.delta(h, position), D);
      add(state.decay(h, position), 1);
    }
  }
  for (int position = first; position < end; ++position)
    for (int h = 0; h < layout.key_heads; ++h) add(state.key(h, position), D);
  for (int position = std::max(first - kTaps + 1, 0); position < end; ++position)
    add(state.conv_input(position, 0), layout.conv_dim);
  return all;
}

TEST(DeltaPrompt, HasTheSameBitsHoweverItIsCutAndWhoeverIsBesideIt) {
  const Layout layout = layout_of(2, 4, 32);
  const HostWeights weights = make_weights(layout, 8);
  for (const int rows : {100, 256, 300}) {
    std::vector<std::uint16_t> want;
    std::vector<float> want_state;
    int way = 0;
    for (const std::vector<int>& cut : std::vector<std::vector<int>>{{1000}, {64, 1000}, {128, 64, 1000}}) {
      DeltaBench bench(layout, weights, 2, static_cast<std::uint64_t>(11 + way));
      // What the slot held before does not matter.
      if (way == 1) bench.prompt<32, plan::Sm120>({{way % 2, 0, make_rows(layout, 99, 0, 333)}});
      std::vector<std::uint16_t> out;
      int neighbour = 0, position = 0;
      for (const int most : cut) {
        const int count = std::min(most, rows - position), others = way == 2 ? 64 : 0;
        if (count == 0) continue;
        const auto got =
            bench.prompt<32, plan::Sm120>({{1 - way % 2, neighbour, make_rows(layout, 50, neighbour, others)},
                                           {way % 2, position, make_rows(layout, 7, position, count)}});
        out.insert(out.end(), got.begin() + others * layout.value_dim, got.end());
        neighbour += others;
        position += count;
      }
      const auto state = state_of<32>(bench, way % 2, rows);
      if (way++ == 0) {
        want = out;
        want_state = state;
      }
      EXPECT_EQ(out, want) << rows << " rows";
      EXPECT_EQ(state, want_state) << rows << " rows";
    }
  }
}

TEST(DeltaPrompt, MeetsNoBankTwice) {
  const Layout layout = layout_of(1, 2, 128);
  DeltaBench bench(layout, make_weights(layout, 1), 1, 0);
  bench.prompt<128, plan::Sm120>({{0, 0, make_rows(layout, 1, 0, 64)}});
  for (const auto& stats : bench.prompt_stats())
    for (const auto& line : stats.traffic)
      EXPECT_LE(line.wavefronts, line.ideal) << line.file << ":" << line.line;
}

}  // namespace
}  // namespace fourfold::delta
