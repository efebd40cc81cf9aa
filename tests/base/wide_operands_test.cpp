#include "base/wide_operands.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace fourfold::tensor_core {
namespace {

std::uint16_t finite(std::uint32_t sign_and_fraction, std::uint32_t biased) {
  return static_cast<std::uint16_t>((sign_and_fraction & 0x807Fu) | biased << 7);
}

// What operands look like: near 1, anything finite, subnormal and smallest, many zeros, as FP4 weights are
// decoded (2^-62), the largest there are.
std::uint16_t random_bf16(Random& random, int range) {
  const auto bits = static_cast<std::uint32_t>(random.below(std::uint64_t{1} << 32));
  const auto below = [&](std::uint64_t count) { return static_cast<std::uint32_t>(random.below(count)); };
  switch (range) {
    case 0: return finite(bits, 120 + below(16));
    case 1: return finite(bits, below(255));
    case 2: return finite(bits, below(3));
    case 3: return below(2) ? static_cast<std::uint16_t>(bits & 0x8000u) : finite(bits, 110 + below(40));
    case 4: return finite(bits, 58 + below(10));
    default: return finite(bits, 250 + below(5));
  }
}

float random_c(Random& random, int range) {
  const auto bits = static_cast<std::uint32_t>(random.below(std::uint64_t{1} << 32));
  const std::uint64_t kind = random.below(4);
  if (kind == 0) return 0.0f;
  const auto biased = static_cast<std::uint32_t>(kind == 1    ? random.below(255)
                                                 : range == 0 ? 110 + random.below(40)
                                                 : range == 5 ? 254
                                                              : random.below(140));
  return std::bit_cast<float>((bits & 0x807FFFFFu) | biased << 23);
}

TEST(WideOperands, SumToTheBitsOfTheModel) {
  Random random(17);
  for (int range_a = 0; range_a < 6; ++range_a)
    for (int range_b = 0; range_b < 6; ++range_b)
      for (int round = 0; round < 3'000; ++round) {
        Operand a[16], b[16];
        WideOperands wide_a, wide_b;
        for (int k = 0; k < 16; ++k) {
          const std::uint16_t x = random_bf16(random, range_a), y = random_bf16(random, range_b);
          a[k] = split_bf16(x), b[k] = split_bf16(y);
          set_operand(wide_a, k, x), set_operand(wide_b, k, y);
        }
        const float c = random_c(random, range_a);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(fused_sum_16(c, wide_a, wide_b)),
                  std::bit_cast<std::uint32_t>(fused_sum_16(c, a, b)))
            << range_a << " " << range_b << " round " << round;
      }
}

TEST(WideOperands, NothingIsPlusZero) {
  WideOperands zero;
  for (int k = 0; k < 16; ++k) set_operand(zero, k, k % 2 != 0 ? std::uint16_t{0x8000} : std::uint16_t{0});
  EXPECT_EQ(std::bit_cast<std::uint32_t>(fused_sum_16(0.0f, zero, zero)), 0u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(fused_sum_16(-0.0f, zero, zero)), 0u);
  // Zero beside the largest number is still nothing.
  WideOperands large;
  for (int k = 0; k < 16; ++k) set_operand(large, k, 0x7F7F);
  EXPECT_EQ(fused_sum_16(0x1p-140f, zero, large), 0x1p-140f);
}

}  // namespace
}  // namespace fourfold::tensor_core
