#include "base/nvfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "tests/support/nvfp4_model.h"

namespace fourfold {
namespace {

using test_support::expect_half_step;
using test_support::wild_matrix;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

static_assert(!std::is_convertible_v<float, ModelOptScale> &&
              !std::is_convertible_v<float, CompressedTensorsScale>);
static_assert(!std::is_constructible_v<ModelOptScale, CompressedTensorsScale>);
static_assert(!std::is_constructible_v<CompressedTensorsScale, ModelOptScale>);
static_assert(!std::is_constructible_v<ModelOptInputScale, ModelOptScale>,
              "weights' and inputs' scales are apart too");
template <class Scale>
concept GivesInputScale = requires(Scale scale) {
  nvfp4_input_scale(scale);
};
static_assert(GivesInputScale<ModelOptInputScale> && !GivesInputScale<ModelOptScale> &&
              !GivesInputScale<float>);
static_assert(nvfp4_value({0x7}, {0x7E}, 1.0f) == 2688.0f, "usable at compile time");

template <class Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::bad_checkpoint);
    EXPECT_FALSE(error.hint().empty());
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Nvfp4Weights, EveryElementIsWithinHalfAStepOfItsBlock) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Random random(seed);
    const auto rows = static_cast<std::int64_t>(1 + random.below(4));
    const auto columns = static_cast<std::int64_t>(kNvfp4BlockColumns * (1 + random.below(5)));
    const int lowest = static_cast<int>(random.below(240)) - 149;
    const std::vector<float> values =
        wild_matrix(random, rows * columns, lowest, 1 + static_cast<int>(random.below(30)));
    const Nvfp4Matrix matrix = quantize_nvfp4_weights(values, rows, columns);
    validate(matrix.view());
    expect_half_step(values, matrix, seed);
  }
}

TEST(Nvfp4Weights, NothingSaturatesByMoreThanTheScaleWasRounded) {
  Random random(1);
  const std::vector<float> values = wild_matrix(random, 64 * 256, -4, 8);
  const Nvfp4Matrix matrix = quantize_nvfp4_weights(values, 64, 256);
  const std::vector<float> decoded = dequantize(matrix.view());
  // The block's largest element loses at most half an E4M3 step, 1/16 of itself, when its scale is a normal
  // number.
  for (std::size_t begin = 0; begin < values.size(); begin += kNvfp4BlockColumns) {
    if (matrix.scales[begin / kNvfp4BlockColumns].bits < 0x08) continue;
    for (std::size_t i = begin; i < begin + kNvfp4BlockColumns; ++i) {
      const float size = std::fabs(values[i]);
      const float unit = to_float(matrix.scales[begin / kNvfp4BlockColumns]) * matrix.global_scale;
      if (size <= 6 * unit) continue;
      ASSERT_LE(size - std::fabs(decoded[i]), size / 16 * 1.0001f);
    }
  }
}

TEST(Nvfp4Weights, FollowTheStaticAmaxRules) {
  std::vector<float> values(48);
  values[0] = -2688.0f;  // global scale 1, block scale 448
  values[1] = 448.0f * 3.5f;
  values[16] = kSmallest;  // a ratio that underflows the smallest scale
  const Nvfp4Matrix matrix = quantize_nvfp4_weights(values, 1, 48);
  EXPECT_EQ(matrix.global_scale, 1.0f);
  EXPECT_EQ(matrix.scales[0].bits, 0x7E);
  EXPECT_EQ(matrix.view().code(0, 0).bits, 0xF);
  EXPECT_EQ(matrix.view().code(0, 1).bits, 6) << "3.5 ties to 4";
  EXPECT_NE(matrix.scales[1].bits, 0) << "never zero";
  EXPECT_EQ(to_float(matrix.scales[2]), 1.0f) << "an all-zero block";
  EXPECT_EQ(nvfp4_weight_scale(1e-6f, 1.0f).bits, 0x01) << "kept off zero";
}

TEST(Nvfp4Weights, AllZeroAndSubnormalMatrices) {
  const Nvfp4Matrix zero = quantize_nvfp4_weights(std::vector<float>(32), 2, 16);
  EXPECT_EQ(zero.global_scale, 1.0f);
  for (const E4m3 scale : zero.scales) EXPECT_EQ(to_float(scale), 1.0f);
  for (const std::uint8_t pair : zero.codes) EXPECT_EQ(pair, 0);
  EXPECT_NO_THROW(validate(zero.view()));

  const Nvfp4Matrix tiny = quantize_nvfp4_weights(std::vector<float>(16, 20 * kSmallest), 1, 16);
  EXPECT_EQ(tiny.global_scale, 0x1p-126f) << "never subnormal";
  EXPECT_NO_THROW(validate(tiny.view()));

  const float largest = std::numeric_limits<float>::max();
  const Nvfp4Matrix huge = quantize_nvfp4_weights(std::vector<float>(16, largest), 1, 16);
  EXPECT_EQ(huge.scales[0].bits, 0x7E);
  EXPECT_NEAR(dequantize(huge.view())[0] / largest, 1.0, 1e-6);
}

TEST(Nvfp4Weights, ASharedAmaxGivesEqualGlobalScalesAndSaturatesAboveIt) {
  std::vector<float> values(16, 1.0f);
  const Nvfp4Matrix shared = quantize_nvfp4_weights(values, 1, 16, 4.0f);
  EXPECT_EQ(shared.global_scale, nvfp4_weight_global_scale(4.0f));
  EXPECT_NEAR(dequantize(shared.view())[0], 1.0f, 1.0f / 16);
  values[3] = 100.0f;
  const Nvfp4Matrix clipped = quantize_nvfp4_weights(values, 1, 16, 4.0f);
  EXPECT_EQ(clipped.scales[0].bits, 0x7E);
  EXPECT_NEAR(dequantize(clipped.view())[3], 4.0f, 1e-5f);
}

TEST(Nvfp4Weights, RefuseNanInfinityAndPartialBlocks) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> values(64, 1.0f);
    values[37] = bad;
    EXPECT_THROW(quantize_nvfp4_weights(values, 2, 32), Error) << bad;
  }
  EXPECT_THROW(quantize_nvfp4_weights(std::vector<float>(24), 1, 24), Error);
}

TEST(Nvfp4Conventions, AreInversesOfEachOther) {
  EXPECT_EQ(global_scale(ModelOptScale{0.25f}), 0.25f);
  EXPECT_EQ(global_scale(CompressedTensorsScale{4.0f}), 0.25f);
  Random random(4);
  for (int i = 0; i < 10'000; ++i) {
    const auto scale =
        static_cast<float>(std::ldexp(random.uniform(1, 2), static_cast<int>(random.below(240)) - 120));
    const CompressedTensorsScale inverse = to_compressed_tensors(ModelOptScale{scale});
    EXPECT_EQ(inverse.weight_global_scale, 1.0f / scale);
    EXPECT_EQ(global_scale(inverse), to_model_opt(inverse).weight_scale_2);
    // Two correctly rounded reciprocals come back within one unit in the last place.
    EXPECT_LE(std::fabs(global_scale(inverse) - scale), scale * 0x1p-23f);
  }
  const Nvfp4InputScale model_opt = nvfp4_input_scale(ModelOptInputScale{0.125f});
  const Nvfp4InputScale compressed = nvfp4_input_scale(CompressedTensorsInputScale{8.0f});
  EXPECT_EQ(model_opt.scale, compressed.scale);
  EXPECT_EQ(model_opt.inverse, compressed.inverse);
}

TEST(Nvfp4Conventions, RefuseWhatIsNoScaleByValue) {
  EXPECT_EQ(refusal([] { global_scale(ModelOptScale{0.0f}); }),
            "weight_scale_2 is 0; a scale must be positive and finite, and so must its reciprocal");
  for (const float bad : {0.0f, -0.0f, -1.0f, kNan, kInfinity, -kInfinity, kSmallest}) {
    const std::string value = format("is {};", bad);
    EXPECT_NE(refusal([&] { global_scale(ModelOptScale{bad}); }).find(value), std::string::npos);
    EXPECT_NE(refusal([&] { global_scale(CompressedTensorsScale{bad}); }).find(value), std::string::npos);
    EXPECT_NE(refusal([&] { to_compressed_tensors(ModelOptScale{bad}); }).find(value), std::string::npos);
    EXPECT_NE(refusal([&] { to_model_opt(CompressedTensorsScale{bad}); }).find(value), std::string::npos);
    EXPECT_NE(refusal([&] { nvfp4_input_scale(ModelOptInputScale{bad}); }).find(value), std::string::npos);
    EXPECT_NE(refusal([&] { nvfp4_input_scale(CompressedTensorsInputScale{bad}); }).find(value),
              std::string::npos);
  }
}

TEST(Nvfp4Validate, RefusesABadScaleByName) {
  const std::vector<float> values(3 * 64, 1.0f);
  const Nvfp4Matrix sound = quantize_nvfp4_weights(values, 3, 64);
  for (int byte = 0; byte <= 0xFF; ++byte) {
    Nvfp4Matrix matrix = sound;
    matrix.scales[9] = {static_cast<std::uint8_t>(byte)};
    if (byte < 0x7F) {
      EXPECT_NO_THROW(validate(matrix.view())) << byte;
      continue;
    }
    const std::string why = (byte & 0x7F) == 0x7F ? "NaN" : "sign bit set";
    char name[8];
    std::snprintf(name, sizeof name, "0x%02X", static_cast<unsigned>(byte));
    EXPECT_EQ(refusal([&] { validate(matrix.view()); }),
              format("NVFP4 scale {} ({}) at row 2, block 1", std::string_view(name), why));
  }
}

TEST(Nvfp4Validate, RefusesSizesAndGlobalScalesThatDoNotFit) {
  const std::vector<float> values(2 * 32, 1.0f);
  const Nvfp4Matrix sound = quantize_nvfp4_weights(values, 2, 32);
  for (int what = 0; what < 5; ++what) {
    Nvfp4Matrix matrix = sound;
    if (what == 0) matrix.columns = 24;
    if (what == 1) matrix.codes.pop_back();
    if (what == 2) matrix.scales.pop_back();
    if (what == 3) matrix.rows = 3;
    if (what == 4) matrix.global_scale = kNan;
    EXPECT_THROW(validate(matrix.view()), Error) << what;
  }
}

TEST(Nvfp4View, ReadsCheckpointBytesInPlace) {
  const std::vector<std::uint8_t> codes{0x21, 0x43, 0x65, 0x87, 0xA9, 0xCB, 0xED, 0x0F};
  const std::byte scale_bytes[] = {std::byte{0x40}};  // 2
  const Nvfp4View view{
      .rows = 1, .columns = 16, .codes = codes, .scales = as_e4m3(scale_bytes), .global_scale = 0.5f};
  validate(view);
  const std::vector<float> expected{0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6, 0};
  EXPECT_EQ(dequantize(view), expected);
}

}  // namespace
}  // namespace fourfold
