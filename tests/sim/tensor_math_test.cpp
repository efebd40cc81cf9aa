#include "sim/tensor_math.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/e4m3.h"
#include "base/tensor_core.h"
#include "sim/dice.h"
#include "support.h"

namespace fourfold::sim {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint16_t bf16(float value) {
  return static_cast<std::uint16_t>(bits_of(value) >> 16);
}  // exact values only

// What the ranges of operands look like: ordinary, anything finite, subnormal, many zeros, a few tiny ones
// among ordinary.
std::uint16_t random_bf16(Dice& random, int range) {
  const std::uint32_t bits = random.next() & 0x807Fu;
  switch (range) {
    case 0: return static_cast<std::uint16_t>(bits | (120 + random.below(16)) << 7);
    case 1: return static_cast<std::uint16_t>(bits | random.below(255) << 7);
    case 2: return static_cast<std::uint16_t>(bits | random.below(3) << 7);
    case 3:
      return static_cast<std::uint16_t>(random.below(2) ? bits & 0x8000u
                                                        : bits | (110 + random.below(40)) << 7);
    default:
      return static_cast<std::uint16_t>(bits | (random.below(6) ? 118 + random.below(16) : random.below(90))
                                                   << 7);
  }
}

float random_c(Dice& random, int range) {
  if (random.below(6) == 0) return 0.0f;
  const std::uint32_t bits = random.next() & 0x807FFFFFu;
  return std::bit_cast<float>(bits | (range == 0 || range >= 3 ? 105 + random.below(40) : random.below(255))
                                         << 23);
}

TEST(TensorMath, Bf16AgreesWithTheModelBitForBit) {
  Dice random(11);
  for (int range = 0; range < 5; ++range)
    for (int round = 0; round < 200; ++round) {
      std::uint16_t a[16][16], b[16][8];  // [row][k], [k][column]
      std::uint32_t registers[32][4], columns_b[32][2];
      const std::uint32_t* rows_a[32];
      for (auto& row : a)
        for (auto& x : row) x = random_bf16(random, range);
      for (auto& row : b)
        for (auto& x : row) x = random_bf16(random, range);
      for (int lane = 0; lane < 32; ++lane) {
        const int g = lane >> 2, t = lane & 3;
        for (int i = 0; i < 4; ++i) {
          const int row = g + 8 * (i & 1), k = 2 * t + 8 * (i >> 1);
          registers[lane][i] = a[row][k] | static_cast<std::uint32_t>(a[row][k + 1]) << 16;
        }
        for (int i = 0; i < 2; ++i)
          columns_b[lane][i] = b[2 * t + 8 * i][g] | static_cast<std::uint32_t>(b[2 * t + 8 * i + 1][g])
                                                         << 16;
        rows_a[lane] = registers[lane];
      }
      float c[16][8], want[16][8];
      for (int row = 0; row < 16; ++row)
        for (int n = 0; n < 8; ++n) {
          c[row][n] = random_c(random, range);
          tensor_core::Operand x[16], y[16];
          for (int k = 0; k < 16; ++k) {
            x[k] = tensor_core::split_bf16(a[row][k]);
            y[k] = tensor_core::split_bf16(b[k][n]);
          }
          want[row][n] = tensor_core::fused_sum_16(c[row][n], x, y);
        }
      Bf16Rows rows;
      Bf16Columns columns;
      gather_rows(rows_a, rows);
      gather_columns(columns_b, columns);
      with_every_width([&](int lanes) {
        float sums[16][8];
        std::memcpy(sums, c, sizeof sums);
        multiply(rows, columns, sums);
        ASSERT_EQ(std::memcmp(sums, want, sizeof sums), 0)
            << "range " << range << " round " << round << " lanes " << lanes;
      });
    }
}

// Small integers through the collective: the exact answer is known without any model.
TEST(TensorMath, MmaBf16MultipliesSmallIntegers) {
  Device device({.memory_bytes = 1 << 20});
  const auto a_at = [](int row, int k) { return static_cast<float>((row * 5 + k * 3) % 17 - 8); };
  const auto b_at = [](int k, int n) { return static_cast<float>((k * 7 + n * 2) % 13 - 6); };
  for (std::uint64_t seed = 0; seed < 30; ++seed)
    launch(device, config_of(64, 0, seed), [&](SimCta cta) {
      const int g = cta.lane() >> 2, t = cta.lane() & 3;
      const auto pair = [](float low, float high) {
        return bf16(low) | static_cast<std::uint32_t>(bf16(high)) << 16;
      };
      std::uint32_t a[4], b[2];
      for (int i = 0; i < 4; ++i) {
        const int row = g + 8 * (i & 1), k = 2 * t + 8 * (i >> 1);
        a[i] = pair(a_at(row, k), a_at(row, k + 1));
      }
      for (int i = 0; i < 2; ++i) b[i] = pair(b_at(2 * t + 8 * i, g), b_at(2 * t + 8 * i + 1, g));
      float d[4] = {1, 2, 3, 4};
      cta.mma_bf16(d, a, b[0], b[1]);
      for (int i = 0; i < 4; ++i) {
        const int row = g + 8 * (i >> 1), n = 2 * t + (i & 1);
        double want = i + 1;
        for (int k = 0; k < 16; ++k) want += static_cast<double>(a_at(row, k)) * b_at(k, n);
        EXPECT_EQ(d[i], want);
      }
    });
}

TEST(TensorMath, NonFiniteOperandsGiveTheIeeeAnswer) {
  Device device({.memory_bytes = 1 << 20});
  launch(device, config_of(32), [&](SimCta cta) {
    const bool first = cta.lane() == 0;  // row 0, k 0 and column 0, k 0
    std::uint32_t a[4] = {first ? 0x7F80u : 0u, 0, 0, 0};
    float d[4] = {1, 1, 1, 1};
    cta.mma_bf16(d, a, 0x3F80u, 0);  // every column has a 1 at k = 0, 2, 4, 6
    if (first) {
      EXPECT_EQ(d[0], std::numeric_limits<float>::infinity());
    }
    if (cta.lane() >= 4) {
      EXPECT_EQ(d[0], 1.0f);
    }
    float e[4] = {1, 1, 1, 1};
    cta.mma_bf16(e, a, 0, 0);  // infinity times zero
    if (first) {
      EXPECT_EQ(bits_of(e[0]), 0x7FFFFFFFu);
    }
    if (cta.lane() >= 4) {
      EXPECT_EQ(e[0], 1.0f);
    }
  });
}

constexpr int kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// One FP4 output from the lanes' registers, straight from the documented layout.
float fp4_output(const Fp4Lane (&lanes)[32], int row, int n, int thread_a, int thread_b, bool mx, float c) {
  const int blocks = mx ? 2 : 4;
  std::int32_t sum[4] = {}, exponent[4], product[4];
  for (int k = 0; k < 64; ++k) {
    const Fp4Lane& of_a = lanes[(row & 7) * 4 + k % 32 / 8];
    const Fp4Lane& of_b = lanes[n * 4 + k % 32 / 8];
    sum[k / (64 / blocks)] += kDoubled[of_a.a[(row >> 3) + 2 * (k / 32)] >> 4 * (k % 8) & 15u] *
                              kDoubled[of_b.b[k / 32] >> 4 * (k % 8) & 15u];
  }
  for (int b = 0; b < blocks; ++b) {
    const std::uint32_t byte_a = lanes[(row & 7) * 4 + 2 * thread_a + (row >> 3)].scale_a >> 8 * b & 255u;
    const std::uint32_t byte_b = lanes[n * 4 + thread_b].scale_b >> 8 * b & 255u;
    if (mx ? byte_a == 255 || byte_b == 255 : (byte_a & 127u) == 127 || (byte_b & 127u) == 127)
      return std::bit_cast<float>(0x7FFFFFFFu);
    const auto x = mx ? tensor_core::split_ue8m0(byte_a) : tensor_core::split_ue4m3(byte_a);
    const auto y = mx ? tensor_core::split_ue8m0(byte_b) : tensor_core::split_ue4m3(byte_b);
    exponent[b] = x.exponent + y.exponent;
    product[b] = x.significand * y.significand;
  }
  return tensor_core::fused_sum_fp4(c, sum, exponent, product, mx ? 0 : 6, blocks);
}

TEST(TensorMath, Fp4AgreesWithTheModelBitForBit) {
  Dice random(5);
  for (const bool mx : {false, true})
    for (int range = 0; range < 4; ++range)
      for (int round = 0; round < 200; ++round) {
        std::uint32_t a[32][4];
        float d[32][4], before[32][4];
        Fp4Lane lanes[32];
        const Fp4Lane* pointers[32];
        const auto scale = [&] {
          const std::uint32_t any = random.next();
          if (mx) return range == 3 ? any : 0x78787878u + (any & 0x0F0F0F0Fu);
          return range == 0 ? 0x38383838u + (any & 0x87878787u) : range == 2 ? any & 0x87878787u : any;
        };
        for (int lane = 0; lane < 32; ++lane) {
          for (auto& x : a[lane]) x = random.next();
          lanes[lane] = {d[lane], a[lane], {random.next(), random.next()}, scale(), scale()};
          pointers[lane] = &lanes[lane];
          for (int i = 0; i < 4; ++i) before[lane][i] = d[lane][i] = random_c(random, range);
        }
        const int thread_a = static_cast<int>(random.below(2)), thread_b = static_cast<int>(random.below(4));
        if (mx)
          multiply_mxfp4(pointers, thread_a, thread_b);
        else
          multiply_nvfp4(pointers, thread_a, thread_b);
        for (int lane = 0; lane < 32; ++lane)
          for (int i = 0; i < 4; ++i) {
            const float want = fp4_output(lanes, output_row(lane, i), output_column(lane, i), thread_a,
                                          thread_b, mx, before[lane][i]);
            ASSERT_EQ(bits_of(d[lane][i]), bits_of(want))
                << "mx " << mx << " range " << range << " round " << round;
          }
      }
}

TEST(TensorMath, Fp8IsTheSumOfTheModelAndKeepsNan) {
  Dice dice(7);
  for (int round = 0; round < 20; ++round) {
    std::uint32_t registers[32][4];
    const std::uint32_t* a[32];
    Fp8Columns columns;
    const auto code = [&] {
      const auto bits = static_cast<std::uint8_t>(dice.below(256));
      return static_cast<std::uint8_t>((bits & 0x7F) == 0x7F ? 0x38 : bits);
    };
    for (int lane = 0; lane < 32; ++lane) {
      a[lane] = registers[lane];
      for (std::uint32_t& word : registers[lane]) {
        word = 0;
        for (int byte = 0; byte < 4; ++byte) word |= std::uint32_t{code()} << (8 * byte);
      }
    }
    for (auto& column : columns.bits)
      for (std::uint8_t& bits : column) bits = code();
    if (round == 0) columns.bits[5][9] = 0xFF;
    float c[16][8];
    for (auto& row : c)
      for (float& value : row) value = static_cast<float>(dice.below(1000)) - 500.0f;
    Fp8Rows rows;
    gather_rows(a, rows);
    float d[16][8];
    std::memcpy(d, c, sizeof d);
    multiply(rows, columns, d);
    for (int row = 0; row < 16; ++row)
      for (int n = 0; n < 8; ++n) {
        tensor_core::Operand x[32], y[32];
        for (int k = 0; k < 32; ++k) {
          // Register i of lane (g, t): row g + 8 (i & 1), k = 16 (i >> 1) + 4t ..
          const int lane = 4 * (row % 8) + k % 16 / 4, i = 2 * (k / 16) + row / 8;
          x[k] = tensor_core::split_e4m3(static_cast<std::uint8_t>(registers[lane][i] >> (8 * (k % 4))));
          y[k] = tensor_core::split_e4m3(columns.bits[n][k]);
        }
        if (round == 0 && n == 5)
          EXPECT_EQ(bits_of(d[row][n]), 0x7FFFFFFFu);
        else
          EXPECT_EQ(bits_of(d[row][n]), bits_of(tensor_core::fused_sum_fp8(c[row][n], x, y)));
      }
  }
}

// Small integers through the collective: the exact answer is known without any model. One more that FP8 of
// wgmma would cut off.
TEST(TensorMath, MmaE4m3MultipliesSmallIntegers) {
  Device device({.memory_bytes = 1 << 20});
  const auto a_at = [](int row, int k) { return static_cast<float>((row * 5 + k * 3) % 17 - 8); };
  const auto b_at = [](int k, int n) { return static_cast<float>((k * 7 + n * 2) % 13 - 6); };
  for (std::uint64_t seed = 0; seed < 30; ++seed)
    launch(device, config_of(64, 0, seed), [&](SimCta cta) {
      const int g = cta.lane() >> 2, t = cta.lane() & 3;
      std::uint32_t a[4] = {}, b[2] = {};
      for (int i = 0; i < 4; ++i)
        for (int byte = 0; byte < 4; ++byte)
          a[i] |= std::uint32_t{to_e4m3(a_at(g + 8 * (i & 1), 4 * t + 16 * (i >> 1) + byte)).bits}
                  << (8 * byte);
      for (int i = 0; i < 2; ++i)
        for (int byte = 0; byte < 4; ++byte)
          b[i] |= std::uint32_t{to_e4m3(b_at(4 * t + 16 * i + byte, g)).bits} << (8 * byte);
      float d[4] = {0x1p18f + 1, 2, 3, 4};
      cta.mma_e4m3(d, a, b[0], b[1]);
      for (int i = 0; i < 4; ++i) {
        const int row = g + 8 * (i >> 1), n = 2 * t + (i & 1);
        double want = i == 0 ? 0x1p18 + 1 : i + 1;
        for (int k = 0; k < 32; ++k) want += static_cast<double>(a_at(row, k)) * b_at(k, n);
        EXPECT_EQ(d[i], want);
      }
    });
}

TEST(TensorMath, Fp4CollectivesUseTheirSelectors) {
  Device device({.memory_bytes = 1 << 20});
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    launch(device, config_of(32, 0, seed), [](SimCta cta) {
      const std::uint32_t ones[4] = {0x22222222u, 0x22222222u, 0x22222222u, 0x22222222u};  // 1.0 everywhere
      const int t = cta.lane() & 3;
      // Rows take 2.0 from the lanes of selector 1, columns 4.0 from lane 3 of the quad; elsewhere lies a
      // NaN.
      const std::uint32_t scale_a = t >= 2 ? 0x40404040u : 0x7F7F7F7Fu;
      const std::uint32_t scale_b = t == 3 ? 0xC8C8C8C8u : 0x7F7F7F7Fu;  // bit 7 is ignored
      float d[4] = {0, 0, 0, 0};
      cta.mma_nvfp4<1, 3>(d, ones, 0x22222222u, 0x22222222u, scale_a, scale_b);
      for (const float value : d) EXPECT_EQ(value, 64 * 2.0f * 4.0f);
      cta.mma_nvfp4<0, 3>(d, ones, 0x22222222u, 0x22222222u, scale_a, scale_b);
      for (const float value : d) EXPECT_EQ(bits_of(value), 0x7FFFFFFFu);
      float e[4] = {1, 1, 1, 1};
      cta.mma_mxfp4<0, 0>(e, ones, 0x22222222u, 0x22222222u, 0xFFFF8180u,
                          0xFFFF7F7Fu);  // 2 and 4, in two bytes
      for (const float value : e) EXPECT_EQ(value, 1 + 32 * 2.0f + 32 * 4.0f);
    });
}

}  // namespace
}  // namespace fourfold::sim
