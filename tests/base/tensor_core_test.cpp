#include "base/tensor_core.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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
