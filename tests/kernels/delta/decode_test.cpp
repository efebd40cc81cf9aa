#include <gtest/gtest.h>

#include "kernels/delta/reference.h"
#include "kernels/delta/rows.h"
#include "plan/arch.h"
#include "tests/kernels/delta/delta_bench.h"

namespace fourfold::delta {
namespace {

template <int D>
using SimDecode = DecodeRow<plan::Sm120, D>;

// A sequence as the host knows it: the recurrence after each of its positions, to go back to.
struct HostSequence {
  std::uint64_t seed = 0;
  std::vector<Recurrence> after;
  std::vector<HostRow> rows;
  int furthest = 0;

  int end() const { return static_cast<int>(rows.size()); }
  // Back to `position`, with other rows to come.
  void go_back(int position) {
    after.erase(after.begin() + position, after.end());
    rows.resize(static_cast<std::size_t>(position));
    ++seed;
  }
  int resumable_from() const { return std::max(furthest / kBlockRows - 1, 0) * kBlockRows; }
};

void expect_near(double got, const Bounded& want, const char* what, int at) {
  ASSERT_LE(std::abs(got - want.value), want.error)
      << what << " " << at << ": " << got << ", want " << want.value;
}

// What the state keeps of the sequence's last row, and its anchor where one was just made.
template <int D>
void check_state(DeltaBench& bench, int slot, const Recurrence& model) {
  const int position = model.position() - 1;
  const auto state = slot_of<D>(bench.state(), bench.layout(), slot);
  for (int h = 0; h < bench.layout().value_heads; ++h) {
    const auto delta = bench.read(state.delta(h, position), D);
    const auto key = bench.read(state.key(h / bench.layout().values_per_key, position), D);
    for (int i = 0; i < D; ++i) {
      expect_near(delta[i], model.delta(h)[i], "delta", i);
      expect_near(key[i], model.key(h)[i], "key", i);
    }
    expect_near(bench.read(state.decay(h, position), 1)[0], model.decay(h), "decay", h);
    if (position % kBlockRows != kBlockRows - 1) continue;
    const auto anchor = bench.read(state.anchor(position / kBlockRows + 1, h), D * D);
    double square = 0;
    for (int i = 0; i < D * D; ++i) {
      const double error = anchor[i] - model.state(h, i / D, i % D);
      square += error * error;
    }
    ASSERT_LE(std::sqrt(square), model.state_error(h)) << "anchor of head " << h;
  }
}

template <int D>
void check_step(DeltaBench& bench, const HostWeights& weights, std::vector<HostSequence>& sequences,
                const std::vector<int>& row_counts) {
  std::vector<StepRows> step;
  std::vector<std::vector<Bounded>> want;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    HostSequence& sequence = sequences[s];
    step.push_back({static_cast<int>(s), sequence.end(), {}});
    for (int i = 0; i < row_counts[s]; ++i) {
      const int position = sequence.end();
      sequence.rows.push_back(make_row(bench.layout(), sequence.seed, position));
      step.back().rows.push_back(sequence.rows.back());
      sequence.after.push_back(position == 0 ? Recurrence(bench.layout(), weights, Precision{})
                                             : sequence.after[static_cast<std::size_t>(position) - 1]);
      want.push_back(sequence.after.back().step(sequence.rows.back()));
    }
    sequence.furthest = std::max(sequence.furthest, sequence.end());
  }
  const auto got = bench.template decode<SimDecode<D>>(step);
  ASSERT_EQ(got.size(), want.size() * static_cast<std::size_t>(bench.layout().value_dim));
  std::size_t at = 0;
  for (const auto& row : want)
    for (const Bounded& value : row) {
      expect_near(to_float(Bf16{got[at]}), value, "output", static_cast<int>(at));
      ++at;
    }
  for (std::size_t s = 0; s < sequences.size(); ++s)
    if (row_counts[s] > 0) check_state<D>(bench, static_cast<int>(s), sequences[s].after.back());
}

// Steps of random sizes over three sequences, some of which sit out; now and then one goes back to where its
// slot still allows and takes another way.
template <int D>
void check_walk(const Layout& layout, int steps, std::uint64_t seed, bool gate_is_sigmoid) {
  SCOPED_TRACE(testing::Message() << "head dimension " << D << ", seed " << seed);
  Random random(seed);
  HostWeights weights = make_weights(layout, seed);
  weights.gate_is_sigmoid = gate_is_sigmoid;
  DeltaBench bench(layout, weights, 3, seed);
  std::vector<HostSequence> sequences(3);
  for (std::size_t s = 0; s < 3; ++s) sequences[s].seed = 1000 * seed + 100 * s;
  for (int i = 0; i < steps; ++i) {
    std::vector<int> row_counts;
    for (HostSequence& sequence : sequences) {
      row_counts.push_back(random.below(4) == 0 ? 0 : 1 + static_cast<int>(random.below(8)));
      if (random.below(6) != 0 || sequence.end() == 0) continue;
      const int from = sequence.resumable_from();
      sequence.go_back(from +
                       static_cast<int>(random.below(static_cast<std::uint64_t>(sequence.end() - from) + 1)));
      if (sequence.end() == 0) sequence.furthest = 0;
    }
    check_step<D>(bench, weights, sequences, row_counts);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(DeltaDecode, FollowsTheRecurrence) {
  for (const std::uint64_t seed : {0u, 1u}) check_walk<32>(layout_of(2, 4, 32), 40, seed, seed == 1);
  check_walk<64>(layout_of(1, 4, 64), 25, 3, false);
}

TEST(DeltaDecode, FollowsTheRecurrenceAtTheSizeOfRealHeads) {
  const Layout layout = layout_of(1, 2, 128);
  const HostWeights weights = make_weights(layout, 9);
  DeltaBench bench(layout, weights, 1, 9);
  std::vector<HostSequence> sequences(1);
  // One launch to just before the anchor moves, then across it with drafts, and on; the next time with a row
  // alone.
  for (const int rows : {60, 6, 1, 3, 57, 1, 1}) {
    check_step<128>(bench, weights, sequences, {rows});
    if (HasFatalFailure()) return;
  }
  for (const auto& line : bench.stats().traffic)
    EXPECT_EQ(line.wavefronts, line.ideal) << line.file << ":" << line.line;
}

// The rows of a sequence one by one in slot 0, alone; and in steps of other sizes in slot 2 between
// neighbours, after another sequence in the same slot: the same bits in the results and in the state.
template <int D>
void check_same_bits(const Layout& layout, int rows, std::uint64_t seed) {
  Random random(seed);
  const HostWeights weights = make_weights(layout, seed);
  DeltaBench alone(layout, weights, 1, seed), batched(layout, weights, 3, seed + 1);
  std::vector<std::uint16_t> one_by_one, together;
  for (int i = 0; i < rows; ++i) {
    const auto out = alone.decode<SimDecode<D>>({{0, i, {make_row(layout, seed, i)}}});
    one_by_one.insert(one_by_one.end(), out.begin(), out.end());
  }
  batched.decode<SimDecode<D>>({{2, 0, std::vector<HostRow>(9, make_row(layout, 77, 0))}});
  int neighbour = 0;
  for (int i = 0; i < rows;) {
    const int count = std::min(rows - i, 1 + static_cast<int>(random.below(i % 3 == 0 ? 8 : 30)));
    const int others = static_cast<int>(random.below(3));
    std::vector<StepRows> step(3);
    for (int r = 0; r < others; ++r) step[0].rows.push_back(make_row(layout, 5, neighbour + r));
    step[0].position = neighbour;
    neighbour += others;
    step[2] = {2, i, {}};
    for (int r = 0; r < count; ++r) step[2].rows.push_back(make_row(layout, seed, i + r));
    const auto out = batched.decode<SimDecode<D>>(step);
    together.insert(together.end(), out.begin() + others * layout.value_dim, out.end());
    i += count;
  }
  ASSERT_EQ(one_by_one, together);
  const auto first = slot_of<D>(alone.state(), layout, 0), second = slot_of<D>(batched.state(), layout, 2);
  for (int h = 0; h < layout.value_heads; ++h) {
    for (int position = std::max(rows - 70, 0); position < rows; ++position) {
      ASSERT_EQ(alone.read(first.delta(h, position), D), batched.read(second.delta(h, position), D));
      ASSERT_EQ(alone.read(first.decay(h, position), 1), batched.read(second.decay(h, position), 1));
    }
    const int block = rows / kBlockRows;
    ASSERT_EQ(alone.read(first.anchor(block, h), D * D), batched.read(second.anchor(block, h), D * D));
  }
}

TEST(DeltaDecode, ARowHasTheSameBitsInAnyStep) {
  check_same_bits<32>(layout_of(2, 4, 32), 150, 21);
  check_same_bits<32>(layout_of(2, 2, 32), 131, 22);
  check_same_bits<128>(layout_of(1, 1, 128), 70, 23);
}

}  // namespace
}  // namespace fourfold::delta
