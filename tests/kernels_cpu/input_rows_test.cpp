#include "kernels/cpu/input_rows.h"

#include <cstring>
#include <limits>

#include "base/bf16.h"
#include "tests/kernels_cpu/support.h"

namespace fourfold::cpu {
namespace {

constexpr Nvfp4InputScale kScale{0x1p-7f, 0x1p7f};

std::vector<std::uint8_t> made(InputForm form, const std::vector<float>& x) {
  std::vector<std::uint8_t> row(
      static_cast<std::size_t>(row_bytes(form, static_cast<std::int64_t>(x.size()))));
  make_input_row(form, x.data(), static_cast<std::int64_t>(x.size()), kScale, row.data());
  return row;
}

// The numbers a row stands for.
std::vector<double> read_back(InputForm form, const std::vector<std::uint8_t>& row, std::size_t count) {
  std::vector<double> values;
  const int planes = plane_count(form);
  for (std::size_t i = 0; i < count; ++i) {
    if (form == InputForm::bf16_tiles) {
      Bf16 x;
      std::memcpy(&x.bits, row.data() + 2 * i, 2);
      values.push_back(to_float(x));
      continue;
    }
    if (planes == 0) {
      float x;
      std::memcpy(&x, row.data() + 4 * i, 4);
      values.push_back(x);
      continue;
    }
    const std::uint8_t* block = row.data() + i / 16 * static_cast<std::size_t>(block_bytes(planes));
    BlockTail tail;
    std::memcpy(&tail, block + 16 * planes, sizeof tail);
    double integer = 0;
    for (int plane = 0; plane < planes; ++plane)
      integer = 256 * integer + static_cast<std::int8_t>(block[16 * plane + static_cast<int>(i % 16)]);
    // The scale is made for doubled weights whose scales lack 2^8; in one plane inputs are doubled as well.
    values.push_back(integer * tail.scale * 0x1p-8 * 2 * (planes == 1 ? kScale.scale : 1));
  }
  return values;
}

// Blocks of very different sizes.
std::vector<float> mixed(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> x = normals(count, seed);
  for (std::int64_t i = 0; i < count; i += 16) {
    const double size = std::ldexp(1.0, static_cast<int>(random.below(60)) - 30);
    for (std::int64_t k = i; k < std::min(i + 16, count); ++k)
      x[static_cast<std::size_t>(k)] = static_cast<float>(x[static_cast<std::size_t>(k)] * size);
  }
  return x;
}

double largest_of_block(const std::vector<float>& x, std::size_t i) {
  double most = 0;
  for (std::size_t k = i / 16 * 16; k < std::min(i / 16 * 16 + 16, x.size()); ++k)
    most = std::max(most, std::abs(static_cast<double>(x[k])));
  return most;
}

TEST(InputRows, HoldWhatTheHeaderSays) {
  const std::vector<float> x = mixed(1000, 1);
  const auto two = read_back(InputForm::two_planes, made(InputForm::two_planes, x), x.size());
  const auto three = read_back(InputForm::three_planes, made(InputForm::three_planes, x), x.size());
  const auto floats = read_back(InputForm::floats, made(InputForm::floats, x), x.size());
  const auto rounded = read_back(InputForm::floats_bf16, made(InputForm::floats_bf16, x), x.size());
  const auto tiles = read_back(InputForm::bf16_tiles, made(InputForm::bf16_tiles, x), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double bf16 = to_float(to_bf16(x[i]));
    const double most = largest_of_block(x, i) * (1 + 0x1p-8);
    EXPECT_EQ(floats[i], static_cast<double>(x[i]));
    EXPECT_EQ(rounded[i], bf16);
    EXPECT_EQ(tiles[i], bf16);
    if (std::abs(bf16) >= most / 128 && std::abs(bf16) < most * 0.99) {
      EXPECT_EQ(two[i], bf16) << i;
    }
    EXPECT_LE(std::abs(two[i] - bf16), most * 0x1p-15) << i;
    EXPECT_LE(std::abs(three[i] - static_cast<double>(x[i])), most * 0x1p-22) << i;
  }
}

TEST(InputRows, OnePlaneIsTheQuantiserOfBase) {
  const std::vector<float> x = mixed(512, 2);
  const auto ours = read_back(InputForm::one_plane, made(InputForm::one_plane, x), x.size());
  const auto theirs = dequantize(quantize_nvfp4_activations(x, 1, 512, kScale).view());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(ours[i], static_cast<double>(theirs[i])) << i;
}

TEST(InputRows, EveryInstructionSetMakesTheSameBytes) {
  std::vector<std::vector<float>> rows;
  for (std::uint64_t seed = 0; seed < 30; ++seed)
    rows.push_back(mixed(static_cast<std::int64_t>(1 + 37 * seed), seed));
  std::vector<float> odd = mixed(160, 99);
  odd[3] = std::numeric_limits<float>::infinity();
  odd[20] = std::numeric_limits<float>::quiet_NaN();
  odd[40] = std::numeric_limits<float>::max();
  for (int i = 64; i < 80; ++i) odd[static_cast<std::size_t>(i)] = 0;
  for (int i = 80; i < 96; ++i) odd[static_cast<std::size_t>(i)] = std::ldexp(1.0f, -140);
  odd[100] = -std::numeric_limits<float>::quiet_NaN();
  odd[101] = -std::numeric_limits<float>::infinity();
  rows.push_back(odd);
  std::vector<float> ties;  // of E2M1 and of bf16
  for (const float x : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 6.0f, 0.1f, 1.00390625f, 1.01171875f})
    ties.push_back(x), ties.push_back(-x);
  rows.push_back(ties);
  for (const InputForm form :
       {InputForm::floats, InputForm::floats_bf16, InputForm::one_plane, InputForm::one_plane_bf16,
        InputForm::two_planes, InputForm::three_planes, InputForm::bf16_tiles})
    for (const auto& x : rows) {
      const auto wanted = made(form, x);
      for (const Isa isa : available_isas()) {
        std::vector<std::uint8_t> row(wanted.size());
        make_input_row(kernels_of(isa), form, x.data(), static_cast<std::int64_t>(x.size()), kScale,
                       row.data());
        // NaN has many spellings; everything else has one.
        const auto ours = read_back(form, row, x.size());
        const auto theirs = read_back(form, wanted, x.size());
        bool has_nan = false;
        for (std::size_t i = 0; i < ours.size(); ++i) {
          has_nan = has_nan || std::isnan(ours[i]);
          ASSERT_TRUE(ours[i] == theirs[i] || (std::isnan(ours[i]) && std::isnan(theirs[i])))
              << isa_name(isa) << " form " << static_cast<int>(form) << " element " << i;
        }
        if (!has_nan) {
          EXPECT_EQ(row, wanted) << isa_name(isa) << " form " << static_cast<int>(form);
        }
      }
    }
}

TEST(InputRows, WhatIsNoNumberShowsInItsBlockAlone) {
  std::vector<float> x = normals(48, 5);
  x[17] = std::numeric_limits<float>::infinity();
  for (const InputForm form : {InputForm::two_planes, InputForm::three_planes}) {
    const auto values = read_back(form, made(form, x), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(values[i]), i / 16 == 1) << i;
  }
}

}  // namespace
}  // namespace fourfold::cpu
