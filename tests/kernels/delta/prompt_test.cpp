#include <gtest/gtest.h>

#include "kernels/delta/lane_math.h"
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

void expect_near(double got, const Bounded& want) {
  ASSERT_LE(std::abs(got - want.value), want.error) << got << ", want " << want.value;
}
void expect_rows(const std::vector<std::uint16_t>& got, const std::vector<std::vector<Bounded>>& want) {
  std::size_t at = 0;
  for (std::size_t row = 0; row < want.size(); ++row)
    for (std::size_t i = 0; i < want[row].size(); ++i, ++at) {
      SCOPED_TRACE(testing::Message() << "row " << row << " column " << i);
      ASSERT_NO_FATAL_FAILURE(expect_near(to_float(Bf16{got[at]}), want[row][i]));
    }
  ASSERT_EQ(at, got.size());
}

// Without rounding the model is the recurrence; with it, it stays near.
TEST(DeltaPrompt, TheModelIsTheRecurrence) {
  const Layout layout = layout_of(1, 2, 32);
  const HostWeights weights = make_weights(layout, 4);
  PromptModel exact(layout, weights, false), rounding(layout, weights);
  Recurrence recurrence(layout, weights, Precision{});
  const auto rows = make_rows(layout, 4, 0, 150);
  const auto plain = exact.prompt(rows), prompt = rounding.prompt(rows);
  double error = 0, size = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto want = recurrence.step(rows[row]);
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(plain[row][i].value, want[i].value, 1e-9 * (1 + std::abs(want[i].value)));
      error += std::abs(prompt[row][i].value - want[i].value);
      size += std::abs(want[i].value);
    }
  }
  EXPECT_LT(error, 0x1p-6 * size);
  EXPECT_GT(error, 0x1p-12 * size);  // or nothing was rounded
  // And it goes on as one, inside a block.
  Recurrence resumed = exact.recurrence();
  for (const HostRow& row : make_rows(layout, 4, 150, 3)) {
    const auto want = recurrence.step(row), got = resumed.step(row);
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i].value, want[i].value, 1e-9 * (1 + std::abs(want[i].value)));
  }
}

TEST(DeltaPrompt, TheFlatExpHasTheBitsOfTheOther) {
  using Host = device::SimCta;
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  const auto check = [&](float x) {
    ASSERT_EQ(bits(device::flat_exp<Host>(x)), bits(device::exp_f32<Host>(x))) << x;
  };
  for (std::uint64_t pattern = 0; pattern < 1ull << 32; pattern += 1999)  // all signs and sizes, NaN too
    check(std::bit_cast<float>(static_cast<std::uint32_t>(pattern)));
  for (const float edge : {-87.0f, 88.7f, 88.0f, 88.375f, 0.0f})
    for (int ulps = -2000; ulps <= 2000; ++ulps)
      check(std::bit_cast<float>(bits(edge) +
                                 static_cast<std::uint32_t>(edge == 0.0f ? std::abs(ulps) : ulps)));
}

// Steps of a prompt, then generated rows, for several sequences in one batch.
struct Sequence {
  std::vector<int> prompts;    // rows of each prompt step; 0: sits out
  std::vector<int> generated;  // rows of each step after them
};

// The model follows a slot chunk by chunk, from what the slot holds.
template <int D>
std::vector<std::uint16_t> follow(DeltaBench& bench, int slot, PromptModel& model,
                                  const std::vector<HostRow>& rows) {
  const auto read = [&bench](const float* from, std::size_t count) {
    return bench.read(from, static_cast<int>(count));
  };
  const Settle settle = settled_by<D>(slot_of<D>(bench.state(), bench.layout(), slot), read, expect_near);
  std::vector<std::uint16_t> out;
  for (std::size_t done = 0; done < rows.size() && !testing::Test::HasFatalFailure();) {
    const int position = model.position();
    const std::size_t room = static_cast<std::size_t>(kBlockRows - position % kBlockRows);
    const std::size_t end = std::min(rows.size(), done + room);
    const std::vector<HostRow> chunk(rows.begin() + static_cast<std::ptrdiff_t>(done),
                                     rows.begin() + static_cast<std::ptrdiff_t>(end));
    const auto got = bench.prompt<D, plan::Sm120>({{slot, position, chunk}});
    expect_rows(got, model.chunk(chunk, settle));
    out.insert(out.end(), got.begin(), got.end());
    done = end;
  }
  return out;
}

template <int D>
void check_sequences(const Layout& layout, const std::vector<Sequence>& sequences, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "head dimension " << D << ", seed " << seed);
  HostWeights weights = make_weights(layout, seed);
  weights.gate_is_sigmoid = seed % 2 == 1;
  const std::size_t count = sequences.size();
  DeltaBench bench(layout, weights, 2 * static_cast<int>(count), seed);
  std::vector<PromptModel> models(count, PromptModel(layout, weights));
  for (std::size_t i = 0; i < sequences[0].prompts.size(); ++i) {
    std::vector<StepRows> step;
    for (std::size_t s = 0; s < count; ++s) {
      const int position = models[s].position();
      step.push_back(
          {static_cast<int>(s), position, make_rows(layout, seed + s, position, sequences[s].prompts[i])});
    }
    const auto whole = bench.prompt<D, plan::Sm120>(step);
    std::vector<std::uint16_t> chunked;
    for (std::size_t s = 0; s < count; ++s) {
      const auto out = follow<D>(bench, static_cast<int>(count + s), models[s], step[s].rows);
      if (testing::Test::HasFatalFailure()) return;
      chunked.insert(chunked.end(), out.begin(), out.end());
    }
    ASSERT_EQ(whole, chunked);
  }
  std::vector<Recurrence> after;
  for (const PromptModel& model : models) after.push_back(model.recurrence());
  for (std::size_t i = 0; i < sequences[0].generated.size(); ++i) {
    std::vector<StepRows> step;
    std::vector<std::vector<Bounded>> want;
    for (std::size_t s = 0; s < count; ++s) {
      const int position = after[s].position();
      step.push_back(
          {static_cast<int>(s), position, make_rows(layout, seed + s, position, sequences[s].generated[i])});
      for (const HostRow& row : step.back().rows) want.push_back(after[s].step(row));
    }
    ASSERT_NO_FATAL_FAILURE(expect_rows(bench.template decode<DecodeRow<plan::Sm120, D>>(step), want));
  }
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

// One key head of a layer as a layer of its own.
struct KeyHead {
  Layout layer;
  int key_head;
  Layout layout() const { return layout_of(1, layer.values_per_key, layer.head_dim); }
  std::vector<float> channels(const std::vector<float>& all, int unit) const {
    const int dim = layer.head_dim, values = layer.values_per_key * dim;
    std::vector<float> out;
    for (const auto& [first, count] : {std::pair{key_head * dim, dim},
                                       {layer.key_dim + key_head * dim, dim},
                                       {2 * layer.key_dim + key_head * values, values}})
      out.insert(out.end(), all.begin() + first * unit, all.begin() + (first + count) * unit);
    return out;
  }
  std::vector<float> heads(const std::vector<float>& all, int unit) const {
    const auto first = all.begin() + key_head * layer.values_per_key * unit;
    return {first, first + layer.values_per_key * unit};
  }
};

// q . k = 3e-5 out of terms whose sizes sum to 3e-2, in a head that forgets at once: a key's rounding that
// falls to the other side changes the row's answer by a tenth. An H200 met it in verify --large.
TEST(DeltaPrompt, BoundsARoundingInASumThatCancels) {
  constexpr std::uint64_t seed = 944249918907;
  const KeyHead part{layout_of(16, 32, 128), 11};
  HostWeights weights = make_weights(part.layer, seed);
  weights.taps = part.channels(weights.taps, kTaps);
  weights.a_log = part.heads(weights.a_log, 1);
  weights.dt_bias = part.heads(weights.dt_bias, 1);
  std::vector<HostRow> rows;
  for (int position = 256; position < 267; ++position) {
    HostRow row = make_row(part.layer, seed, position, true);
    row.qkv = part.channels(row.qkv, 1);
    row.z = part.heads(row.z, part.layer.head_dim);
    row.beta = part.heads(row.beta, 1);
    row.decay = part.heads(row.decay, 1);
    rows.push_back(std::move(row));
  }
  DeltaBench bench(part.layout(), weights, 1, 1);
  PromptModel model(part.layout(), weights), alone(part.layout(), weights);
  const auto got = follow<128>(bench, 0, model, rows);
  const std::size_t place = 10 * 256 + 128 + 64;
  const double from_own_roundings = alone.prompt(rows)[10][128 + 64].value;
  EXPECT_GT(std::abs(to_float(Bf16{got[place]}) - from_own_roundings), 0.1 * from_own_roundings);
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
    DeltaBench bench(layout, weights, 2, static_cast<std::uint64_t>(position));
    bench.prompt<32, plan::Sm120>({{0, 0, rows}});
    PromptModel model(layout, weights);
    follow<32>(bench, 1, model, {rows.begin(), rows.begin() + position});
    if (HasFatalFailure()) return;
    Recurrence after = model.recurrence();
    const auto others = make_rows(layout, 13, position, 3);
    std::vector<std::vector<Bounded>> want;
    for (const HostRow& row : others) want.push_back(after.step(row));
    expect_rows(bench.decode<DecodeRow<plan::Sm120, 32>>({{0, position, others}}), want);
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
