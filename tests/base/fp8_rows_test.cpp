#include "base/fp8_rows.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fourfold {
namespace {

TEST(Fp8Rows, TheLargestNumberBecomesACodeAbove224) {
  for (int exponent = -90; exponent < 127; ++exponent)
    for (int fraction = 0; fraction < 128; ++fraction) {
      const float largest = std::ldexp(1.0f + static_cast<float>(fraction) / 128, exponent);
      const Fp8RowFactor factor = fp8_row_factor(largest);
      const float code = largest * factor.inverse;
      ASSERT_GT(code, 224.0f) << largest;
      ASSERT_LE(code, 448.0f) << largest;
      ASSERT_EQ(factor.factor * factor.inverse, 1.0f);
      int power = 0;
      ASSERT_EQ(std::frexp(factor.factor, &power), 0.5f) << "a power of two";
    }
}

TEST(Fp8Rows, ZeroTinyAndInfiniteRowsHaveAFactor) {
  EXPECT_EQ(fp8_row_factor(0.0f).factor, 1.0f);
  for (const float largest : {0x1p-149f, 0x1p-126f, 0x1p-93f}) {
    const Fp8RowFactor factor = fp8_row_factor(largest);
    EXPECT_EQ(factor.factor, 0x1p-100f);
    EXPECT_EQ(factor.factor * factor.inverse, 1.0f);
    EXPECT_LE(largest * factor.inverse, 448.0f);
  }
  EXPECT_EQ(to_e4m3(INFINITY * fp8_row_factor(INFINITY).inverse).bits, 0x7E);
}

TEST(Fp8Rows, AnInputScaleIsDividedBy) {
  EXPECT_EQ(fp8_input_factor(0.25f).inverse, 4.0f);
  EXPECT_EQ(fp8_input_factor(0.25f).factor, 0.25f);
}

}  // namespace
}  // namespace fourfold
