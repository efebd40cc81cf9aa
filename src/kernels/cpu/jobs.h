// What the kernels are called with: plain structs of pointers and sizes. One instance of work for one thread;
// who does which part is the caller's business and cannot be seen in the results.
#pragma once

#include <cstdint>

namespace fourfold::cpu {

// out[t * out_stride + row] = (row of the matrix) . (token t), for the rows of panels begin to end.
struct MultiplyJob {
  const std::uint8_t* panels = nullptr;  // packed_matrix.h
  std::int64_t panel_bytes = 0;
  std::int64_t panel_begin = 0;
  std::int64_t panel_end = 0;
  std::int64_t rows = 0;         // of the whole matrix: the last panel may be filled up
  std::int64_t block_count = 0;  // padded columns / 16
  float scale = 1;               // FP4: of the matrix, times the input's where that has one

  const float* segment_scales = nullptr;  // E4M3: [panel][segment][16]
  std::int64_t segment_blocks = 0;        // blocks of 16 columns a segment has

  const std::uint8_t* const* tokens = nullptr;  // input_rows.h, one pointer a token
  std::int64_t token_count = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

// A softmax on its way: the largest score so far, the sum of exp(score - largest), and the weighted values.
struct Softmax {
  float* largest = nullptr;  // [queries]
  float* total = nullptr;    // [queries]
  float* sums = nullptr;     // [queries, padded_value_dim]
};

// Attention of a block of queries that share one key head, over one run of positions. A query is a head of a
// row; the rows are neighbours of one sequence, and each sees one position more than the one before.
struct AttendJob {
  const float* queries = nullptr;  // [row_count, head_count, padded_dim], put together by arrange_queries
  std::int64_t row_count = 0;
  std::int64_t head_count = 0;
  std::int64_t padded_dim = 0;        // of a head's key, a multiple of 16
  std::int64_t padded_value_dim = 0;  // of its value, likewise
  float scale = 0;
  bool is_bf16 = true;
  const void* keys = nullptr;              // kv_panels.h: page 0's panels of this head
  const void* values = nullptr;            // null: a value is the first dimensions of its key
  const std::int64_t* key_rows = nullptr;  // then, by dimension: key_row(), kv_panels.h
  std::int64_t key_page_stride = 0;        // in elements
  std::int64_t value_page_stride = 0;
  const std::int32_t* pages = nullptr;
  std::int64_t page_tokens = 0;
  std::int64_t position_begin = 0;
  // What the first row sees ends before it; each row after it sees one position more, but no row more than
  // kAttendPositions from position_begin.
  std::int64_t position_end = 0;
  // With a window: the first position that the first row sees, which may be below 0; each row after it begins
  // one later. What lies before weighs exactly nothing, so where a run begins cannot be seen.
  std::int64_t seen_begin = -(std::int64_t{1} << 62);

  float* scores = nullptr;   // memory to work in: [queries, kAttendPositions]
  float* weights = nullptr;  // as much again
  float* panel = nullptr;    // and attend_panel_floats(padded_dim)
  Softmax run;               // the run's own
};
inline constexpr std::int64_t kAttendPositions = 256;
constexpr std::int64_t attend_panel_floats(std::int64_t padded_dim) {
  return 16 * (padded_dim > kAttendPositions ? padded_dim : kAttendPositions);
}

// One key head of one row of the delta rule: reference/delta.h has the formulas.
struct DeltaJob {
  std::int64_t key_dim = 0;  // of one head
  std::int64_t value_dim = 0;
  std::int64_t value_head_count = 0;  // that share the key head

  const float* query = nullptr;  // [key_dim], normalised
  const float* key = nullptr;
  const float* values = nullptr;  // [value_head_count, value_dim]
  const float* beta = nullptr;    // [value_head_count], after the sigmoid
  const float* anchor = nullptr;  // [value_head_count, key_dim, value_dim]

  // The rows of the block before this one: row j at + j * stride.
  std::int64_t row_count = 0;
  const float* keys = nullptr;
  std::int64_t key_stride = 0;
  const float* deltas = nullptr;  // value head h at + h * value_dim
  std::int64_t delta_stride = 0;
  const float* decay = nullptr;  // [value_head_count, 64]: e^(G_i - G_j) for each j before, e^(G_i) as [63]

  float* delta = nullptr;  // [value_head_count, value_dim]: d_i
  float* out = nullptr;    // [value_head_count, value_dim]: o_i
};

// S = e^(G_last) S0 + sum_j e^(G_last - G_j) k_j d_j^T, for one value head.
struct MoveAnchorJob {
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  const float* from = nullptr;  // [key_dim, value_dim]
  float* to = nullptr;
  float from_factor = 0;
  std::int64_t row_count = 0;
  const float* keys = nullptr;
  std::int64_t key_stride = 0;
  const float* deltas = nullptr;
  std::int64_t delta_stride = 0;
  const float* factors = nullptr;  // [row_count]
};

}  // namespace fourfold::cpu
