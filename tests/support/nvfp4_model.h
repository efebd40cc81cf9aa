// The double-precision model both NVFP4 quantisers are judged by, and matrices of wild ranges to try.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/nvfp4.h"
#include "base/random.h"

namespace fourfold::test_support {

// Blocks of every magnitude an f32 has, within `span` powers of two of each other; some zero, some subnormal.
inline std::vector<float> wild_matrix(Random& random, std::int64_t count, int lowest, int span) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t begin = 0; begin < values.size(); begin += kNvfp4BlockColumns) {
    const int exponent = lowest + static_cast<int>(random.below(static_cast<std::uint64_t>(span)));
    const bool zero = random.below(10) == 0;
    for (std::size_t i = begin; i < begin + kNvfp4BlockColumns; ++i)
      values[i] = zero ? 0.0f : static_cast<float>(std::ldexp(random.normal(), exponent));
  }
  return values;
}

// Half the distance between the two codes around `quotient`; beyond 6 what saturation loses.
inline double allowed_error(double quotient) {
  const double size = std::fabs(quotient);
  if (size > 6) return std::max(1.0, size - 6);
  return size < 2 ? 0.25 : size < 4 ? 0.5 : 1.0;
}

// Each element lies within half a step of its block. The quantiser works in f32: its quotient carries two
// roundings, and one more in 2^-149 when code unit times scale is subnormal.
inline void expect_half_step(const std::vector<float>& values, const Nvfp4Matrix& matrix,
                             std::uint64_t seed) {
  const Nvfp4View view = matrix.view();
  const std::vector<float> decoded = dequantize(view);
  for (std::int64_t i = 0; i < view.rows * view.columns; ++i) {
    const E4m3 scale = view.scale(i / view.columns, i % view.columns / kNvfp4BlockColumns);
    const E2m1 code = view.code(i / view.columns, i % view.columns);
    const double unit = static_cast<double>(to_float(scale)) * static_cast<double>(view.global_scale);
    const double value = values[static_cast<std::size_t>(i)];
    const double exact = to_float(code) * unit;
    ASSERT_EQ(decoded[static_cast<std::size_t>(i)], static_cast<float>(exact)) << "rounded once";
    if (unit == 0.0) {
      ASSERT_EQ(code.bits, 0) << "seed " << seed;
      continue;
    }
    const double rounding = std::fabs(value / unit) * (0x1p-22 + 0x1p-149 / unit);
    ASSERT_LE(std::fabs(exact - value) / unit, allowed_error(value / unit) + rounding)
        << "seed " << seed << " at " << i << ": " << value << " became " << exact;
  }
}

}  // namespace fourfold::test_support
