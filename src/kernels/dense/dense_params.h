// The arguments of the dense decode kernel and of the row norm.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/format.h"
#include "kernels/moe/tables.h"
#include "kernels/record/record.h"

namespace fourfold::dense {

inline constexpr const char* kNormRow = "norm_rows";  // the row's name
// The kernel that adds up segments and norms the result (dense_sum_norm.h).
inline std::string sum_norm_row(std::string_view format_name) {
  return format("dense_sum_norm {}", format_name);
}
// The row of dense_few like this one that has the code for a bias.
inline std::string biased_row(std::string_view row) { return format("{} biased", row); }

inline constexpr int kTokens = 8;  // of a launch, at most: the tensor core's N
inline constexpr int kSegmentRecords = moe::kSegmentColumns / record::kColumns;

// What becomes of the rows of the plain strips.
enum class PlainOp : std::int32_t {
  store_f32,
  add_f32,  // out = out + dot, one addition: the residual stream
  store_bf16,
};

// out = W x for up to eight tokens. The first `plain_strips` strips are in plain row order and go to `out` by
// `op`; the rest, if any, are gate and up rows in gate_up order and become silu(gate) * up in `gate_up_out`.
// Everything but `tokens` and `out` is constant: it is read before the predecessor has finished.
struct DenseParams {
  const unsigned char* weights;  // records [strips][records]
  const void* tokens;            // bf16 rows, or f32 rows of the residual stream for the rows that norm them
  const float* norm_weight;      // [64 * records], 1 + w already; only rows that norm read it
  // Factors of single rows, null: 1. The plain rows; then, for the others, all gate rows and all up rows.
  const float* row_scale;
  void* out;                   // [token_count, out_stride]; not the rows the norm reads
  std::uint16_t* gate_up_out;  // [token_count, gate_up_stride] bf16
  // What the norm rows made of the tokens, for kernels that read it later: [token_count, 64 * records] bf16.
  std::uint16_t* normed_out;
  // add_f32: a token's products are multiplied with the sigmoid of its gate; null: they are not.
  const float* token_gate;
  float scale;  // global scale of the plain rows
  float scale_gate;
  float scale_up;
  float epsilon;  // of the norm
  PlainOp op;
  std::int32_t strips;        // weight rows / 32
  std::int32_t plain_strips;  // <= strips
  std::int32_t records;       // K / 64
  std::int32_t token_count;   // 1..kTokens
  std::int32_t token_stride;  // elements; a multiple of 8
  std::int32_t out_stride;    // elements; a multiple of 2
  std::int32_t gate_up_stride;
  std::int32_t token_gate_stride;
  // [32 * plain_strips], added to the plain rows' results in f32 (store_f32, add_f32); null: none. Read by
  // dense_sum and dense_sum_norm and by rows of biased_row().
  const float* bias;
};

// ---- norm_rows ----

enum class NormAdd : std::int32_t { none, f32, bf16 };

// x = x + y where there is a y; out = bf16(x * rsqrt(mean(x^2) + epsilon) * weight). A block a row.
struct NormParams {
  float* x;             // [rows, columns]; written only where y is added
  const void* y;        // [rows, columns]
  const float* weight;  // [columns], 1 + w already
  std::uint16_t* out;   // [rows, columns] bf16
  float epsilon;
  NormAdd add;
  std::int32_t columns;  // a multiple of 64, at most kNormColumnsMax
};

// ---- rows for the tiled kernels of prompts ----

// A row as its matrices read it; what is null is not wanted.
struct PromptRows {
  std::uint16_t* plain;   // [rows, columns] bf16
  std::uint16_t* staged;  // [rows, columns] bf16 in staged order (moe/epilogue.h)
  std::uint8_t* codes;    // [rows, columns] E4M3 in the order of record::fp8_token_byte()
  float* factor;          // [rows] what its codes are multiplied with
  float inverse;          // not 0: of the matrices' own input scale, the same for every row; then no factor
};

// norm_prompt: as norm_rows, into all the forms that are wanted.
struct NormPromptParams {
  NormParams norm;  // `out` is not used
  PromptRows rows;
};

// A row as matrices with FP4 inputs of one scale read it.
struct Fp4Rows {
  unsigned char* records;  // token records [rows / 8][columns / 64], the last group whole; null: not wanted
  float inverse;           // of the input scale
};
// So many input scales of one norm's readers: a layer's experts have one, its shared expert another. Rows for
// more are quantised behind it.
inline constexpr int kFp4Sets = 2;

// norm_fp4: as norm_prompt, and token records. A block a row, and for each that the last eight lack.
struct NormFp4Params {
  NormParams norm;  // `out` is not used
  PromptRows rows;  // plain and staged alone
  Fp4Rows fp4[kFp4Sets];
  std::int32_t row_count;
};
constexpr int norm_fp4_blocks(int rows) { return moe::round_up(rows, record::kTokens); }

// quantize_rows: bf16 rows, plain or staged, to codes. A warp a row.
struct QuantizeRowsParams {
  const std::uint16_t* rows;
  std::uint8_t* codes;
  float* factor;
  float inverse;  // as above
  std::int32_t row_count;
  std::int32_t columns;  // a multiple of 64
  std::int32_t is_staged;
};

inline constexpr const char* kNormPromptRow = "norm_prompt";
inline constexpr const char* kNormFp4Row = "norm_fp4";
inline constexpr const char* kQuantizeRowsRow = "quantize_rows";
inline constexpr int kQuantizeWarps = 8;
constexpr int quantize_blocks(int rows) { return (rows + kQuantizeWarps - 1) / kQuantizeWarps; }

}  // namespace fourfold::dense
