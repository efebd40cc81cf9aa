// The arguments of the small kernels around a model's layers.
#pragma once

#include <cstdint>

namespace fourfold::step {

// Names of the rows.
inline constexpr const char* kSelectNorm = "select_norm";
inline constexpr const char* kAddGated = "add_gated";
inline constexpr const char* kAddBias = "add_bias";

// Rows picked out of x, normed, and put where they are wanted: the last norm before the head, what a draft
// pass reads, what it leaves. A block a row.
struct SelectNormParams {
  const float* x;               // [.., columns]
  const std::int32_t* in_rows;  // row i of the result is row in_rows[i] of x; null: row i
  const float* weight;          // [columns], 1 + w already
  float epsilon;
  std::int32_t columns;          // a multiple of 64, at most dense::kNormColumnsMax
  std::uint16_t* out;            // bf16, row i at i * out_stride; null: not wanted
  std::int64_t out_stride;       // in elements, a multiple of 8
  float* out_f32;                // [.., columns], row i at out_rows[i]; null: not wanted
  const std::int32_t* out_rows;  // null: row i
};

// x[row] += sigmoid(gate[row]) * y[row]: the shared expert of rows too many for one fused kernel.
struct AddGatedParams {
  float* x;           // [rows, columns]
  const void* y;      // [rows, columns], f32 or bf16
  const float* gate;  // one logit a row, gate_stride apart; null: factor 1
  std::int32_t gate_stride;
  std::int32_t rows;
  std::int32_t columns;  // a multiple of 8
  std::int32_t y_is_f32;
};

// x[row] += bias: a matrix's bias of prompt rows, whose tiled kernels add none.
struct AddBiasParams {
  float* x;             // [rows, stride]
  const float* bias;    // [columns]
  std::int64_t stride;  // elements, a multiple of 4
  std::int32_t rows;
  std::int32_t columns;  // a multiple of 8
};

inline constexpr int kAddThreads = 256;
// Of both, eight columns a thread.
constexpr int add_blocks(int rows, int columns) {
  const long long threads = static_cast<long long>(rows) * (columns / 8);
  return static_cast<int>((threads + kAddThreads - 1) / kAddThreads);
}

}  // namespace fourfold::step
