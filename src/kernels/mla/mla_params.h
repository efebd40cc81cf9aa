// The arguments, names, grids and workspace of the kernels of latent attention. Where a batch's rows stand
// and how decode cuts a context is attention's (attention/splits.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/format.h"
#include "kernels/attention/attention_params.h"
#include "kernels/attention/splits.h"
#include "kernels/step/step_tables.h"

namespace fourfold::mla {

inline std::string attend_row(int latent, int tile) { return format("attend_latent {} x{}", latent, tile); }
inline std::string prompt_row(int latent, int tile, bool wgmma = false) {
  return format("attend_latent_prompt {} x{}{}", latent, tile, wgmma ? " wgmma" : "");
}
// `from`: the projection's element, "f32" (generated rows) or "bf16" (prompt rows).
inline std::string latent_rows_row(int latent, std::string_view from) {
  return format("latent_rows {} from {}", latent, from);
}
inline std::string turn_queries_row(std::string_view from) { return format("turn_queries from {}", from); }
inline std::string head_linear_row(bool transposed, std::string_view from, int tokens) {
  return format("head_linear {} from {} x{}", transposed ? "transposed" : "plain", from, tokens);
}
inline std::string absorb_row(int latent) { return format("absorb_queries {}", latent); }
inline std::string combine_expand_row(int latent) { return format("combine_expand {}", latent); }

// Before the queries are there: a projection's rows to the normed input of the query's second matrix, and to
// a row of the cache (the latent normed, the key turned).
struct LatentRowsParams {
  step::Tables tables;
  const void* projection;          // [row_limit, projection_stride] f32 or bf16
  std::int64_t projection_stride;  // elements; this, columns and widths below multiples of 8
  std::int32_t query_column;
  std::int32_t query_columns;  // 0: queries have no latent of their own
  const float* query_weight;
  float query_epsilon;
  std::uint16_t* query_latent;  // [row_limit, query_stride] bf16, zeros behind the columns
  std::int32_t query_stride;
  std::int32_t latent_column;
  std::int32_t latent_columns;  // at most the page's; zeros behind them
  const float* latent_weight;
  float latent_epsilon;
  std::int32_t key_column;
  std::int32_t rotary_pairs;  // 1 to 32; the key's columns behind them are zeros
  const float* rotary;        // [position][pair][cos, sin]
  unsigned char* pages;
};

// The turned part of every query head, behind its absorbed part.
struct TurnQueriesParams {
  step::Tables tables;
  const void* projection;
  std::int64_t projection_stride;
  std::int32_t column;  // of head 0; heads are 2 * rotary_pairs columns each
  std::int32_t heads;
  std::int32_t rotary_pairs;
  const float* rotary;
  std::uint16_t* query;         // [row_limit, heads, page latent + 64]
  std::int32_t latent_columns;  // zeros from here to the page's latent: the absorbed part is so wide
  std::int32_t page_latent;
};

// For each head a matrix of bf16 numbers: out[h] = W[h] in[h].
struct HeadLinearParams {
  const void* in;  // rows of f32 or bf16, rounded to bf16
  std::int64_t in_stride;
  std::int32_t in_head_stride;
  std::int32_t in_columns;      // of a head, a multiple of 8, as its first one is
  const std::uint16_t* weight;  // [heads][out][in]; transposed: [heads][in][out]
  std::int32_t weight_stride;   // from one row of the weight to the next, a multiple of 8
  std::int32_t heads;
  std::int32_t out_columns;  // of a head, a multiple of 16
  std::uint16_t* out;        // bf16
  std::int64_t out_stride;
  std::int32_t out_head_stride;  // a multiple of 8
  std::int32_t pad_columns;      // behind the last head: zeros, a multiple of 8
  std::int32_t row_count;
};

// All that attention reads of few generated rows, in one launch: the cache's half of latent_rows,
// turn_queries and the transposed head_linear need nothing of each other.
struct AbsorbParams {
  LatentRowsParams cache;
  TurnQueriesParams turn;
  HeadLinearParams absorb;
  std::int32_t cache_blocks;  // the grid's first; 0: the rows of the cache are written already
  std::int32_t turn_blocks;   // behind them
};

// What the splits of few rows left to the rows of the output matrix: combine and the plain head_linear.
struct CombineExpandParams {
  attention::CombineParams combine;  // without a gate; `out` is not used
  HeadLinearParams expand;           // of the input its columns alone: the rest is in `combine`
};

// One row of cache for all heads: [page] pages as latent_page.h has them. A query vector is a head of a row.
struct AttendParams {
  step::Tables tables;
  const std::uint16_t* query;  // [row_limit, heads, latent + rope] bf16
  const unsigned char* pages;
  std::int32_t heads;
  float scale_log2;  // softmax scale * log2(e)
  // A scale that grows: the one of position p is grown_scale[p / growth_positions] instead. 0: it does not.
  std::int32_t growth_positions;
  const float* grown_scale;
  // Decode: what a split of a row leaves, for attention/combine.h.
  float* partial;        // [slots][heads][latent]: sums, not divided
  float* partial_scale;  // [slots][heads][2]: log2 of the weights' unit, and the sum of weights
  // Prompts.
  std::uint16_t* out;  // [row_limit, heads, latent] bf16
};

// ---- query vectors of a block ----
// Two widths of one arithmetic: few vectors are not worth the registers of many.
constexpr int mma_tile(int vectors) { return vectors <= 16 ? 16 : 32; }
// A block of wgmma has 64 vectors for each set of 256 value columns its two warpgroups can sum up.
constexpr int wgmma_tile(int latent) { return latent > 256 ? 64 : 128; }

// ---- grids ---- any grid does all units; best is one block a unit, at most a few times what the GPU holds
constexpr std::int64_t vector_tiles(int row_count, int heads, int tile) {
  return (static_cast<std::int64_t>(row_count) * heads + tile - 1) / tile;
}
constexpr std::int64_t attend_units(int last_position, int row_count, int heads, int tile) {
  return attention::split_count(last_position) * vector_tiles(row_count, heads, tile);
}

inline constexpr int kLatentWarps = 4;   // of a block of the kernels that have a warp for each piece of work
inline constexpr int kHeadColumns = 64;  // of one head's result, a warp
constexpr std::int64_t warp_blocks(std::int64_t warps) { return (warps + kLatentWarps - 1) / kLatentWarps; }
// A warp for the query's latent and one for the cache's.
constexpr std::int64_t latent_rows_blocks(std::int64_t row_limit) { return warp_blocks(2 * row_limit); }
constexpr std::int64_t turn_queries_blocks(std::int64_t row_limit, int heads) {
  return warp_blocks(row_limit * heads);
}
// tokens: of a warp, the row's.
constexpr std::int64_t head_linear_blocks(int row_count, int heads, int out_columns, int tokens) {
  return warp_blocks(static_cast<std::int64_t>(heads) * ((out_columns + kHeadColumns - 1) / kHeadColumns) *
                     ((row_count + tokens - 1) / tokens));
}

inline constexpr int kAbsorbTokens = 16;  // rows of a warp of absorb_queries
constexpr std::int64_t absorb_blocks(const AbsorbParams& params) {
  return params.cache_blocks + params.turn_blocks +
         head_linear_blocks(params.absorb.row_count, params.absorb.heads, params.absorb.out_columns,
                            kAbsorbTokens);
}

inline constexpr int kExpandColumns = 64;  // of one head's result, a block of combine_expand: a warp eight
constexpr std::int64_t combine_expand_blocks(int row_count, int heads, int out_columns) {
  return static_cast<std::int64_t>(row_count) * heads * ((out_columns + kExpandColumns - 1) / kExpandColumns);
}
// Every row reads all weights, the second one and the others from L2: so much of that takes less time than
// the launch that is saved (docs/decisions/0047).
inline constexpr std::int64_t kRepeatedBytes = 4 << 20;
constexpr bool combine_expands(int row_count, int heads, int in_columns, int out_columns) {
  return (row_count - 1) * std::int64_t{2} * heads * in_columns * out_columns <= kRepeatedBytes;
}

}  // namespace fourfold::mla
