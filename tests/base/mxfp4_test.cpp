#include "base/mxfp4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/nvfp4.h"
#include "base/random.h"
#include "tests/support/nearest.h"

namespace fourfold {
namespace {

// Mixing the two formats up does not compile: no type of one converts to, builds or is accepted as one of the
// other.
template <class Scale>
concept DecodesAsMxfp4 = requires(E2m1 code, Scale scale) {
  mxfp4_value(code, scale);
};
template <class Scale>
concept DecodesAsNvfp4 = requires(E2m1 code, Scale scale) {
  nvfp4_value(code, scale, 1.0f);
};
static_assert(DecodesAsMxfp4<Ue8m0> && !DecodesAsMxfp4<E4m3> && !DecodesAsMxfp4<std::uint8_t>);
static_assert(DecodesAsNvfp4<E4m3> && !DecodesAsNvfp4<Ue8m0> && !DecodesAsNvfp4<std::uint8_t>);
static_assert(!std::is_convertible_v<Nvfp4View, Mxfp4View> && !std::is_convertible_v<Mxfp4View, Nvfp4View>);
static_assert(!std::is_constructible_v<Mxfp4View, Nvfp4View> &&
              !std::is_constructible_v<Nvfp4View, Mxfp4View>);
static_assert(!std::is_assignable_v<Mxfp4Matrix&, Nvfp4Matrix> &&
              !std::is_assignable_v<Nvfp4Matrix&, Mxfp4Matrix>);
static_assert(!std::is_assignable_v<decltype(Mxfp4View::scales)&, decltype(Nvfp4View::scales)>);
static_assert(!std::is_assignable_v<decltype(Nvfp4View::scales)&, decltype(Mxfp4View::scales)>);

const std::vector<double> kMagnitudes{0, 0.5, 1, 1.5, 2, 3, 4, 6};

std::vector<float> wild_matrix(Random& random, std::int64_t rows, std::int64_t columns) {
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (std::size_t begin = 0; begin < values.size(); begin += kMxfp4BlockColumns) {
    const int exponent = static_cast<int>(random.below(276)) - 149;
    const bool zero = random.below(10) == 0;
    for (std::size_t i = begin; i < begin + kMxfp4BlockColumns; ++i)
      values[i] = zero ? 0.0f : static_cast<float>(std::ldexp(random.uniform(-1, 1), exponent));
  }
  return values;
}

TEST(Mxfp4, SharedExponentIsTheOcpRule) {
  EXPECT_EQ(mxfp4_block_scale(4.0f).bits, 127);
  EXPECT_EQ(mxfp4_block_scale(7.99f).bits, 127) << "6 to 8 saturates by the rule";
  EXPECT_EQ(mxfp4_block_scale(8.0f).bits, 128);
  EXPECT_EQ(mxfp4_block_scale(3.99f).bits, 126);
  EXPECT_EQ(mxfp4_block_scale(0.0f).bits, 127) << "an all-zero block";
  EXPECT_EQ(mxfp4_block_scale(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(mxfp4_block_scale(std::numeric_limits<float>::max()).bits, 252);
  Random random(10);
  for (int i = 0; i < 100'000; ++i) {
    const float amax =
        std::bit_cast<float>(static_cast<std::uint32_t>(random.below(kF32InfinityBits - 1) + 1));
    EXPECT_EQ(mxfp4_block_scale(amax).bits, std::max(std::ilogb(amax) - 2 + 127, 0)) << amax;
  }
}

TEST(Mxfp4, EveryElementIsTheNearestOfItsBlock) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Random random(seed);
    const auto rows = static_cast<std::int64_t>(1 + random.below(4));
    const auto columns = static_cast<std::int64_t>(kMxfp4BlockColumns * (1 + random.below(3)));
    const std::vector<float> values = wild_matrix(random, rows, columns);
    const Mxfp4Matrix matrix = quantize_mxfp4_weights(values, rows, columns);
    validate(matrix.view());
    const std::vector<float> decoded = dequantize(matrix.view());
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const double value = values[static_cast<std::size_t>(i)];
      const Ue8m0 scale = matrix.view().scale(i / columns, i % columns / kMxfp4BlockColumns);
      const double quotient = value / std::ldexp(1.0, scale.bits - 127);
      const std::uint32_t nearest = test_support::nearest_code(std::fabs(quotient), kMagnitudes);
      ASSERT_EQ(matrix.view().code(i / columns, i % columns).bits & 7u, nearest)
          << "seed " << seed << " at " << i;
      ASSERT_EQ(decoded[static_cast<std::size_t>(i)],
                std::copysign(kMagnitudes[nearest], value) * std::ldexp(1.0, scale.bits - 127));
      ASSERT_LT(std::fabs(quotient), 8.0);
    }
  }
}

TEST(Mxfp4, EveryCodeAndScaleDecodesExactly) {
  for (int scale = 0; scale < 252; ++scale)
    for (int code = 0; code < 8; ++code) {
      const Ue8m0 power{static_cast<std::uint8_t>(scale)};
      const double exact = kMagnitudes[static_cast<std::size_t>(code)] * std::ldexp(1.0, scale - 127);
      EXPECT_EQ(mxfp4_value({static_cast<std::uint8_t>(code)}, power), exact);
      EXPECT_EQ(mxfp4_value({static_cast<std::uint8_t>(code | 8)}, power), -exact);
    }
}

TEST(Mxfp4, RefusesANanScaleByName) {
  const std::vector<float> values(2 * 64, 1.0f);
  Mxfp4Matrix matrix = quantize_mxfp4_weights(values, 2, 64);
  matrix.scales[3] = {0xFF};
  try {
    validate(matrix.view());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::bad_checkpoint);
    EXPECT_STREQ(error.what(), "MXFP4 scale 0xFF (NaN) at row 1, block 1");
  }
  matrix.scales[3] = {0x7F};
  EXPECT_NO_THROW(validate(matrix.view())) << "0x7F is 1 here; only E4M3 reads it as NaN";
}

TEST(Mxfp4, RefusesPartialBlocksAndWeightsThatAreNotFinite) {
  const std::vector<float> values(48);
  EXPECT_THROW(quantize_mxfp4_weights(values, 1, 48), Error)
      << "48 columns are three NVFP4 blocks but no MXFP4 ones";
  std::vector<float> poisoned(32, 1.0f);
  poisoned[7] = NAN;
  EXPECT_THROW(quantize_mxfp4_weights(poisoned, 1, 32), Error);
}

TEST(Mxfp4, ReadsCheckpointBytesInPlace) {
  const std::byte bytes[] = {std::byte{0x7F}, std::byte{0x80}};
  const auto scales = as_ue8m0(bytes);
  ASSERT_EQ(scales.size(), 2u);
  EXPECT_EQ(static_cast<const void*>(scales.data()), static_cast<const void*>(bytes));
  EXPECT_EQ(to_float(scales[1]), 2.0f);
}

}  // namespace
}  // namespace fourfold
