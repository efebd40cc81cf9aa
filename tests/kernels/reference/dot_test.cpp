// The scalar reference: its bits lie within the derived bound of its double-precision value, on random input
// and on input made to lose as many bits as possible.
#include "kernels/reference/dot.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/fp8_rows.h"
#include "base/random.h"
#include "base/tensor_core.h"
#include "kernels/record/record.h"
#include "kernels/verify/inputs.h"

namespace fourfold::reference {
namespace {

double decode_factor(bool mxfp4) {
  return mxfp4 ? record::Mxfp4::half_decode_factor : record::Nvfp4::half_decode_factor;
}

// An independent sum in long double over the checkpoint's bytes.
long double exact_dot(const Weights& weights, std::int64_t row, const std::vector<double>& token) {
  long double sum = 0.0L;
  for (std::int64_t c = 0; c < weights.columns; ++c) {
    const auto at = static_cast<std::size_t>(row * weights.columns + c);
    const std::uint8_t byte = weights.scale_bytes[at / static_cast<std::size_t>(weights.columns_per_scale)];
    const double scale = weights.is_mxfp4() ? std::ldexp(1.0, byte - 127) : to_float(E4m3{byte});
    sum += static_cast<long double>(to_float(weights.codes[at])) * scale * token[static_cast<std::size_t>(c)];
  }
  return sum;
}

struct Worst {
  double ratio = 0.0;
  void take(const Dot& dot, double bits, long double exact) {
    ASSERT_LE(std::abs(static_cast<double>(exact - dot.value)), dot.magnitude * 0x1p-40 + 1e-300);
    if (dot.bound == 0.0) {
      ASSERT_EQ(bits, dot.value);
      return;
    }
    ratio = std::max(ratio, std::abs(bits - dot.value) / dot.bound);
  }
};

TEST(Dot, W4a16BitsLieWithinTheBound) {
  Worst worst;
  Random random(1);
  for (const bool mxfp4 : {false, true})
    for (const std::int64_t columns : {64, 512, 576, 2048})
      for (const Order order : {Order::prefill, Order::decode}) {
        const auto matrix = verify::random_matrix(random, 24, columns, mxfp4);
        const Weights weights = verify::reference_of(matrix);
        const auto tokens = verify::random_tokens(random, 8, columns);
        for (std::int64_t row = 0; row < 24; ++row)
          for (std::int64_t t = 0; t < 8; ++t) {
            const Bf16* const token = tokens.data() + t * columns;
            std::vector<double> values;
            for (std::int64_t c = 0; c < columns; ++c) values.push_back(to_float(token[c]));
            const Dot dot = dot_w4a16(weights, row, token, order);
            worst.take(dot, dot.bits * decode_factor(mxfp4), exact_dot(weights, row, values));
          }
      }
  EXPECT_LE(worst.ratio, 1.0);
  EXPECT_GT(worst.ratio, 1e-3);  // a bound a thousand times too wide would prove nothing
}

TEST(Dot, W4a4BitsLieWithinTheBound) {
  Worst worst;
  Random random(2);
  for (const bool mxfp4 : {false, true})
    for (const std::int64_t columns : {64, 512, 576, 2048})
      for (const Order order : {Order::prefill, Order::decode}) {
        const Weights weights = verify::reference_of(verify::random_matrix(random, 24, columns, mxfp4));
        const Weights tokens = verify::reference_of(verify::random_matrix(random, 8, columns, mxfp4));
        for (std::int64_t row = 0; row < 24; ++row)
          for (std::int64_t t = 0; t < 8; ++t) {
            std::vector<double> values;
            for (std::int64_t c = 0; c < columns; ++c) {
              const auto at = static_cast<std::size_t>(t * columns + c);
              const std::uint8_t byte =
                  tokens.scale_bytes[at / static_cast<std::size_t>(tokens.columns_per_scale)];
              values.push_back(
                  to_float(tokens.codes[at]) *
                  (mxfp4 ? std::ldexp(1.0, byte - 127) : static_cast<double>(to_float(E4m3{byte}))));
            }
            const Dot dot = dot_w4a4(weights, row, tokens, t, order);
            worst.take(dot, dot.bits, exact_dot(weights, row, values));
          }
      }
  EXPECT_LE(worst.ratio, 1.0);
  EXPECT_GT(worst.ratio, 1e-3);
}

TEST(Dot, CancellationStaysWithinTheBound) {
  // One huge product, its opposite at the end, and small ones between that truncation eats.
  for (const std::int64_t columns : {128, 1024}) {
    Weights weights;
    weights.rows = 1;
    weights.columns = columns;
    weights.codes.assign(static_cast<std::size_t>(columns), E2m1{1});
    weights.scale_bytes.assign(static_cast<std::size_t>(columns / 16), 0x38);  // 1
    std::vector<Bf16> token(static_cast<std::size_t>(columns), to_bf16(0x1.6p0f));
    token.front() = to_bf16(0x1p24f);
    token.back() = to_bf16(-0x1p24f);
    std::vector<double> values;
    for (const Bf16 value : token) values.push_back(to_float(value));
    for (const Order order : {Order::prefill, Order::decode}) {
      const Dot dot = dot_w4a16(weights, 0, token.data(), order);
      EXPECT_EQ(static_cast<long double>(dot.value), exact_dot(weights, 0, values));
      const double error = std::abs(dot.bits * 256.0 - dot.value);
      EXPECT_LE(error, dot.bound);
      EXPECT_GT(error, 0.0);  // something was lost, as it must be
    }
  }
}

TEST(Dot, OrderMatters) {
  // Beyond one segment the two orders are different sums; within one they are the same.
  Random random(3);
  int different = 0;
  for (const std::int64_t columns : {512, 2048}) {
    const Weights weights = verify::reference_of(verify::random_matrix(random, 32, columns, false));
    const auto token = verify::random_tokens(random, 1, columns);
    for (std::int64_t row = 0; row < 32; ++row) {
      const float a = dot_w4a16(weights, row, token.data(), Order::prefill).bits;
      const float b = dot_w4a16(weights, row, token.data(), Order::decode).bits;
      if (columns == 512) {
        EXPECT_EQ(a, b);
      }
      different += a != b;
    }
  }
  EXPECT_GT(different, 0);
}

// Bits within the derived bound, for K with a short first sum, too.
TEST(Fp8Sums, AreWithinTheirBound) {
  Random random(11);
  for (const std::int64_t columns : {64, 128, 192, 2048}) {
    const Weights weights =
        verify::reference_of(verify::random_dense(random, 8, columns, record::DenseSource::e4m3));
    std::vector<E4m3> token;
    for (std::int64_t c = 0; c < columns; ++c)
      token.push_back(to_e4m3(static_cast<float>(random.normal() * 100.0)));
    for (std::int64_t row = 0; row < 8; ++row) {
      const Dot dot = dot_w8a8(weights, row, token.data());
      EXPECT_LE(std::abs(dot.bits - dot.value), dot.bound) << columns;
      EXPECT_LE(dot.bound, 0.05 * dot.magnitude) << columns;
    }
  }
}

// The table of docs/models.md: what sums of 128 columns cost beside one long sum in the tensor core, and
// beside rounding the activations, which both do.
TEST(Fp8Sums, OfOneHundredAndTwentyEightColumnsCostLittle) {
  constexpr int columns = 8192, rows = 60;
  Random random(13);
  double all = 0, rounding = 0, by_part = 0, in_one = 0;
  for (int row = 0; row < rows; ++row) {
    Weights weights;
    weights.rows = 1;
    weights.columns = columns;
    std::vector<E4m3> token;
    double exact = 0, largest = 0;
    std::vector<float> values;
    for (int c = 0; c < columns; ++c) {
      weights.values.push_back(to_bf16(to_float(to_e4m3(static_cast<float>(100 * random.normal())))));
      values.push_back(to_float(to_bf16(static_cast<float>(random.normal()))));
      largest = std::max(largest, std::abs(double{values.back()}));
      exact += double{to_float(weights.values.back())} * values.back();
    }
    const Fp8RowFactor factor = fp8_row_factor(static_cast<float>(largest));
    for (const float value : values) token.push_back(to_e4m3(value * factor.inverse));
    const Dot dot = dot_w8a8(weights, 0, token.data());
    float one = 0;
    for (int first = 0; first < columns; first += 32) {
      tensor_core::Operand a[32], b[32];
      for (int k = 0; k < 32; ++k) {
        a[k] = tensor_core::split_e4m3(
            to_e4m3(to_float(weights.values[static_cast<std::size_t>(first + k)])).bits);
        b[k] = tensor_core::split_e4m3(token[static_cast<std::size_t>(first + k)].bits);
      }
      one = tensor_core::fused_sum_fp8(one, a, b);
    }
    const auto square = [](double x) { return x * x; };
    all += square(exact);
    rounding += square(dot.value * factor.factor - exact);
    by_part += square((dot.bits - dot.value) * factor.factor);
    in_one += square((one - dot.value) * factor.factor);
  }
  EXPECT_NEAR(std::sqrt(rounding / all), 0.0265, 0.01);
  EXPECT_LT(std::sqrt(by_part / all), 0.0003);
  EXPECT_GT(std::sqrt(in_one / all), 0.001);
}

}  // namespace
}  // namespace fourfold::reference
