// E4M3 of wgmma and mma: the sums of base/tensor_core.h, from operands taken apart by a table.
#include <array>
#include <bit>
#include <cstring>

#include "sim/tensor_math.h"

namespace fourfold::sim {
namespace {

using tensor_core::Operand;

constexpr std::array<Operand, 256> kOperands = [] {
  std::array<Operand, 256> operands{};
  for (unsigned bits = 0; bits < 256; ++bits)
    operands[bits] = tensor_core::split_e4m3(static_cast<std::uint8_t>(bits));
  return operands;
}();

bool is_nan(std::uint8_t bits) { return (bits & 0x7F) == 0x7F; }

}  // namespace

void gather_rows(const std::uint32_t* const (&a)[32], Fp8Rows& rows) {
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = (lane >> 2) + 8 * (i & 1), k = 4 * (lane & 3) + 16 * (i >> 1);
      std::memcpy(&rows.bits[row][k], &a[lane][i], 4);  // k .. k + 3, low byte first
    }
}

void gather_columns(const std::uint32_t (&b)[32][2], Fp8Columns& columns) {
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 2; ++i)
      std::memcpy(&columns.bits[lane >> 2][4 * (lane & 3) + 16 * i], &b[lane][i], 4);
}

void multiply(const Fp8Rows& rows, const Fp8Columns& columns, float (&c)[16][8], int fraction_bits) {
  Operand b[8][32];
  bool column_nan[8] = {};
  for (int n = 0; n < 8; ++n)
    for (int k = 0; k < 32; ++k) {
      b[n][k] = kOperands[columns.bits[n][k]];
      column_nan[n] = column_nan[n] || is_nan(columns.bits[n][k]);
    }
  for (int row = 0; row < 16; ++row) {
    Operand a[32];
    bool row_nan = false;
    for (int k = 0; k < 32; ++k) {
      a[k] = kOperands[rows.bits[row][k]];
      row_nan = row_nan || is_nan(rows.bits[row][k]);
    }
    for (int n = 0; n < 8; ++n) {
      float& sum = c[row][n];
      if (row_nan || column_nan[n] || sum != sum)
        sum = std::bit_cast<float>(0x7FFFFFFFu);
      else if (sum - sum == 0.0f)  // an infinity stays one: products are finite
        sum = tensor_core::fused_sum_fp8(sum, a, b[n], fraction_bits);
    }
  }
}

}  // namespace fourfold::sim
