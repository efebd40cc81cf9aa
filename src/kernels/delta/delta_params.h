// The arguments of the DeltaNet kernels.
#pragma once

#include <cstdint>
#include <string>

#include "base/format.h"
#include "kernels/delta/delta_state.h"
#include "kernels/step/step_tables.h"

namespace fourfold::delta {

// Names of the rows.
inline std::string decode_row(int head_dim) { return format("delta_decode {} f32", head_dim); }
inline std::string prompt_row(const char* kernel, int head_dim) {
  return format("{} {} bf16", kernel, head_dim);
}
inline constexpr const char* kPrepareKernel = "delta_prepare";
inline constexpr const char* kScanKernel = "delta_scan";
inline constexpr const char* kFinishKernel = "delta_finish";

// Where a layer's projections lie in a row: columns of q, k, v (one after another, conv_dim of them), of the
// gate z, of the logits of beta and of decay. Multiples of 16 bytes, the last two of an element.
struct MixedRows {
  const void* rows;     // [rows, stride]: f32 for generated rows, bf16 for prompts
  std::int32_t stride;  // in elements; the rows too start at multiples of 16 bytes
  std::int32_t qkv_column;
  std::int32_t z_column;
  std::int32_t beta_column;
  std::int32_t decay_column;
};

// A layer's own numbers, f32.
struct LayerWeights {
  const float* taps;             // [conv_dim, 4], the row itself last
  const float* a_log;            // [value heads]
  const float* dt_bias;          // [value heads]
  const float* norm_weight;      // [head_dim]
  float epsilon;                 // of the gated norm
  std::int32_t gate_is_sigmoid;  // else silu
};

// Generated rows. The sequences must have different slots and at most kBlockRows rows each. Grid:
// sequence_limit * value_heads blocks.
struct DecodeParams {
  const step::SequencePlace* sequences;  // [sequence_limit]
  std::int32_t sequence_limit;
  MixedRows mixed;  // f32
  LayerWeights weights;
  float* state;  // the layer's, from slot 0 on
  Layout layout;
  std::uint16_t* out;       // [rows, out_stride] bf16: value_dim columns
  std::int32_t out_stride;  // a multiple of 4
};

constexpr int decode_blocks(int sequence_limit, const Layout& layout) {
  return sequence_limit * layout.value_heads;
}

// ---- prompts ---- rows of a sequence, cut at multiples of 64 positions
struct alignas(16) ChunkPlace {
  std::int32_t first_row;
  std::int32_t row_count;  // 0: no chunk here
  std::int32_t position;   // of its first row; the chunk lies in one block
  std::int32_t state_slot;
  std::int32_t sequence_position;  // where this step's rows of the sequence begin
  std::int32_t sequence_end;       // and end
  std::int32_t reserved[2];
};
// A sequence's chunks, in order.
struct alignas(16) PromptPlace {
  std::int32_t first_chunk;
  std::int32_t chunk_count;  // 0: no sequence here
  std::int32_t reserved[2];
};

constexpr int prompt_chunks(int position, int row_count) {
  return row_count == 0 ? 0 : (position + row_count - 1) / kBlockRows - position / kBlockRows + 1;
}
// Chunk `index` of a sequence's rows.
constexpr ChunkPlace chunk_of(const step::SequencePlace& rows, int index) {
  const int end = rows.position + rows.row_count;
  const int block_begin = (rows.position / kBlockRows + index) * kBlockRows;
  const int from = index == 0 ? rows.position : block_begin;
  const int to = block_begin + kBlockRows < end ? block_begin + kBlockRows : end;
  return {rows.first_row + from - rows.position, to - from, from, rows.state_slot, rows.position, end, {}};
}

// What the prompt kernels hand each other: tiles with rows padded by 16 bytes, so that one bulk copy brings a
// tile and reading it meets no bank twice.
inline constexpr int kTilePad = 8;
inline constexpr int kBlockStride = kBlockRows + kTilePad;
struct PromptWorkspace {
  std::uint16_t* queries;      // bf16 [chunk][key head][64][head_dim + 8]
  std::uint16_t* key_columns;  // bf16 [chunk][key head][head_dim][64 + 8]
  std::uint16_t* from_state;   // bf16 [chunk][value head][64][head_dim + 8]: W
  std::uint16_t* from_values;  // bf16 [chunk][value head][head_dim][64]: U, transposed
  std::uint16_t* products;     // bf16 [chunk][value head][64][64 + 8]: decayed products of queries and keys
  float* decays;               // [chunk][value head][3][64]: G, e^G, e^(G of the last row - G)
  float* answers;              // [rows][value_dim], before the gated norm
};
constexpr std::int64_t row_tile(int head_dim) { return std::int64_t{kBlockRows} * (head_dim + kTilePad); }
constexpr std::int64_t column_tile(int head_dim) { return std::int64_t{head_dim} * kBlockStride; }
inline constexpr int kProductTile = kBlockRows * kBlockStride;
inline constexpr int kDecayTile = 3 * kBlockRows;

// The workspace in one piece of memory: its bytes, and its parts where it begins at a multiple of 128 bytes.
struct PromptSizes {
  std::int64_t chunks, rows;
  Layout layout;
  constexpr std::int64_t queries() const { return chunks * layout.key_heads * row_tile(layout.head_dim) * 2; }
  constexpr std::int64_t key_columns() const {
    return chunks * layout.key_heads * column_tile(layout.head_dim) * 2;
  }
  constexpr std::int64_t from_state() const {
    return chunks * layout.value_heads * row_tile(layout.head_dim) * 2;
  }
  constexpr std::int64_t from_values() const { return chunks * kBlockRows * layout.value_dim * 2; }
  constexpr std::int64_t products() const { return chunks * layout.value_heads * kProductTile * 2; }
  constexpr std::int64_t decays() const { return chunks * layout.value_heads * kDecayTile * 4; }
  constexpr std::int64_t answers() const { return rows * layout.value_dim * 4; }
  constexpr std::int64_t bytes() const {
    return queries() + key_columns() + from_state() + from_values() + products() + decays() + answers();
  }
};
inline PromptWorkspace workspace_at(void* memory, const PromptSizes& sizes) {
  auto* at = static_cast<unsigned char*>(memory);
  const auto take = [&](std::int64_t bytes) {
    unsigned char* part = at;
    at += bytes;
    return part;
  };
  PromptWorkspace work{};
  work.queries = reinterpret_cast<std::uint16_t*>(take(sizes.queries()));
  work.key_columns = reinterpret_cast<std::uint16_t*>(take(sizes.key_columns()));
  work.from_state = reinterpret_cast<std::uint16_t*>(take(sizes.from_state()));
  work.from_values = reinterpret_cast<std::uint16_t*>(take(sizes.from_values()));
  work.products = reinterpret_cast<std::uint16_t*>(take(sizes.products()));
  work.decays = reinterpret_cast<float*>(take(sizes.decays()));
  work.answers = reinterpret_cast<float*>(take(sizes.answers()));
  return work;
}

// The arguments of all three prompt kernels. Sequences must have different slots.
struct PromptParams {
  const ChunkPlace* chunks;    // [chunk_limit]
  const PromptPlace* prompts;  // [prompt_limit]
  std::int32_t chunk_limit;
  std::int32_t prompt_limit;
  MixedRows mixed;  // bf16
  LayerWeights weights;
  float* state;
  Layout layout;
  PromptWorkspace work;
  std::uint16_t* out;
  std::int32_t out_stride;
};
constexpr int prepare_blocks(int chunk_limit, const Layout& layout) { return chunk_limit * layout.key_heads; }
// A block to 32 values of a head.
constexpr int scan_blocks(int prompt_limit, const Layout& layout) {
  return prompt_limit * layout.value_dim / 32;
}
// The state keeps the rows of the block a sequence ends in and of the one before it, and three inputs of the
// convolution before them: of so many chunks.
inline constexpr int kKeptChunks = 3;
constexpr int finish_blocks(int chunk_limit, int prompt_limit, const Layout& layout) {
  return chunk_limit * layout.value_heads + kKeptChunks * prompt_limit * layout.key_heads;
}

// From this position on.
constexpr int rows_kept_from(int end) { return end < kRowsKept ? 0 : (end / kBlockRows - 1) * kBlockRows; }

}  // namespace fourfold::delta
