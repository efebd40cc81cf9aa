// The activation quantiser of base/nvfp4.h.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/nvfp4.h"
#include "base/random.h"
#include "tests/support/nvfp4_model.h"

namespace fourfold {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

static_assert(nvfp4_activation_code(3.0f, nvfp4_activation_multiplier({0x38}, 1.0f)) == E2m1{5},
              "usable at compile time");

Nvfp4Matrix quantize_row(const std::vector<float>& values, float input_scale) {
  return quantize_nvfp4_activations(values, 1, static_cast<std::int64_t>(values.size()),
                                    nvfp4_input_scale(ModelOptInputScale{input_scale}));
}

TEST(Nvfp4Activations, EveryElementIsWithinHalfAStepOfItsBlock) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Random random(seed);
    const auto rows = static_cast<std::int64_t>(1 + random.below(4));
    const auto columns = static_cast<std::int64_t>(kNvfp4BlockColumns * (1 + random.below(5)));
    const int scale_exponent = static_cast<int>(random.below(220)) - 110;
    const auto scale = static_cast<float>(std::ldexp(random.uniform(1, 2), scale_exponent));
    // From far below the scale's reach to some powers of two above it.
    const std::vector<float> values =
        test_support::wild_matrix(random, rows * columns, scale_exponent - 14, 28);
    const Nvfp4InputScale both = nvfp4_input_scale(ModelOptInputScale{scale});
    const Nvfp4Matrix matrix = quantize_nvfp4_activations(values, rows, columns, both);
    EXPECT_EQ(matrix.global_scale, scale);
    validate(matrix.view());
    test_support::expect_half_step(values, matrix, seed);
  }
}

// The block scale against the double-precision formula: equal, or a neighbour where f32 rounding met a tie.
TEST(Nvfp4Activations, ScaleIsTheRoundedQuotient) {
  Random random(2);
  for (int i = 0; i < 200'000; ++i) {
    const float inverse =
        static_cast<float>(std::ldexp(random.uniform(1, 2), static_cast<int>(random.below(40)) - 20));
    const float amax =
        static_cast<float>(std::ldexp(random.uniform(), static_cast<int>(random.below(40)) - 20));
    const double exact = static_cast<double>(inverse) * amax / 6.0;
    const auto low = to_e4m3(static_cast<float>(exact * (1 - 0x1p-21))).bits;
    const auto high = to_e4m3(static_cast<float>(exact * (1 + 0x1p-21))).bits;
    const auto got = nvfp4_activation_scale(amax, inverse).bits;
    ASSERT_TRUE(got >= low && got <= high) << amax << " * " << inverse;
  }
}

// The order of operations is a contract with the kernels. Each step stands in its own volatile, rounded to
// f32.
TEST(Nvfp4Activations, OrderOfOperationsIsAsWritten) {
  Random random(3);
  for (int i = 0; i < 200'000; ++i) {
    const float scale =
        static_cast<float>(std::ldexp(random.uniform(1, 2), static_cast<int>(random.below(40)) - 20));
    const float amax = static_cast<float>(scale * random.uniform() * 3000.0);
    const float value = static_cast<float>(amax * random.uniform(-1, 1));
    const Nvfp4InputScale both = nvfp4_input_scale(ModelOptInputScale{scale});
    volatile float inverse = 1.0f / scale;
    volatile float sixth = std::bit_cast<float>(0x3E2AAAABu);
    volatile float per_tensor = inverse * sixth;
    volatile float ratio = amax * per_tensor;
    const E4m3 block_scale = to_e4m3(ratio);
    ASSERT_EQ(nvfp4_activation_scale(amax, both.inverse), block_scale);
    if (block_scale.bits == 0) continue;
    volatile float reciprocal = 1.0f / to_float(block_scale);
    volatile float multiplier = reciprocal * inverse;
    volatile float scaled = value * multiplier;
    ASSERT_EQ(nvfp4_activation_multiplier(block_scale, both.inverse), static_cast<float>(multiplier));
    ASSERT_EQ(nvfp4_activation_code(value, multiplier), to_e2m1(scaled));
  }
}

TEST(Nvfp4Activations, AZeroScaleGivesZeroCodes) {
  for (const float tiny : {0.0f, -0.0f, kSmallest, -kSmallest, -0x1p-9f}) {
    const Nvfp4Matrix matrix = quantize_row(std::vector<float>(16, tiny), 1.0f);
    EXPECT_EQ(matrix.scales[0].bits, 0) << tiny;
    for (const std::uint8_t pair : matrix.codes) EXPECT_EQ(pair, 0) << tiny;
  }
}

TEST(Nvfp4Activations, NanBecomesPlusSixAndLeavesItsBlockAlone) {
  std::vector<float> values(32, 0.0f);
  for (int i = 0; i < 16; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i) / 4.0f;
  const Nvfp4Matrix clean = quantize_row(values, 1.0f);
  for (const float nan : {kNan, -kNan}) {
    std::vector<float> poisoned = values;
    poisoned[5] = nan;
    poisoned[20] = nan;  // the second block holds nothing else
    const Nvfp4Matrix matrix = quantize_row(poisoned, 1.0f);
    EXPECT_EQ(matrix.scales, clean.scales);
    for (std::int64_t column = 0; column < 32; ++column)
      EXPECT_EQ(matrix.view().code(0, column), column == 5 ? E2m1{7} : clean.view().code(0, column))
          << column;
    EXPECT_NO_THROW(validate(matrix.view()));
  }
}

TEST(Nvfp4Activations, InfinitySaturates) {
  std::vector<float> values(16, 448.0f);
  values[3] = -kInfinity;
  values[4] = kInfinity;
  values[5] = kNan;
  const Nvfp4Matrix matrix = quantize_row(values, 1.0f);
  EXPECT_EQ(matrix.scales[0].bits, 0x7E);
  EXPECT_EQ(matrix.view().code(0, 3).bits, 0xF);
  EXPECT_EQ(matrix.view().code(0, 4).bits, 0x7);
  EXPECT_EQ(matrix.view().code(0, 5).bits, 0x7);
  EXPECT_EQ(matrix.view().code(0, 6).bits, 2) << "the rest is scaled as usual";
}

// At the ends of the accepted input scales every multiplier is a normal number: no zero turns into NaN, none
// is lost.
TEST(Nvfp4Activations, MultipliersStayNormalAtTheEnds) {
  for (const float scale : {0x1p-117f, 0x1p117f, 1.0f}) {
    const Nvfp4InputScale both = nvfp4_input_scale(ModelOptInputScale{scale});
    for (int code = 1; code <= 0x7E; ++code)
      EXPECT_TRUE(
          std::isnormal(nvfp4_activation_multiplier({static_cast<std::uint8_t>(code)}, both.inverse)));
  }
}

}  // namespace
}  // namespace fourfold
