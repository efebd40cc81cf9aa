#include "backend/reference/dense.h"

#include "base/bf16.h"
#include "tests/backend/support.h"

namespace fourfold::backend::reference {
namespace {

TEST(RmsNorm, WithAndWithoutOneAdded) {
  const std::vector<float> in{3, -4};
  const std::vector<float> weight{0.5f, 2};
  std::vector<float> out(2);
  const double factor = 1 / std::sqrt(12.5 + 1e-6);
  rms_norm(in, weight, true, 1e-6, out);
  EXPECT_FLOAT_EQ(out[0], static_cast<float>(3 * factor * 1.5));
  EXPECT_FLOAT_EQ(out[1], static_cast<float>(-4 * factor * 3));
  rms_norm(in, weight, false, 1e-6, out);
  EXPECT_FLOAT_EQ(out[0], static_cast<float>(3 * factor * 0.5));
}

TEST(Turn, PairsColumnsHalfWayApartAndLeavesTheRest) {
  const Rope rope{{1.0, 0.01}, 1};
  std::vector<float> head{1, 2, 3, 4, 5, 6};
  rotate(rope, 7, head);
  EXPECT_FLOAT_EQ(head[0], static_cast<float>(std::cos(7.0) - 3 * std::sin(7.0)));
  EXPECT_FLOAT_EQ(head[2], static_cast<float>(3 * std::cos(7.0) + std::sin(7.0)));
  EXPECT_FLOAT_EQ(head[1], static_cast<float>(2 * std::cos(0.07) - 4 * std::sin(0.07)));
  EXPECT_FLOAT_EQ(head[3], static_cast<float>(4 * std::cos(0.07) + 2 * std::sin(0.07)));
  EXPECT_EQ(head[4], 5);
  EXPECT_EQ(head[5], 6);
}

// Query and gate alternate: heads of two columns start four apart.
TEST(HeadNormRope, SkipsTheGateBetweenHeads) {
  const std::vector<float> in{1, 1, 9, 9, 2, 2, 9, 9};
  const std::vector<float> weight{1, 1};
  std::vector<float> out(4);
  head_norm_rope(HeadNormRope{{}, {}, false, 0, {}, 2, 2, 4, {}}, Rope{}, weight, 5, in, out);
  EXPECT_EQ(out, (std::vector<float>{1, 1, 1, 1}));
}

TEST(HeadNormRope, WithoutAWeightTurnsAlone) {
  const std::vector<float> in{1, 2, 3, 4};
  std::vector<float> out(4);
  head_norm_rope(HeadNormRope{{}, {}, false, 0, {}, 2, 2, 2, {}}, Rope{{0.5}, 1}, {}, 3, in, out);
  EXPECT_FLOAT_EQ(out[0], static_cast<float>(std::cos(1.5) - 2 * std::sin(1.5)));
  EXPECT_FLOAT_EQ(out[3], static_cast<float>(4 * std::cos(1.5) + 3 * std::sin(1.5)));
}

TEST(Linear, TheBiasIsAddedBehindTheProduct) {
  Weight weight{Rows(2, 1), InputFormat::bf16};
  weight.rows.cells = {2, 4};
  const std::vector<float> in{1}, bias{0x1p-20f, -4};  // the first is lost in bf16, and not in f32
  std::vector<float> out(2);
  linear(weight, Role::decode, in, out, InputOf::rows, bias);
  EXPECT_EQ(out, (std::vector<float>{2 + 0x1p-20f, 0}));
}

TEST(HeadGate, TakesTheSecondHalfOfEachHead) {
  const std::vector<float> in{1, 2, 3, 4};
  const std::vector<float> gate{99, 99, 0, 0, 99, 99, 0, 100};
  std::vector<float> out(4);
  head_gate(2, in, gate, out);
  EXPECT_EQ(out, (std::vector<float>{0.5f, 1, 1.5f, 4}));
}

TEST(GatedHeadNorm, NormalisesEachHeadThenGates) {
  const std::vector<float> in{3, 4, 30, 40};
  const std::vector<float> gate{1, 1, 1, 1};
  const std::vector<float> weight{1, 2};
  std::vector<float> out(4);
  gated_head_norm(GateKind::sigmoid, 0, in, gate, weight, out);
  const double open = 1 / (1 + std::exp(-1.0));
  EXPECT_FLOAT_EQ(out[0], static_cast<float>(3 / std::sqrt(12.5) * open));
  EXPECT_FLOAT_EQ(out[3], static_cast<float>(4 / std::sqrt(12.5) * 2 * open));
  EXPECT_FLOAT_EQ(out[0], out[2]);
  gated_head_norm(GateKind::silu, 0, in, gate, weight, out);
  EXPECT_FLOAT_EQ(out[0], static_cast<float>(3 / std::sqrt(12.5) * open));  // silu(1) = sigmoid(1)
}

TEST(Linear, RoundsItsInputToBf16) {
  const auto in = random_floats(16, 1);
  Weight weight{Rows(1, 16), InputFormat::bf16, {1, 1}};
  weight.rows.cells = random_floats(16, 2);
  std::vector<float> out(1);
  linear(weight, Role::prefill, in, out);
  double sum = 0;
  for (int i = 0; i < 16; ++i) sum += static_cast<double>(to_float(to_bf16(in[i]))) * weight.rows.cells[i];
  EXPECT_FLOAT_EQ(out[0], static_cast<float>(sum));
}

// A code is at most half a gap from its value: in a block of scale s the widest gap lies between 4s and 6s,
// so s; and s is rounded to four bits, so the largest value may lie 6 * 2^-4 s above 6s.
TEST(Linear, QuantisesItsInputToFp4WithinHalfAGap) {
  const std::int64_t columns = 64;
  Weight weight{Rows(1, columns), InputFormat::nvfp4, {4.0f / (6 * 448), 6 * 448 / 4.0f}};
  weight.rows.cells = random_floats(columns, 2);
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto in = random_floats(columns, 10 + seed);
    double exact = 0;
    double bound = 0;
    for (std::int64_t i = 0; i < columns; ++i) {
      float largest = 0;
      for (std::int64_t j = i / 16 * 16; j < i / 16 * 16 + 16; ++j)
        largest = std::max(largest, std::abs(in[j]));
      exact += static_cast<double>(in[i]) * weight.rows.cells[i];
      bound += largest / 6 * (1 + 0x1p-4) * std::abs(static_cast<double>(weight.rows.cells[i]));
    }
    std::vector<float> out(1);
    linear(weight, Role::prefill, in, out);
    EXPECT_NEAR(out[0], exact, bound) << seed;
    EXPECT_NE(out[0], static_cast<float>(exact)) << "nothing was rounded";
  }
}

TEST(Expand, Fp4InputsNeedAnInputScale) {
  const auto values = random_floats(16, 1);
  const checkpoint::Matrix matrix{"some.weight", 1, 16, checkpoint::F32Storage{values}, {}};
  try {
    expand({&matrix, InputFormat::nvfp4});
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::bad_checkpoint);
    EXPECT_NE(std::string(error.what()).find("some.weight"), std::string::npos);
  }
  EXPECT_EQ(expand({&matrix, InputFormat::f32}).rows.cells, values);
}

// Two heads of three rows and two columns. Transposed the same rows take three numbers and give two.
TEST(HeadLinear, MultipliesEachHeadWithItsOwnRows) {
  Weight weight{Rows(6, 2), InputFormat::f32, {1, 1}, {}};
  for (std::size_t i = 0; i < 12; ++i) weight.rows.cells[i] = static_cast<float>(i + 1);
  std::vector<float> out(6), back(4);
  head_linear(HeadLinear{{}, {}, 2, false, {}}, weight, std::vector<float>{1, 10, 100, 1000}, out);
  EXPECT_EQ(out, (std::vector<float>{21, 43, 65, 8700, 10900, 13100}));
  head_linear(HeadLinear{{}, {}, 2, true, {}}, weight, std::vector<float>{1, 10, 100, 0, 2, 1}, back);
  EXPECT_EQ(back, (std::vector<float>{531, 642, 29, 32}));
  // In bf16 both are rounded: 257 is 256, and 1 + 2^-9 is 1.
  Weight narrow{Rows(1, 1), InputFormat::bf16, {1, 1}, {}};
  narrow.rows.cells[0] = 257;
  head_linear(HeadLinear{{}, {}, 1, false, {}}, narrow, std::vector<float>{1 + 0x1p-9f},
              std::span(back).first(1));
  EXPECT_EQ(back[0], 256);
}

}  // namespace
}  // namespace fourfold::backend::reference
