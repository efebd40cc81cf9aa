// What a step writes: tables that describe its batch, activations, workspaces. One allocation each, made when
// a program is prepared; nothing is allocated in a step.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/load/device_layers.h"
#include "backend/cuda/step/row_group.h"
#include "kernels/delta/delta_params.h"
#include "kernels/dense/many_params.h"
#include "kernels/launch/arena.h"
#include "kernels/moe/tables.h"

namespace fourfold::backend::cuda {

// The batch's tables, filled on the host and sent in one copy, or two.
class BatchTables {
 public:
  BatchTables(kernels::Memory& memory, kernels::Arena& arena, const Program& program,
              const Capacity& capacity);
  ~BatchTables();
  BatchTables(const BatchTables&) = delete;
  BatchTables& operator=(const BatchTables&) = delete;

  // Rows [begin, begin + count) of the group, and their sequences' parts in them.
  void send(const RowGroup& group, int begin, int count);

  step::Tables tables() const;
  const std::int32_t* window_pages() const { return device<std::int32_t>(window_pages_at_); }
  int sequence_count() const { return sequence_count_; }
  int row_count() const { return row_count_; }
  int sequence_rows() const { return sequence_rows_; }  // of the sequence that has most
  int last_position() const { return last_position_; }  // of all rows
  const std::int32_t* tokens() const { return device<std::int32_t>(tokens_at_); }
  const std::int32_t* batch_rows() const { return device<std::int32_t>(batch_rows_at_); }
  const std::int32_t* hidden_rows() const { return device<std::int32_t>(hidden_rows_at_); }
  const std::int32_t* logits_rows() const { return device<std::int32_t>(logits_rows_at_); }
  // Prompts: the rows' blocks of 64 positions.
  const delta::ChunkPlace* chunks() const { return device<delta::ChunkPlace>(chunks_at_); }
  const delta::PromptPlace* prompts() const { return device<delta::PromptPlace>(prompts_at_); }
  int chunk_count() const { return chunk_count_; }
  // Prompts: the rows as tokens of one expert, `width` (a power of two from 8 to 256) a tile.
  struct Tiles {
    const moe::TokenTile* tiles;
    const std::int32_t* count;
  };
  Tiles tiles(int width) const;
  // Logits asked among the rows sent: their places in the batch's list.
  std::span<const std::int32_t> logits_places() const { return logits_places_; }

 private:
  static constexpr int kTileWidths = 6;  // 8 to 256
  void fill_prompts(const step::SequencePlace* sequences);
  template <class T>
  T* device(std::size_t at) const {
    return reinterpret_cast<T*>(device_ + at);
  }
  template <class T>
  T* host(std::size_t at) const {
    return reinterpret_cast<T*>(host_ + at);
  }

  kernels::Memory& memory_;
  std::size_t rows_at_ = 0, sequences_at_ = 0, tokens_at_ = 0, batch_rows_at_ = 0, hidden_rows_at_ = 0,
              logits_rows_at_ = 0, chunks_at_ = 0, prompts_at_ = 0, tiles_at_[kTileWidths] = {},
              tile_counts_at_ = 0, pages_at_ = 0, window_pages_at_ = 0, page_room_ = 0, bytes_ = 0;
  unsigned char* host_ = nullptr;
  unsigned char* device_ = nullptr;
  int row_count_ = 0;
  int sequence_count_ = 0;
  int sequence_rows_ = 0;
  int last_position_ = 0;
  int chunk_count_ = 0;
  std::vector<std::int32_t> logits_places_;
};

// The rows of a step as tokens of one expert, where their number is the host's: constant, whatever the batch.
// Generated rows, a piece of at most kManyTokens at a time, and rows that ask for logits.
struct RowTiles {
  static constexpr int kEights = dense::kManyTokens / 8;
  static constexpr int kWides = dense::kManyTokens / 64;
  const moe::TokenTile* tiles = nullptr;      // [count - 1][kEights + kWides]
  const std::int32_t* counts = nullptr;       // [count - 1][2]
  const std::int32_t* row_numbers = nullptr;  // 0, 1, 2, ... for all rows of a step
  // Of eight rows each; and of moe_layer::one_expert_tokens(count).
  BatchTables::Tiles eights(int count) const;
  BatchTables::Tiles wides(int count) const;
};
RowTiles make_row_tiles(kernels::Arena& arena, const Capacity& capacity);

// Token records, for matrices with FP4 inputs; none where a model has no such matrix.
struct Fp4Buffers {
  unsigned char* rows = nullptr;  // of a matrix's input: [rows / 8][widest input / 64]
  // The same from the norm, for each of its readers' scales: [rows / 8][hidden / 64]; null: no norm has as
  // many.
  unsigned char* normed[dense::kFp4Sets] = {};
  unsigned char* inner = nullptr;  // of an MLP: [rows / 8][widest MLP / 64]
  RowTiles tiles;
};

struct Buffers {
  float* x = nullptr;                // [rows, hidden] the residual stream
  std::uint16_t* normed = nullptr;   // [rows, widest input]
  std::uint16_t* staged = nullptr;   // [rows, widest input] as the tiled kernels read it
  std::uint8_t* codes = nullptr;     // [rows, widest input of a W8A8 matrix] likewise; null: there is none
  float* factor = nullptr;           // [rows] of the codes
  void* projection = nullptr;        // [rows, widest projection] f32 or bf16, or two of few rows
  std::uint16_t* query = nullptr;    // [rows, heads * head_dim]
  device::F32x4* squares = nullptr;  // [rows] of queries and keys that are normed over all heads; null: none
  device::F32x4* all_squares = nullptr;  // [rows, ranks] the same of all ranks; of one, squares
  std::uint16_t* attended = nullptr;     // [rows, heads * latent] of latent attention; null: none
  std::uint16_t* mixed = nullptr;        // [rows, widest mixer output]
  int mixed_columns = 0;
  std::uint16_t* inner = nullptr;  // [rows, widest MLP]
  void* added = nullptr;           // [rows, hidden] what is added to x next
  float* part = nullptr;           // [rows, hidden] of several ranks: what this one adds to x
  float* logits_part = nullptr;    // [kLogitsRows, its columns, padded] likewise
  float* logits = nullptr;         // [kLogitsRows, vocab, padded]
  float* hidden[2] = {nullptr,
                      nullptr};  // [rows, hidden] what a pass leaves for the next; which one: in turn
  Fp4Buffers fp4;
  void* workspace = nullptr;  // of one kernel at a time
  std::size_t workspace_bytes = 0;
};

// Logits of so many rows are there at a time: those of all rows that generated rows are run together, so that
// a verification reads the head once.
inline constexpr int kLogitsRows = 128;

}  // namespace fourfold::backend::cuda
