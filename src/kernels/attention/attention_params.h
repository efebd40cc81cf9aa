// The arguments, grids and workspace of the attention kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/format.h"
#include "kernels/attention/splits.h"
#include "kernels/device/types.h"
#include "kernels/step/step_tables.h"

namespace fourfold::attention {

// Names of the rows: `kv` is the cached number's, `from` the projection's, "f32" or "bf16".
// is_biased: with code for biases and for norms over all heads of a row; without them the other rows run.
inline std::string prepare_row(int head_dim, std::string_view kv, std::string_view from,
                               bool is_biased = false) {
  return format("prepare {} {} from {}{}", head_dim, kv, from, is_biased ? " biased" : "");
}
inline std::string squares_row(std::string_view from) { return format("row_squares from {}", from); }
// is_windowed: with code for a window and for sinks; where a layer has neither, the other rows run.
inline std::string attend_row(int head_dim, std::string_view kv, int tile, bool is_windowed = false) {
  return format("attend {} {} x{}{}", head_dim, kv, tile, is_windowed ? " window" : "");
}
inline std::string prompt_row(int head_dim, std::string_view kv, bool wgmma, bool is_windowed = false) {
  return format("attend_prompt {} {} {}{}", head_dim, kv, wgmma ? "wgmma" : "mma",
                is_windowed ? " window" : "");
}
inline std::string combine_row(int head_dim, bool is_windowed = false) {
  return format("combine splits {}{}", head_dim, is_windowed ? " window" : "");
}

// The cache of one layer: [page][kv_head] pages of 64 positions, laid out as page_layout.h says.
struct PrepareParams {
  step::Tables tables;
  const void* projection;  // [row_limit, projection_stride] f32 or bf16: query (and gate), key, value columns
  std::int64_t projection_stride;  // elements; this and every column below a multiple of 8
  std::int32_t query_column;
  std::int32_t head_stride;  // columns from one query head to the next: head_dim, or twice it with a gate
  std::int32_t key_column;
  std::int32_t value_column;
  std::int32_t heads;
  std::int32_t kv_heads;
  const float* query_weight;  // [head_dim], the factor itself (1 + w where the model says so); null: no norm
  const float* key_weight;
  float epsilon;
  // From here to value_bias: rows with is_biased alone.
  // The norm is over all heads of a row together: their squares as row_squares left them, a quad for each of
  // `square_parts` ranks. The weights are then of whole rows, [heads][head_dim]. Null: each head alone.
  const device::F32x4* squares;
  std::int32_t square_parts;
  float per_query_column;  // 1 / columns of a whole row of queries, of all ranks
  float per_key_column;
  const float* query_bias;    // [heads][head_dim], added before anything else; null: none. Not with a gate
  const float* key_bias;      // [kv_heads][head_dim]
  const float* value_bias;    // [kv_heads][head_dim]
  std::int32_t rotary_pairs;  // of a head, a multiple of head_dim / 32; 0: no rotation
  const float* rotary;        // [position][pair][cos, sin]
  std::uint16_t* query;       // [row_limit, heads, head_dim] bf16: normed and rotated
  unsigned char* keys;
  unsigned char* values;
};

// A row's queries and keys each as one run of columns, every column and stride a multiple of 8.
struct SquaresParams {
  step::Tables tables;
  const void* projection;  // as prepare's, without gates
  std::int64_t projection_stride;
  std::int32_t query_column;
  std::int32_t query_columns;  // at most kSquaresColumns
  std::int32_t key_column;
  std::int32_t key_columns;
  device::F32x4* squares;  // [rows]: sum of the queries' squares, of the keys', two zeros
};

// Decode. A sequence's rows are its last positions, and their keys and values lie in the pages already.
struct AttendParams {
  step::Tables tables;
  const std::uint16_t* query;  // [row_limit, heads, head_dim]
  const unsigned char* keys;
  const unsigned char* values;
  float* partial;        // [slots][heads][head_dim]: sums of one row and split, not divided
  float* partial_scale;  // [slots][heads][2]: log2 of the weights' unit, and the sum of weights
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t heads_per_kv;
  float scale_log2;  // softmax scale * log2(e)
  // Windowed rows alone: a row sees its own position and the window - 1 before it; 0: all.
  std::int32_t window;
};

struct CombineParams {
  step::Tables tables;
  const float* partial;
  const float* partial_scale;
  const float* gate;         // f32 rows: the gate's column of head 0; null: no gate
  std::int64_t gate_stride;  // columns of a row
  std::int32_t gate_head_stride;
  std::int32_t heads;
  std::uint16_t* out;  // [row_limit, heads, head_dim] bf16
  // Windowed rows alone.
  std::int32_t window;  // as attend's
  const float* sinks;   // [heads]: a score that joins each softmax without a value; null: none
};

// Prompts: rows of a sequence are cut into tiles at absolute multiples of 64 positions.
struct PromptParams {
  step::Tables tables;
  const std::uint16_t* query;  // [row_limit, heads, head_dim]
  const unsigned char* keys;
  const unsigned char* values;
  const std::uint16_t* gate;  // bf16 rows: the gate's column of head 0; null: no gate
  std::int64_t gate_stride;
  std::int32_t gate_head_stride;
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t heads_per_kv;
  float scale_log2;
  std::uint16_t* out;  // [row_limit, heads, head_dim] bf16
  // Windowed rows alone.
  std::int32_t window;
  const float* sinks;
};

// ---- grids ----
inline constexpr int kPrepareWarps = 4;
inline constexpr int kSquaresWarps = 8;    // a block a row
inline constexpr int kSquaresPieces = 64;  // of 256 columns
inline constexpr int kSquaresColumns = 256 * kSquaresPieces;
// A warp a query head, a key head and a value head of every row.
constexpr std::int64_t prepare_blocks(std::int64_t row_limit, int heads, int kv_heads) {
  return (row_limit * (heads + 2 * kv_heads) + kPrepareWarps - 1) / kPrepareWarps;
}
// Units of work of decode: a split of a sequence, a KV head, `tile` of its query vectors (16, 32 or 64, the
// row's). Any grid does all of them; best is one block a unit, at most a few times what the GPU holds.
constexpr std::int64_t attend_units(int last_position, int row_count, int heads, int kv_heads, int tile,
                                    int window = 0) {
  return static_cast<std::int64_t>(split_count(last_position - row_count + 1, last_position, window)) *
         kv_heads * ((row_count * (heads / kv_heads) + tile - 1) / tile);
}
constexpr std::int64_t combine_blocks(std::int64_t row_limit, int heads) { return row_limit * heads; }
// Tiles that `row_count` rows from `first_position` on touch.
constexpr int prompt_tiles(int first_position, int row_count) {
  return row_count == 0
             ? 0
             : (first_position + row_count - 1) / step::kPageTokens - first_position / step::kPageTokens + 1;
}
// Units of work of prompts: a tile and `heads_at_once` heads of a KV head (the row's). Best is one block a
// unit.
constexpr std::int64_t prompt_units(int first_position, int row_count, int heads, int kv_heads,
                                    int heads_at_once) {
  return static_cast<std::int64_t>(prompt_tiles(first_position, row_count)) * kv_heads *
         ((heads / kv_heads + heads_at_once - 1) / heads_at_once);
}

// ---- workspace of decode ---- a slot for every row and split; sequences follow each other without gaps
constexpr std::int64_t slots_of(int last_position, int row_count, int window = 0) {
  return static_cast<std::int64_t>(split_count(last_position - row_count + 1, last_position, window)) *
         row_count;
}
constexpr std::size_t partial_bytes(std::int64_t slots, int heads, int head_dim) {
  return static_cast<std::size_t>(slots) * heads * head_dim * sizeof(float);
}
constexpr std::size_t partial_scale_bytes(std::int64_t slots, int heads) {
  return static_cast<std::size_t>(slots) * heads * 2 * sizeof(float);
}

}  // namespace fourfold::attention
