// The arithmetic of the tensor cores for whole fragments: what 32 lanes hold between them in, 32 lanes' sums
// out. Bit for bit the model of base/tensor_core.h; operands that are not finite give the IEEE answer (NaN as
// 0x7FFFFFFF).
#pragma once

#include <cstdint>

#include "base/tensor_core.h"

namespace fourfold::sim {

// A (16 rows x 16) and B (16 x 8 columns) of one bf16 step, taken apart once for all 128 outputs.
// Elements are zero, ordinary (near enough to 1 for the fast sums), tiny (their value is kept as 0: the fast
// sums are used only where they would be truncated away) or large (no fast sums).
struct Bf16Rows {
  alignas(16) std::uint16_t bits[16][16];  // [row][k]
  alignas(16) float value[16][16];
  alignas(16) std::int16_t exponent[16][16];  // of the leading 1
  bool large[16], tiny[16];                   // whether a row has such elements
};
struct Bf16Columns {
  alignas(16) std::uint16_t bits[16][8];  // [k][column]
  alignas(16) float value[16][8];
  alignas(16) std::int16_t exponent[16][8];
  bool large, tiny;
};

// Register fragments of mma.m16n8k16: a[lane] has four registers, b[lane] two.
void gather_rows(const std::uint32_t* const (&a)[32], Bf16Rows& rows);
void gather_columns(const std::uint32_t (&b)[32][2], Bf16Columns& columns);
// For wgmma: columns whose `bits` were read from memory.
void prepare(Bf16Columns& columns);

// c = rows x columns + c.
void multiply(const Bf16Rows& rows, const Bf16Columns& columns, float (&c)[16][8]);

// The same of one E4M3 step: 16 rows x 32 and 32 x 8 columns, [row][k] and [column][k].
struct Fp8Rows {
  std::uint8_t bits[16][32];
};
struct Fp8Columns {
  std::uint8_t bits[8][32];
};
void gather_rows(const std::uint32_t* const (&a)[32], Fp8Rows& rows);
void gather_columns(const std::uint32_t (&b)[32][2], Fp8Columns& columns);
// fraction_bits: what a sum keeps (base/tensor_core.h).
void multiply(const Fp8Rows& rows, const Fp8Columns& columns, float (&c)[16][8],
              int fraction_bits = tensor_core::kWgmmaFp8Bits);

// Where output register i (0..3) of a lane lies in a 16 x 8 tile.
constexpr int output_row(int lane, int i) { return (lane >> 2) + 8 * (i >> 1); }
constexpr int output_column(int lane, int i) { return 2 * (lane & 3) + (i & 1); }

// One lane's part of mma.m16n8k64 with block scales.
struct Fp4Lane {
  float* d;  // [4]
  const std::uint32_t* a;
  std::uint32_t b[2];
  std::uint32_t scale_a;
  std::uint32_t scale_b;
};
void multiply_nvfp4(const Fp4Lane* const (&lanes)[32], int thread_a, int thread_b);
void multiply_mxfp4(const Fp4Lane* const (&lanes)[32], int thread_a, int thread_b);

}  // namespace fourfold::sim
