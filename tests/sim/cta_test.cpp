// The numeric members of SimCta against independent arithmetic.
#include "kernels/device/sim/cta.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "sim/dice.h"
#include "support.h"

namespace fourfold::sim {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A kernel may use whatever the GPU's machine offers; the simulator must offer it, too.
TEST(SimCta, HasEveryMemberOfTheGpuMachine) {
  const std::string folder = FOURFOLD_SOURCE_DIR "/src/kernels/device/";
  const std::string simulator = text_of(folder + "sim/cta.h");
  std::istringstream gpu(text_of(folder + "cuda/cta.h"));
  int members = 0;
  for (std::string line; std::getline(gpu, line);) {
    const auto mark = line.find("__device__ ");
    const auto open = line.find('(', mark);
    if (mark == std::string::npos || open == std::string::npos) continue;
    // The word before the first parenthesis is the member's name.
    const auto before = line.find_last_of(" *&", open);
    const std::string name = line.substr(before + 1, open - before - 1);
    EXPECT_NE(simulator.find(" " + name + "("), std::string::npos) << name;
    ++members;
  }
  EXPECT_GT(members, 50);
}

TEST(SimCta, FmaRoundsOnce) {
  EXPECT_EQ(SimCta::fma(1.0f + 0x1p-23f, 1.0f + 0x1p-23f, -1.0f), 0x1p-22f + 0x1p-46f);
  EXPECT_EQ(SimCta::mul(1.0f + 0x1p-23f, 1.0f + 0x1p-23f), 1.0f + 0x1p-22f);
  EXPECT_EQ(SimCta::add(1.0f, 0x1p-24f), 1.0f);
  EXPECT_EQ(SimCta::reciprocal(3.0f), 1.0f / 3.0f);
  EXPECT_EQ(SimCta::reciprocal(0.0f), kInf);
}

TEST(SimCta, ThereIsOneNan) {
  EXPECT_EQ(bits_of(SimCta::add(kInf, -kInf)), 0x7FFFFFFFu);
  EXPECT_EQ(bits_of(SimCta::mul(kInf, 0.0f)), 0x7FFFFFFFu);
  EXPECT_EQ(bits_of(SimCta::fma(float_of(0xFFC12345u), 1.0f, 1.0f)), 0x7FFFFFFFu);
  EXPECT_EQ(bits_of(SimCta::abs(float_of(0xFFC12345u))), 0x7FFFFFFFu);
  EXPECT_EQ(SimCta::abs(-0.0f), 0.0f);
  EXPECT_FALSE(std::signbit(SimCta::abs(-0.0f)));
}

TEST(SimCta, MaxPrefersNumbersAndPlusZero) {
  EXPECT_EQ(SimCta::max(1.0f, 2.0f), 2.0f);
  EXPECT_EQ(SimCta::max(-1.0f, -2.0f), -1.0f);
  EXPECT_EQ(SimCta::max(kNan, 2.0f), 2.0f);
  EXPECT_EQ(SimCta::max(2.0f, kNan), 2.0f);
  EXPECT_EQ(bits_of(SimCta::max(kNan, kNan)), 0x7FFFFFFFu);
  EXPECT_FALSE(std::signbit(SimCta::max(-0.0f, 0.0f)));
  EXPECT_FALSE(std::signbit(SimCta::max(0.0f, -0.0f)));
  EXPECT_TRUE(std::signbit(SimCta::max(-0.0f, -0.0f)));
}

TEST(SimCta, MinPrefersNumbersAndMinusZero) {
  EXPECT_EQ(SimCta::min(1.0f, 2.0f), 1.0f);
  EXPECT_EQ(SimCta::min(-1.0f, -2.0f), -2.0f);
  EXPECT_EQ(SimCta::min(kNan, 2.0f), 2.0f);
  EXPECT_EQ(SimCta::min(2.0f, kNan), 2.0f);
  EXPECT_EQ(bits_of(SimCta::min(kNan, kNan)), 0x7FFFFFFFu);
  EXPECT_TRUE(std::signbit(SimCta::min(-0.0f, 0.0f)));
  EXPECT_TRUE(std::signbit(SimCta::min(0.0f, -0.0f)));
  EXPECT_FALSE(std::signbit(SimCta::min(0.0f, 0.0f)));
}

TEST(SimCta, PoisonIsRefused) {
  const float poison = float_of(0x7FBADBADu), quiet = float_of(0xFFFADBADu);
  for (const float value : {poison, quiet}) {
    EXPECT_THROW(SimCta::fma(value, 1.0f, 1.0f), Fault);
    EXPECT_THROW(SimCta::mul(1.0f, value), Fault);
    EXPECT_THROW(SimCta::max(1.0f, value), Fault);
    EXPECT_THROW(SimCta::pack_bf16(value, 0.0f), Fault);
  }
  const Fault fault = expect_fault(FaultKind::early_accumulator, [&] { SimCta::add(poison, 0.0f); });
  EXPECT_EQ(fault.place().file, "cta_test.cpp");
}

// The nearest bf16 by search among the two neighbours, ties to even: slow, obvious.
std::uint32_t nearest_bf16(double value) {
  if (value != value) return 0x7FFFu;
  const std::uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  const double magnitude = std::fabs(value);
  const auto at = [](std::uint32_t code) {
    return code >= 0x7F80u ? 0x1p128 : static_cast<double>(float_of(code << 16));
  };
  std::uint32_t low = 0, high = 0x7F80u;  // largest code not above
  if (magnitude >= 0x1p128) return sign | 0x7F80u;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (at(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - at(low), above = at(high) - magnitude;
  const bool up = above < below || (above == below && (low & 1u));
  return sign | (up ? high : low);
}

TEST(SimCta, PackAndMulBf16RoundToNearestEven) {
  EXPECT_EQ(SimCta::pack_bf16(1.0f, -2.0f), 0xC0003F80u);
  EXPECT_EQ(SimCta::pack_bf16(kNan, kInf), 0x7F807FFFu);
  EXPECT_EQ(SimCta::mul_bf16x2(0x7F80u, 0x0000u),
            0x7FFFu);  // infinity times zero; the high half is 0 times 0
  Dice random(3);
  for (int i = 0; i < 200000; ++i) {
    std::uint32_t a = random.next(), b = random.next();
    if (i % 4 == 0)
      b = (b & 0x807F807Fu) | ((127u - (a >> 7 & 0x7Fu)) & 0xFFu) << 7;  // near the subnormals' edge
    if (i % 4 == 1) a &= 0x80FF80FFu;
    const float x = float_of(random.next());
    const std::uint32_t packed = SimCta::pack_bf16(x, float_of(a));
    ASSERT_EQ(packed & 0xFFFFu, nearest_bf16(x));
    ASSERT_EQ(packed >> 16, nearest_bf16(float_of(a)));
    const std::uint32_t product = SimCta::mul_bf16x2(a, b);
    ASSERT_EQ(product & 0xFFFFu, nearest_bf16(static_cast<double>(float_of(a << 16)) * float_of(b << 16)))
        << a << " " << b;
    ASSERT_EQ(product >> 16,
              nearest_bf16(static_cast<double>(float_of(a & 0xFFFF0000u)) * float_of(b & 0xFFFF0000u)));
  }
}

TEST(SimCta, MovesBits) {
  EXPECT_EQ(SimCta::twice_low(0x12345678u), 0x56785678u);
  EXPECT_EQ(SimCta::twice_high(0x12345678u), 0x12341234u);
  EXPECT_EQ(SimCta::byte_permute(0x33221100u, 0x77665544u, 0x3210u), 0x33221100u);
  EXPECT_EQ(SimCta::byte_permute(0x33221100u, 0x77665544u, 0x0475u), 0x00447755u);
  EXPECT_EQ(SimCta::rotate_left(0x80000001u, 1), 3u);
  EXPECT_EQ(SimCta::rotate_left(0x80000001u, 32), 0x80000001u);
  EXPECT_EQ(SimCta::count_ones(0xF0F0u), 8);
  EXPECT_EQ(SimCta::lowest_bit(0x50u), 4);
}

}  // namespace
}  // namespace fourfold::sim
