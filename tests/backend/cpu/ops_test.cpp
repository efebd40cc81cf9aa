// Op by op against the reference backend. Each op reads the same random rows in both, and both keep all
// values; the reference rounds once an op, so a difference is the CPU backend's own, and its bound is the
// number of its roundings.
#include <algorithm>
#include <cmath>
#include <random>

#include "backend/cpu/rows.h"
#include "backend/reference/experts.h"
#include "tests/backend/cpu/op_case.h"

namespace fourfold::backend {
namespace {

constexpr double kUnit = 0x1p-24;

TEST(CpuOps, Norms) {
  for (const bool adds_one : {false, true}) {
    OpCase c(9);
    const ValueId x = c.input(200, 5);
    const ResultId out = c.value(200);
    c.program.main.push_back(RmsNorm{x, c.vector(200), adds_one, 1e-6, out});
    const auto both = c.run(out, 4);
    both.expect_near((200 / 16 + 8) * kUnit * both.largest());
  }
}

TEST(CpuOps, AddConcatAllReduce) {
  OpCase c(7);
  const ValueId a = c.input(33), b = c.input(33), d = c.input(5);
  const ResultId sum = c.value(33), copied = c.value(33), joined = c.value(38);
  c.program.main.push_back(Add{a, b, sum});
  c.program.main.push_back(AllReduce{sum, copied});
  c.program.main.push_back(Concat{copied, d, joined});
  c.run(joined, 3).expect_near(0);
}

// The largest sum of a row's |w|: what an error that every input may have comes to at most.
double largest_row_sum(const checkpoint::Matrix& matrix) {
  double most = 0;
  std::vector<float> row(static_cast<std::size_t>(matrix.columns));
  for (std::int64_t i = 0; i < matrix.rows; ++i) {
    checkpoint::read_row(matrix, i, row);
    double sum = 0;
    for (const float w : row) sum += std::abs(static_cast<double>(w));
    most = std::max(most, sum);
  }
  return most;
}

// Every format of a matrix with every input it can take.
void expect_linear(OpCase& c, MatrixId weight, std::int64_t columns, double plane_error) {
  const ValueId x = c.input(columns);
  const checkpoint::Matrix& matrix = *c.program.matrix(weight).matrix;
  const ResultId out = c.value(matrix.rows);
  c.program.main.push_back(Linear{x, weight, out});
  // Inputs are normal: below 6 in size. A rounding an addition, and the planes' own.
  c.run(out, 5).expect_near(6 * largest_row_sum(matrix) *
                            ((static_cast<double>(columns) + 4) * kUnit + plane_error));
}

TEST(CpuOps, LinearNvfp4) {
  for (const auto& [input, error] : {std::pair(InputFormat::f32, 0x1p-22),
                                     {InputFormat::bf16, 0x1p-15},
                                     // The reference rounds each dequantised input to f32.
                                     {InputFormat::nvfp4, 0x1p-24}}) {
    OpCase c(21);
    expect_linear(c, c.nvfp4(70, 160, input), 160, error);
  }
}

// Scales that are near enough to be held as NVFP4's, and one row whose are not; rows of zeros too. Some rows
// and columns of a stored matrix, as a rank has them.
TEST(CpuOps, LinearMxfp4) {
  for (const bool far : {false, true})
    for (const InputFormat input : {InputFormat::f32, InputFormat::bf16}) {
      std::vector<float> values = random_floats(50 * 192, 9);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t row = i / 192;
        if (row == 7) values[i] = 0;
        if (row % 5 == 1) values[i] *= 0x1p-14f;
        if (row == 21 && far) values[i] *= 0x1p-30f;
      }
      const Mxfp4Matrix stored = quantize_mxfp4_weights(values, 50, 192);
      OpCase whole(21), part(21);
      expect_linear(whole, whole.matrix({"m", 50, 192, checkpoint::Mxfp4Storage{stored.view()}, {}}, input),
                    192, input == InputFormat::f32 ? 0x1p-22 : 0x1p-15);
      checkpoint::Matrix cut{"m", 20, 96, checkpoint::Mxfp4Storage{stored.view()}, {{1, 20, 2}}};
      cut.first_column = 64;
      cut.whole_columns = 192;
      expect_linear(part, part.matrix(cut, input), 96, input == InputFormat::f32 ? 0x1p-22 : 0x1p-15);
    }
}

// E4M3 has 18 powers of two, and each block of a row its own: a row that is smaller than the largest by more
// keeps its numbers. Its bound is its own, not the matrix's.
TEST(CpuOps, LinearMxfp4WithScalesFarApart) {
  for (const int apart : {16, 17, 18, 30}) {
    constexpr std::int64_t rows = 4, columns = 96;
    std::vector<float> values = random_floats(rows * columns, 9);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % kMxfp4BlockColumns == 0) values[i] = 4;  // each block has the scale 1, or the small one
      if (i >= columns) values[i] = std::ldexp(values[i], -apart);
    }
    const Mxfp4Matrix stored = quantize_mxfp4_weights(values, rows, columns);
    const std::vector<float> weights = dequantize(stored.view());
    OpCase c(21);
    const ValueId x = c.input(columns);
    const ResultId out = c.value(rows);
    c.program.main.push_back(
        Linear{x, c.matrix({"m", rows, columns, checkpoint::Mxfp4Storage{stored.view()}, {}}), out});
    const OpCase::Both both = c.run(out, 5);
    for (std::size_t i = 0; i < both.reference.size(); ++i) {
      double sum = 0;
      for (std::size_t column = 0; column < columns; ++column)
        sum += std::abs(weights[i % rows * columns + column]);
      ASSERT_NEAR(both.cpu[i], both.reference[i], 6 * sum * ((columns + 4) * kUnit + 0x1p-22))
          << apart << " row " << i % rows;
    }
  }
}

TEST(CpuOps, LinearPlainFormats) {
  for (const InputFormat input : {InputFormat::f32, InputFormat::bf16}) {
    const auto values = random_floats(50 * 77, 5);
    std::vector<Bf16> bf16;
    std::vector<F16> f16;
    for (const float x : values) bf16.push_back(to_bf16(x)), f16.push_back(to_f16(x));
    OpCase first(21), second(21), third(21);
    expect_linear(first, first.matrix({"m", 50, 77, checkpoint::Bf16Storage{bf16}, {}}, input), 77, 0);
    expect_linear(second, second.matrix({"m", 50, 77, checkpoint::F16Storage{f16}, {}}, input), 77, 0);
    expect_linear(third, third.matrix({"m", 50, 77, checkpoint::F32Storage{values}, {}}, input), 77, 0);
  }
}

TEST(CpuOps, LinearFp8) {
  std::vector<E4m3> codes;
  for (const float x : random_floats(160 * 260, 6, 40)) codes.push_back(to_e4m3(x));
  checkpoint::Fp8RowScales rows;
  for (int i = 0; i < 160; ++i) rows.scales.push_back(0.01f + 0.001f * static_cast<float>(i));
  const checkpoint::Fp8BlockScales blocks{128, 128, {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f}};
  const checkpoint::Fp8BlockScales odd{
      40, 100, {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, .7f, .8f, .9f, 1.f, 1.1f, 1.2f}};
  const std::variant<checkpoint::Fp8TensorScale, checkpoint::Fp8RowScales, checkpoint::Fp8BlockScales> all[] =
      {checkpoint::Fp8TensorScale{0.02f}, rows, blocks, odd};
  for (const auto& scale : all)
    for (const InputFormat input : {InputFormat::f32, InputFormat::bf16}) {
      OpCase c(10);
      // The reference rounds code times scale: one more rounding each.
      expect_linear(c, c.matrix({"m", 160, 260, checkpoint::Fp8Storage{codes, scale, {}}, {}}, input), 260,
                    kUnit);
    }
}

TEST(CpuOps, LinearOfGatheredRows) {
  std::vector<Bf16> values;
  for (const float x : random_floats(60 * 32, 7)) values.push_back(to_bf16(x));
  OpCase c(6);
  expect_linear(c, c.matrix({"m", 35, 32, checkpoint::Bf16Storage{values}, {{40, 20}, {3, 15}}}), 32, 0);
}

// Two matrices of one input, one of them with a bias, which is added in f32 after the sum.
TEST(CpuOps, LinearWithABias) {
  OpCase c(9);
  const auto values = random_floats(40 * 24, 8);
  const ValueId x = c.input(24);
  const MatrixId first = c.matrix({"m", 40, 24, checkpoint::F32Storage{values}, {}});
  const MatrixId second = c.matrix({"m", 40, 24, checkpoint::F32Storage{values}, {}});
  const ResultId plain = c.value(40), biased = c.value(40), difference = c.value(80);
  c.program.main.push_back(Linear{x, first, plain});
  c.program.main.push_back(Linear{x, second, biased, c.vector(40, 100)});
  c.program.main.push_back(Concat{plain, biased, difference});
  const auto both = c.run(difference, 5);
  // 24 sums of products below 6 * 6, then one rounding of a sum near 100 times a normal.
  both.expect_near(24 * 36 * 28 * kUnit + 600 * kUnit);
  EXPECT_GT(both.largest(), 100);
}

TEST(CpuOps, RopeWithoutNormAndColumnsOfARow) {
  OpCase c(70);
  c.program.ropes.push_back({{1, 0.1, 0.01}, 1});
  const ValueId x = c.input(60);
  const ResultId cut = c.value(40), out = c.value(40);
  c.program.main.push_back(TakeColumns{x, 20, cut});
  c.program.main.push_back(HeadNormRope{cut, {}, false, 0, {0}, 2, 20, 20, out});
  const auto both = c.run(out, 64);
  both.expect_near(6 * kUnit * both.largest() * std::sqrt(2.0));
}

TEST(CpuOps, HeadNormRope) {
  OpCase c(300);
  c.program.ropes.push_back({{1, 0.1, 0.01, 0.001}, 1.2});
  const ValueId x = c.input(3 * 40);
  const ResultId out = c.value(3 * 20);
  c.program.main.push_back(HeadNormRope{x, c.vector(20), true, 1e-6, {0}, 3, 20, 40, out});
  const auto both = c.run(out, 64);
  both.expect_near(12 * kUnit * both.largest() * std::sqrt(2.0));
}

void expect_attention(std::int64_t token_count, std::int64_t head_dim, KvFormat format, std::int64_t piece,
                      std::int64_t window = 0, double sink_size = 0) {
  OpCase c(token_count);
  c.program.kv_caches.push_back({"cache", 2, head_dim, format});
  const ValueId q = c.input(10 * head_dim), k = c.input(2 * head_dim), v = c.input(2 * head_dim);
  const ResultId out = c.value(10 * head_dim);
  const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
  c.program.main.push_back(WriteKv{k, v, {0}});
  Attention op{q, {0}, 10, scale, out};
  op.window = window;
  if (sink_size != 0) op.sinks = c.vector(10, sink_size);
  c.program.main.push_back(op);
  // A score errs by its roundings times sum |q k| (normals: about 0.64 a product, 2 at most on average),
  // which moves each weight by that share; the sums over all positions err by a rounding each, in 16
  // lanes or one after another. Values are below 6.
  const double score =
      (static_cast<double>(head_dim) / 16 + 8) * kUnit * scale * 2 * static_cast<double>(head_dim);
  c.run(out, piece).expect_near(6 * (2 * score + (256 + 8) * kUnit));
}

// Positions beyond 1,024, where stretches are put together; heads so wide that few fit into a piece.
TEST(CpuOps, Attention) {
  for (const KvFormat format : {KvFormat::f32, KvFormat::bf16}) {
    expect_attention(1400, 24, format, 700);
    expect_attention(1400, 32, format, 129);
  }
  expect_attention(270, 600, KvFormat::bf16, 270);
}

// A matrix for each head, as it is stored and transposed, from every kind of storage; then a latent cache
// whose query is put together head by head, with a scale that grows.
TEST(CpuOps, HeadLinear) {
  constexpr std::int64_t heads = 3, wide = 40, narrow = 32;  // [heads * narrow, wide] is stored
  std::vector<Bf16> bf16;
  std::vector<E4m3> fp8;
  for (const float x : random_floats(heads * narrow * wide, 9))
    bf16.push_back(to_bf16(x)), fp8.push_back(to_e4m3(x));
  const checkpoint::Fp8BlockScales blocks{64, 64, {0.3f, 0.7f}};
  for (const InputFormat input : {InputFormat::f32, InputFormat::bf16})
    for (const bool transposed : {false, true})
      for (const bool is_fp8 : {false, true}) {
        OpCase c(9);
        checkpoint::Matrix stored{"m", heads * narrow, wide, checkpoint::Bf16Storage{bf16}, {}};
        if (is_fp8) stored.storage = checkpoint::Fp8Storage{fp8, blocks, {}};
        const std::int64_t in = transposed ? narrow : wide, out = transposed ? wide : narrow;
        const ValueId x = c.input(heads * in);
        const ResultId y = c.value(heads * out);
        c.program.main.push_back(HeadLinear{x, c.matrix(stored, input), heads, transposed, y});
        // Inputs and weights are normal (below 6); a rounding an addition.
        c.run(y, 4).expect_near(6 * 6 * static_cast<double>(in * (in + 4)) * kUnit);
      }
}

TEST(CpuOps, LatentAttention) {
  constexpr std::int64_t heads = 5, latent = 48, turned = 16, dim = latent + turned;
  for (const KvFormat format : {KvFormat::f32, KvFormat::bf16}) {
    OpCase c(300);
    c.program.kv_caches.push_back({"cache", 1, dim, format, latent});
    const ValueId absorbed = c.input(heads * latent), rope_query = c.input(heads * turned);
    const ValueId key = c.input(turned), value = c.input(latent);
    const ResultId query = c.value(heads * dim), out = c.value(heads * latent);
    const double scale = 1 / std::sqrt(static_cast<double>(dim));
    c.program.main.push_back(WriteKv{key, value, {0}});
    c.program.main.push_back(Concat{absorbed, rope_query, query, heads});
    Attention attend{query, {0}, heads, scale, out};
    attend.growth = 0.5, attend.growth_positions = 100;
    c.program.main.push_back(attend);
    // As Attention's; the scale grows to 1 + log(3) / 2, and a query is rounded once more by it.
    const double score =
        (static_cast<double>(dim) / 16 + 9) * kUnit * scale * 1.55 * 2 * static_cast<double>(dim);
    c.run(out, 130).expect_near(6 * (2 * score + (256 + 8) * kUnit));
  }
}

// Windows within a run, of a run, across runs and stretches, of one position, and wider than all; sinks that
// are among the scores and far above them.
TEST(CpuOps, AttentionWithAWindowAndSinks) {
  for (const std::int64_t window : {1, 5, 128, 256, 300, 1100, 5000}) {
    expect_attention(1400, 32, KvFormat::bf16, 700, window);
    expect_attention(1400, 24, KvFormat::f32, 129, window, 2);
  }
  expect_attention(300, 32, KvFormat::bf16, 1, 128, 30);
  expect_attention(300, 32, KvFormat::bf16, 300, 0, 30);
}

TEST(CpuOps, Gates) {
  OpCase c(8);
  const ValueId x = c.input(60), gate = c.input(120), flat = c.input(60), one = c.input(1);
  const ResultId opened = c.value(60), inner = c.value(60), added = c.value(60);
  c.program.main.push_back(HeadGate{x, gate, 20, opened});
  c.program.main.push_back(SwiGlu{opened, flat, inner});
  c.program.main.push_back(AddGated{inner, flat, one, added});
  const auto both = c.run(added, 3);
  both.expect_near(24 * kUnit * (6 + both.largest()) * 6);
}

TEST(CpuOps, GatedHeadNorm) {
  for (const GateKind kind : {GateKind::silu, GateKind::sigmoid}) {
    OpCase c(8);
    const ValueId x = c.input(72), gate = c.input(72);
    const ResultId out = c.value(72);
    c.program.main.push_back(GatedHeadNorm{x, gate, c.vector(24), 1e-6, kind, out});
    const auto both = c.run(out, 8);
    both.expect_near(24 * kUnit * (1 + both.largest()));
  }
}

TEST(CpuOps, ConvolutionAndDeltaRule) {
  for (const std::int64_t piece : {1, 50, 200}) {
    OpCase c(200);
    c.program.delta_states.push_back({"state", 2, 6, 20, 24, 4});
    const DeltaState& sizes = c.program.delta_states.back();
    const ValueId x = c.input(sizes.conv_dim()), beta = c.input(6), decay = c.input(6);
    const ResultId conv = c.value(sizes.conv_dim()), out = c.value(sizes.value_dim());
    c.program.main.push_back(CausalConv{x, c.vector(sizes.conv_dim() * 4, 0.5), {0}, conv});
    c.program.main.push_back(DeltaRule{conv, beta, decay, c.vector(6, 0.5), c.vector(6), {0}, out});
    // A row sums its key's 20 columns and at most 64 rows, and errs like the rows before it in its block,
    // through factors of at most one; the anchor carries what 200 rows brought. Values are below 6.
    c.run(out, piece).expect_near(6 * 200 * (20 + 64 + 8) * kUnit);
  }
}

// Experts with input scales of their own, or all alike; FP4, 16-bit and exact inputs.
TEST(CpuOps, Experts) {
  for (const InputFormat input : {InputFormat::f32, InputFormat::bf16, InputFormat::nvfp4})
    for (const bool alike : {true, false})
      for (const std::int64_t piece : {1, 40}) {
        OpCase c(40);
        const ValueId x = c.input(64), logits = c.input(6, 2);
        ExpertSet set{"set", {}};
        for (int e = 0; e < 6; ++e) {
          const float scale = alike ? 0x1p-8f : 0x1p-8f * (1.0f + 0.1f * static_cast<float>(e));
          const MatrixId gate = c.nvfp4(48, 64, input, scale);
          const MatrixId up = c.nvfp4(48, 64, input, alike ? scale : 1.05f * scale);
          // Down reads products of two sums of 64; FP4 wants to know their size.
          set.experts.push_back({gate, up, c.nvfp4(64, 48, input, 0.25f * scale / 0x1p-8f)});
        }
        c.program.expert_sets.push_back(set);
        const ResultId chosen = c.value(3, ValueType::i32), shares = c.value(3), out = c.value(64);
        c.program.main.push_back(TopKExperts{logits, 3, alike, chosen, shares});
        c.program.main.push_back(RunExperts{x, chosen, shares, {0}, out});
        const auto both = c.run(out, piece);
        // Inner values reach 30 * 30, and down sums 48 of them with weights of up to 4. What gate and up
        // leave out (planes: 2^-22 or 2^-15 of a block; FP4: a code may flip where they differ in the last
        // bit, which costs half a step, 1/4 of the largest in 16).
        const double sums = 900.0 * 48;
        const double error = input == InputFormat::f32 ? 0x1p-20 : 0x1p-13;
        if (input != InputFormat::nvfp4) {
          both.expect_near(sums * error);
        } else {  // most rows have no flip: their bound is that of exact inputs
          int beyond = 0;
          for (std::size_t i = 0; i < both.cpu.size(); ++i)
            if (std::abs(static_cast<double>(both.cpu[i]) - static_cast<double>(both.reference[i])) >
                sums * 0x1p-20)
              ++beyond;
          EXPECT_LT(beyond, static_cast<int>(both.cpu.size()) / 10);
        }
      }
}

// Biases, a limit that many gates and ups are beyond, and sizes that are no multiple of a panel. The bound is
// one that a wrong number of any part is beyond.
struct ClampedExperts {
  double alpha = 1.702, limit = 7, gate_bias = 3, up_bias = 3, down_bias = 300;

  struct Result {
    OpCase::Both both;
    double bound = 0;
  };
  Result run(std::int64_t piece) const {
    OpCase c(40);
    const ValueId x = c.input(48), logits = c.input(6, 2);
    ExpertSet set{"set", {}};
    double inner_sum = 0, down_sum = 0;
    for (int e = 0; e < 6; ++e) {
      const MatrixId gate = c.nvfp4(80, 48, InputFormat::f32), up = c.nvfp4(80, 48, InputFormat::f32),
                     down = c.nvfp4(40, 80, InputFormat::f32);
      for (const MatrixId id : {gate, up})
        inner_sum = std::max(inner_sum, largest_row_sum(*c.program.matrix(id).matrix));
      down_sum = std::max(down_sum, largest_row_sum(*c.program.matrix(down).matrix));
      set.experts.push_back({gate, up, down});
    }
    set.gate_bias = c.vector(6 * 80, gate_bias);
    set.up_bias = c.vector(6 * 80, up_bias);
    set.down_bias = c.vector(6 * 40, down_bias);
    c.program.expert_sets.push_back(set);
    const ResultId chosen = c.value(3, ValueType::i32), shares = c.value(3), out = c.value(40);
    c.program.main.push_back(TopKExperts{logits, 3, true, chosen, shares});
    c.program.main.push_back(RunExperts{x, chosen, shares, {0}, out, GluKind::clamped, alpha, limit});
    // Gate and up err as a Linear does, of inputs below 6. g * sigmoid(alpha g) is below 7 and its slope
    // below 1.1; up + 1 is at most 8: an inner value errs by 1.1 * 8 + 7 times that, and by its function's
    // own 2^-21. Down sums 80 of them, each below 7 * 8, and adds numbers below 6 * 300.
    const double product = 6 * inner_sum * ((48 + 4) * kUnit + 0x1p-22);
    const double inner = 16 * product + 56 * 0x1p-21;
    const double bound = down_sum * (inner + 56 * ((80 + 4) * kUnit + 0x1p-22)) + 1800 * 4 * kUnit;
    return {c.run(out, piece), bound};
  }
};

TEST(CpuOps, ExpertsWithBiasesAndAClampedSwiGlu) {
  for (const std::int64_t piece : {1, 40}) {
    const auto [right, bound] = ClampedExperts().run(piece);
    right.expect_near(bound);
    EXPECT_GT(right.largest(), 300);
  }
}

TEST(CpuOps, TheBoundOfAClampedSwiGluNoticesEachOfItsParts) {
  const auto [right, bound] = ClampedExperts().run(40);
  for (const auto& [what, wrong] : {std::pair<const char*, ClampedExperts>("alpha", {.alpha = 1}),
                                    {"limit", {.limit = 7.5}},
                                    {"gate's bias", {.gate_bias = 0}},
                                    {"up's bias", {.up_bias = 0}},
                                    {"down's bias", {.down_bias = 0}}}) {
    const OpCase::Both other = wrong.run(40).both;
    double moved = 0;
    for (std::size_t i = 0; i < other.reference.size(); ++i)
      moved = std::max(
          moved, std::abs(static_cast<double>(other.reference[i]) - static_cast<double>(right.reference[i])));
    EXPECT_GT(moved, 2 * bound) << what;  // twice: the right one may be a bound off to the other side
  }
}

TEST(CpuOps, ChosenExpertsAreTheReferences) {
  OpCase c(50);
  const ValueId logits = c.input(17, 0.5);
  const ResultId chosen = c.value(5, ValueType::i32), shares = c.value(5);
  c.program.main.push_back(TopKExperts{logits, 5, true, chosen, shares});
  c.run(chosen, 20).expect_near(0);
}

// Logits of few values, so that nearly every row has experts of equal ones, at the border of the chosen too;
// and NaN.
TEST(CpuOps, TiedExpertsAreTheReferences) {
  std::mt19937 dice(5);
  int tied_at_the_border = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<float> logits(3 + dice() % 30);
    for (float& x : logits) x = dice() % 12 == 0 ? std::nanf("") : static_cast<float>(dice() % 4) - 1.5f;
    logits[dice() % logits.size()] = 2;  // the largest is a number
    const std::size_t count = 1 + dice() % (logits.size() - 1);
    const TopKExperts op{{}, static_cast<std::int32_t>(count), true, {}, {}};
    std::vector<std::int32_t> chosen(count), expected(count);
    std::vector<float> weights(count), expected_weights(count);
    cpu::top_k_experts(op, logits, chosen, weights);
    reference::top_k_experts(op, logits, expected, expected_weights);
    EXPECT_EQ(chosen, expected) << round;
    // Written down once more: of two equal ones the lower comes first, and no lower one was left out.
    const auto logit = [&](std::int32_t expert) { return logits[static_cast<std::size_t>(expert)]; };
    for (std::size_t i = 1; i < count; ++i)
      if (logit(chosen[i]) == logit(chosen[i - 1])) {
        EXPECT_LT(chosen[i - 1], chosen[i]) << round;
      }
    for (std::int32_t other = 0; other < std::ssize(logits); ++other) {
      if (logit(other) != logit(chosen.back()) || std::ranges::count(chosen, other) > 0) continue;
      EXPECT_GT(other, chosen.back()) << round;
      ++tied_at_the_border;
    }
  }
  EXPECT_GT(tied_at_the_border, 500);
}

// Sigmoids and softmax, with and without bias, groups and normalising; few values, so that scores, biased
// scores and the ranks of groups tie; and NaN. Both round scores and their sums with a bias to f32 at the
// same places, so the choice is the same, and a weight differs by the rounding of exp alone.
TEST(CpuOps, RoutersOfEveryKindAreTheReferences) {
  std::mt19937 dice(6);
  int with_groups = 0;
  for (int round = 0; round < 2000; ++round) {
    TopKExperts op;
    op.score = dice() % 2 == 0 ? RouterScore::sigmoid : RouterScore::softmax;
    op.normalize = dice() % 2 == 0;
    op.scale = dice() % 2 == 0 ? 1 : 2.5;
    op.group_count = static_cast<std::int64_t>(1 + dice() % 4);
    op.groups_kept = static_cast<std::int64_t>(1 + dice() % static_cast<unsigned>(op.group_count));
    const std::int64_t length = 2 + dice() % 7;
    op.count = static_cast<std::int64_t>(1 + dice() % static_cast<unsigned>(op.groups_kept * length));
    std::vector<float> logits(static_cast<std::size_t>(op.group_count * length));
    // Now and then sigmoids that are zero in f32, whose sum is guarded.
    const float lower = dice() % 8 == 0 ? 200.0f : 1.5f;
    for (float& x : logits) x = dice() % 20 == 0 ? std::nanf("") : static_cast<float>(dice() % 4) - lower;
    std::vector<float> bias(dice() % 2 == 0 ? 0 : logits.size());
    for (float& x : bias) x = 0.25f * static_cast<float>(dice() % 3);
    const auto count = static_cast<std::size_t>(op.count);
    std::vector<std::int32_t> chosen(count), expected(count);
    std::vector<float> weights(count), wanted(count);
    cpu::top_k_experts(op, logits, chosen, weights, bias);
    reference::top_k_experts(op, logits, expected, wanted, bias);
    ASSERT_EQ(chosen, expected) << round;
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(std::isnan(weights[i]), std::isnan(wanted[i])) << round;
      if (std::isnan(wanted[i])) continue;
      ASSERT_NEAR(weights[i], wanted[i], 2 * kUnit * wanted[i]) << round;
    }
    if (op.groups_kept < op.group_count) ++with_groups;
  }
  EXPECT_GT(with_groups, 400);
}

}  // namespace
}  // namespace fourfold::backend
