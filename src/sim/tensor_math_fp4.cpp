// FP4 with block scales: integer block sums, then the fused sum of the scaled blocks and C, eight columns at
// a time where no block is truncated, by base/tensor_core.h elsewhere.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/tensor_core.h"
#include "sim/tensor_math.h"

namespace fourfold::sim {
namespace {

typedef std::int16_t Shorts __attribute__((vector_size(16)));

// Doubled E2M1 values are whole numbers. One lookup decodes a byte: the low nibble's value in the low half.
constexpr std::int16_t kDoubledE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr std::array<std::array<std::int16_t, 2>, 256> kPairs = [] {
  std::array<std::array<std::int16_t, 2>, 256> pairs{};
  for (unsigned byte = 0; byte < 256; ++byte)
    pairs[byte] = {kDoubledE2m1[byte & 15u], kDoubledE2m1[byte >> 4]};
  return pairs;
}();

struct Tile {
  alignas(16) std::int16_t a[16][64];  // [row][k], doubled
  alignas(16) std::int16_t b[64][8];   // [k][column], doubled
  float c[16][8];
};

void gather(const Fp4Lane* const (&lanes)[32], Tile& tile) {
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane >> 2, t = lane & 3;
    for (int i = 0; i < 4; ++i) {
      tile.c[output_row(lane, i)][output_column(lane, i)] = lanes[lane]->d[i];
      std::int16_t* const k8 = &tile.a[g + 8 * (i & 1)][32 * (i >> 1) + 8 * t];
      for (int byte = 0; byte < 4; ++byte)
        std::memcpy(k8 + 2 * byte, kPairs[lanes[lane]->a[i] >> 8 * byte & 255u].data(), 4);
    }
    for (int i = 0; i < 2; ++i)
      for (int byte = 0; byte < 4; ++byte) {
        const auto& pair = kPairs[lanes[lane]->b[i] >> 8 * byte & 255u];
        tile.b[32 * i + 8 * t + 2 * byte][g] = pair[0];
        tile.b[32 * i + 8 * t + 2 * byte + 1][g] = pair[1];
      }
  }
}

// The scales of 16 rows or 8 columns, [block][row or column].
template <int Count>
struct Scales {
  tensor_core::ScaleParts part[4][Count];
  alignas(64) double value[4][Count];
  alignas(16) std::int16_t exponent[4][Count];
  bool nan[Count];
};

template <bool Mx, int Count>
void split_scales(std::uint32_t word, int at, Scales<Count>& scales) {
  scales.nan[at] = false;
  for (int b = 0; b < (Mx ? 2 : 4); ++b) {
    const std::uint32_t byte = word >> 8 * b & 255u;
    const tensor_core::ScaleParts part = Mx ? tensor_core::split_ue8m0(byte) : tensor_core::split_ue4m3(byte);
    scales.part[b][at] = part;
    scales.exponent[b][at] = static_cast<std::int16_t>(part.exponent);
    // significand * 2^(exponent - 3), or 2^exponent
    scales.value[b][at] =
        part.significand *
        std::bit_cast<double>(static_cast<std::uint64_t>(1023 + part.exponent - (Mx ? 0 : 3)) << 52);
    scales.nan[at] = scales.nan[at] || (Mx ? byte == 255u : (byte & 127u) == 127u);
  }
}

// One row, eight columns. False, and nothing changed, where a block would be truncated or the result is very
// small.
template <bool Mx>
bool fuse_row(const Shorts (&sums)[4], const Scales<16>& row_scales, int row, const Scales<8>& column_scales,
              float (&c)[8]) {
  constexpr int kBlocks = Mx ? 2 : 4;
  constexpr std::int16_t kSpread =
      Mx ? 33 : 27;  // 35 places, less 2 of the sums and the scales' fraction bits
  Shorts largest, smallest{};
  for (int n = 0; n < 8; ++n) {
    const int biased = static_cast<int>(std::bit_cast<std::uint32_t>(c[n]) >> 23 & 255u);
    largest[n] = static_cast<std::int16_t>((biased ? biased : 1) - 127);
  }
  double total[8] = {};
  for (int b = 0; b < kBlocks; ++b) {
    Shorts exponent;
    std::memcpy(&exponent, column_scales.exponent[b], sizeof exponent);
    exponent += row_scales.exponent[b][row];
    const Shorts larger = exponent > largest;
    largest = (exponent & larger) | (largest & ~larger);
    // A block that is zero cannot be truncated; a zero E4M3 scale has an exponent of -126.
    constexpr std::int16_t kZeroScale = Mx ? -1000 : -100;
    const Shorts counts = (sums[b] != 0) & (exponent > kZeroScale);
    const Shorts lower = (exponent < smallest) & counts;
    smallest = b == 0 ? (exponent & counts) | (~counts & 1000) : (exponent & lower) | (smallest & ~lower);
    std::int16_t sum[8];
    std::memcpy(sum, &sums[b], sizeof sum);
    const double row_scale = row_scales.value[b][row] * 0.25;
    for (int n = 0; n < 8; ++n) total[n] += sum[n] * (column_scales.value[b][n] * row_scale);
  }
  std::uint64_t bad[2];
  const Shorts refuse = ((largest - smallest) > kSpread) | (largest < -80);
  std::memcpy(bad, &refuse, sizeof bad);
  if (bad[0] | bad[1]) return false;
  std::int16_t power[8];
  std::memcpy(power, &largest, sizeof power);
  for (int n = 0; n < 8; ++n) {
    // C is truncated 35 places below the largest exponent, its own last bit lies 23 below its own.
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(c[n]);
    const int biased = static_cast<int>(bits >> 23 & 255u);
    const int drop = power[n] - 12 - ((biased ? biased : 1) - 127);
    const std::uint32_t kept = drop <= 0 ? bits : drop >= 24 ? 0u : bits & (0xFFFFFFFFu << drop);
    const double sum = total[n] + static_cast<double>(std::bit_cast<float>(kept));
    // Cutting the bits an f32 has no room for rounds toward zero.
    c[n] = static_cast<float>(
        std::bit_cast<double>(std::bit_cast<std::uint64_t>(sum) & ~std::uint64_t{0x1FFFFFFF}));
  }
  return true;
}

template <bool Mx>
float fuse_one(const Shorts (&sums)[4], const Scales<16>& row_scales, int row, const Scales<8>& column_scales,
               int n, float c) {
  constexpr int kBlocks = Mx ? 2 : 4;
  if (row_scales.nan[row] || column_scales.nan[n] || std::isnan(c)) return std::bit_cast<float>(0x7FFFFFFFu);
  if (std::isinf(c)) return c;  // finite products cannot bring an infinity back
  std::int32_t sum[4], exponent[4], product[4];
  for (int b = 0; b < kBlocks; ++b) {
    const tensor_core::ScaleParts &x = row_scales.part[b][row], &y = column_scales.part[b][n];
    sum[b] = sums[b][n];
    exponent[b] = x.exponent + y.exponent;
    product[b] = x.significand * y.significand;
  }
  return tensor_core::fused_sum_fp4(c, sum, exponent, product, Mx ? 0 : 6, kBlocks);
}

template <bool Mx>
void multiply_fp4(const Fp4Lane* const (&lanes)[32], int thread_a, int thread_b) {
  constexpr int kBlocks = Mx ? 2 : 4, kSpan = 64 / kBlocks;
  Tile tile;
  gather(lanes, tile);
  Scales<16> row_scales;
  Scales<8> column_scales;
  bool columns_nan = false;
  for (int row = 0; row < 16; ++row)
    split_scales<Mx>(lanes[(row & 7) * 4 + 2 * thread_a + (row >> 3)]->scale_a, row, row_scales);
  for (int n = 0; n < 8; ++n) {
    split_scales<Mx>(lanes[n * 4 + thread_b]->scale_b, n, column_scales);
    columns_nan = columns_nan || column_scales.nan[n];
  }
  for (int row = 0; row < 16; ++row) {
    // Exact sums of 16 or 32 products, times 4: at most 32 * 144, which fits 16 bits.
    Shorts sums[4]{};
    for (int b = 0; b < kBlocks; ++b)
      for (int k = b * kSpan; k < (b + 1) * kSpan; ++k) {
        Shorts column;
        std::memcpy(&column, tile.b[k], sizeof column);
        sums[b] += column * tile.a[row][k];
      }
    bool finite = !columns_nan && !row_scales.nan[row];
    for (const float value : tile.c[row]) finite = finite && std::isfinite(value);
    if (finite && fuse_row<Mx>(sums, row_scales, row, column_scales, tile.c[row])) continue;
    for (int n = 0; n < 8; ++n)
      tile.c[row][n] = fuse_one<Mx>(sums, row_scales, row, column_scales, n, tile.c[row][n]);
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) lanes[lane]->d[i] = tile.c[output_row(lane, i)][output_column(lane, i)];
}

}  // namespace

void multiply_nvfp4(const Fp4Lane* const (&lanes)[32], int thread_a, int thread_b) {
  multiply_fp4<false>(lanes, thread_a, thread_b);
}
void multiply_mxfp4(const Fp4Lane* const (&lanes)[32], int thread_a, int thread_b) {
  multiply_fp4<true>(lanes, thread_a, thread_b);
}

}  // namespace fourfold::sim
