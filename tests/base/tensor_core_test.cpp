#include "base/tensor_core.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/e4m3.h"

namespace fourfold::tensor_core {
namespace {

TEST(TensorCore, SumsExactlyWhenNothingIsTruncated) {
  Operand a[16], b[16];
  for (int k = 0; k < 16; ++k) {
    a[k] = split_bf16(0x3F80);  // 1
    b[k] = split_bf16(0x4000);  // 2
  }
  EXPECT_EQ(fused_sum_16(1.0f, a, b), 33.0f);
}

TEST(TensorCore, TruncatesTowardZeroNotToNearest) {
  Operand a[16]{}, b[16]{};
  for (int k = 0; k < 16; ++k) a[k] = b[k] = split_bf16(0);
  a[0] = split_bf16(0x3F80);
  b[0] = split_bf16(0x3380);  // 2^-24: half an ulp of 1, and more than half with what follows
  a[1] = split_bf16(0x3F80);
  b[1] = split_bf16(0x3300);  // 2^-25
  EXPECT_EQ(fused_sum_16(1.0f, a, b), 1.0f);
  EXPECT_EQ(fused_sum_16(-1.0f, a, b), -(1.0f - std::ldexp(1.0f, -23)));
}

TEST(TensorCore, DropsBitsBelow25PlacesOfTheLargest) {
  Operand a[16]{}, b[16]{};
  for (int k = 0; k < 16; ++k) a[k] = b[k] = split_bf16(0);
  a[0] = split_bf16(0x3F80);
  b[0] = split_bf16(0x3280);  // 2^-26: gone when C is 1
  EXPECT_EQ(fused_sum_16(1.0f, a, b), 1.0f);
  EXPECT_EQ(fused_sum_16(0.0f, a, b), std::ldexp(1.0f, -26));
}

TEST(TensorCore, SplitsE4m3) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const E4m3 code{static_cast<std::uint8_t>(bits)};
    if (is_nan(code)) continue;
    const Operand operand = split_e4m3(code.bits);
    EXPECT_EQ(std::ldexp(static_cast<float>(operand.magnitude), operand.exponent - 3), to_float(code))
        << bits;
  }
}

// FP8 sums keep thirteen bits behind the leading one of the largest addend, and of the sum.
TEST(TensorCore, Fp8SumsAreShort) {
  Operand a[32]{}, b[32]{};
  for (int k = 0; k < 32; ++k) a[k] = b[k] = split_e4m3(0);
  a[0] = b[0] = split_e4m3(0x38);  // 1
  EXPECT_EQ(fused_sum_fp8(0.0f, a, b), 1.0f);
  const float last = std::ldexp(1.0f, -13);
  EXPECT_EQ(fused_sum_fp8(last, a, b), 1.0f + last);
  EXPECT_EQ(fused_sum_fp8(last / 2, a, b), 1.0f);
  EXPECT_EQ(fused_sum_fp8(-last / 2, a, b), 1.0f);                   // cut before it is added: toward zero
  EXPECT_EQ(fused_sum_fp8(1.0f + 3 * last, a, b), 2.0f + 2 * last);  // the sum has an exponent more
  // Products of subnormals count from the exponent of the smallest normal number, 2^-12.
  a[0] = b[0] = split_e4m3(0x01);  // 2^-9
  EXPECT_EQ(fused_sum_fp8(0.0f, a, b), std::ldexp(1.0f, -18));
  a[1] = split_e4m3(0x7E), b[1] = split_e4m3(0x7E);  // 448 * 448
  EXPECT_EQ(fused_sum_fp8(0.0f, a, b), 448.0f * 448.0f);
  b[1] = split_e4m3(0xFE);
  EXPECT_EQ(fused_sum_fp8(448.0f * 448.0f, a, b), 0.0f);
}

// Those of mma keep as many as bf16's, and all that f32 has.
TEST(TensorCore, Fp8SumsOfMmaAreLong) {
  Operand a[32]{}, b[32]{};
  for (int k = 0; k < 32; ++k) a[k] = b[k] = split_e4m3(0);
  a[0] = b[0] = split_e4m3(0x38);  // 1
  const auto sum = [&](float c) { return fused_sum_fp8(c, a, b, kMmaFp8Bits); };
  EXPECT_EQ(sum(0x1p-23f), 1.0f + 0x1p-23f);
  EXPECT_EQ(sum(0x1p-24f), 1.0f);              // the rounding to f32
  EXPECT_EQ(sum(-0x1p-25f), 1.0f - 0x1p-24f);  // kept, and rounded toward zero
  EXPECT_EQ(sum(-0x1p-26f), 1.0f);             // cut before it is added
}

// The whole of a product's sum: exact where nothing is cut.
TEST(TensorCore, Fp8SumsOfThirtyTwoProducts) {
  Operand a[32], b[32];
  float exact = 0;
  for (int k = 0; k < 32; ++k) {
    a[k] = split_e4m3(to_e4m3(static_cast<float>(k % 8 + 1)).bits);
    b[k] = split_e4m3(to_e4m3(k % 3 == 0 ? -2.0f : 1.0f).bits);
    exact += static_cast<float>(k % 8 + 1) * (k % 3 == 0 ? -2.0f : 1.0f);
  }
  EXPECT_EQ(fused_sum_fp8(5.0f, a, b), exact + 5.0f);
}

TEST(TensorCore, RoundsSubnormalsAndZero) {
  EXPECT_EQ(round_toward_zero(3, -150), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(round_toward_zero(-3, -150), -std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(round_toward_zero(1, -151), 0.0f);
  EXPECT_FALSE(std::signbit(round_toward_zero(0, 5)));
}

TEST(TensorCore, FusesFourScaledBlocks) {
  // 4 blocks of 16 products 6 * 6, scales 448 * 448: the largest sum the format can make.
  std::int32_t sums[4], exponents[4], products[4];
  const ScaleParts scale = split_ue4m3(0x7E);
  EXPECT_EQ(scale.significand, 14);
  EXPECT_EQ(scale.exponent, 8);
  for (int b = 0; b < 4; ++b) {
    sums[b] = 4 * 16 * 36;
    exponents[b] = 2 * scale.exponent;
    products[b] = scale.significand * scale.significand;
  }
  EXPECT_EQ(fused_sum_fp4(0.0f, sums, exponents, products, 6, 4), 4.0f * 16 * 36 * 448 * 448);
}

}  // namespace
}  // namespace fourfold::tensor_core
