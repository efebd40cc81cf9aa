// The tokens of the dense kernel. Lane (g, t) has token g, columns 8t .. 8t + 7 of every 32: the tensor-core
// operands of its segment of K. Given rows come to registers and stay there for the whole launch; normed ones
// are in shared memory and are read there.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/dense_params.h"
#include "kernels/dense/norm.h"
#include "kernels/device/quotient.h"
#include "kernels/device/types.h"

namespace fourfold::dense {

struct Tokens {
  device::U32x4 chunk[kSegmentRecords][2];  // [record][half]
};

// Places beyond the tokens repeat the last one; their results are not stored.
FOURFOLD_DEVICE int token_of_place(int place, int count) { return place < count ? place : count - 1; }

// ---- bf16 rows in global memory ----

// One user's row is staged in shared memory, by every warp its own segment: the loop over it is rolled, and
// its code half as long.
inline constexpr int kStagedBytes = 2 * moe::kSegmentColumns;

struct GivenRows {
  static constexpr const char* name = "rows";
  static constexpr bool norms = false;
  static constexpr bool stages(int columns, int tokens, int warps) {
    return tokens == 1 && columns <= warps * moe::kSegmentColumns;
  }
  template <int Warps>
  static constexpr int shared_bytes(int columns, int tokens) {
    return stages(columns, tokens, Warps) ? Warps * kStagedBytes : 0;
  }
  template <int Warps>
  struct Storage {};
};

template <class Cta>
FOURFOLD_DEVICE void load_given(Cta cta, const DenseParams& params, int segment, Tokens& tokens) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
  const int first = segment * kSegmentRecords;
  const auto* row = static_cast<const std::uint16_t*>(params.tokens) +
                    static_cast<std::int64_t>(token_of_place(g, params.token_count)) * params.token_stride +
                    first * record::kColumns + 8 * t;
#pragma unroll
  for (int r = 0; r < kSegmentRecords; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (first + r < params.records)
        tokens.chunk[r][half] =
            cta.load(reinterpret_cast<const device::U32x4*>(row + r * record::kColumns + 32 * half));
}

// The one token's columns of the warp's segment into the warp's own place; where this lane reads them there.
template <class Cta>
FOURFOLD_DEVICE const unsigned char* stage_given(Cta cta, const DenseParams& params, int segment,
                                                 unsigned char* to) {
  const int first = segment * moe::kSegmentColumns, columns = params.records * record::kColumns;
  const auto* from = static_cast<const std::uint16_t*>(params.tokens) + first;
  device::U32x4 part[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (first + 8 * (32 * i + cta.lane()) < columns)
      part[i] = cta.load(reinterpret_cast<const device::U32x4*>(from) + 32 * i + cta.lane());
#pragma unroll
  for (int i = 0; i < 2; ++i)
    cta.store_shared(reinterpret_cast<device::U32x4*>(to) + 32 * i + cta.lane(), part[i]);
  cta.sync_warp();  // what the other lanes have brought
  return to + 16 * (cta.lane() & 3);
}

// ---- normed from f32 rows ----

// Every block norms all tokens by itself, as many rows at a time as Warps * kPassPieces pieces are.
inline constexpr int kPassPieces = 4;
// One user's row is short of that: up to this many columns go without the pieces that would be empty. Their
// instructions would stand between the row and its first product, in every block.
inline constexpr int kNarrowColumns = 2048;
template <int Warps>
inline constexpr int kNarrowPieces = (kNarrowColumns / kPieceColumns + Warps - 1) / Warps;
FOURFOLD_DEVICE bool is_narrow(const DenseParams& params) {
  return params.token_count == 1 && params.records * record::kColumns <= kNarrowColumns;
}

// Normed rows lie 64 bytes apart from a multiple of 128, so that two rows meet different banks.
constexpr int row_bytes(int columns) { return 2 * columns + 64; }

struct NormedRows {
  static constexpr const char* name = "norm";
  static constexpr bool norms = true;
  template <int Warps>
  static constexpr int shared_bytes(int columns, int tokens) {
    return tokens * row_bytes(columns);
  }
  template <int Warps>
  struct Storage {
    float piece_sums[Warps * kPassPieces];
  };
};

// The pieces of a pass are dealt out to the warps in turn, in every pass alike.
struct PassPiece {
  int row, piece;
  template <class Cta>
  FOURFOLD_DEVICE PassPiece(Cta, int index, int pieces)
      : row(device::quotient<Cta>(index, pieces)), piece(index - row * pieces) {}
  template <class Cta>
  FOURFOLD_DEVICE int column(Cta cta) const {
    return piece * kPieceColumns + cta.lane() * kLaneColumns;
  }
};

using PassValues = float[kPassPieces][kLaneColumns];

template <int Warps, class Cta>
FOURFOLD_DEVICE void load_norm_weight(Cta cta, const DenseParams& params, int warp, PassValues& weight) {
  const int columns = params.records * record::kColumns, pieces = pieces_of(columns);
#pragma unroll
  for (int i = 0; i < kPassPieces; ++i) {
    if (i == kNarrowPieces<Warps> && is_narrow(params)) break;
    load_eight(cta, params.norm_weight, PassPiece(cta, warp + Warps * i, pieces).column(cta), columns,
               weight[i]);
  }
}

// `rows` rows of the tokens from `first` on, normed, into shared memory.
template <int Warps, class Cta>
FOURFOLD_DEVICE void norm_pass(Cta cta, const DenseParams& params, NormedRows::Storage<Warps>& storage,
                               unsigned char* to, int warp, int first, int rows, const PassValues& weight) {
  const int columns = params.records * record::kColumns, pieces = pieces_of(columns);
  const auto* x =
      static_cast<const float*>(params.tokens) + static_cast<std::int64_t>(first) * params.token_stride;
  float values[kPassPieces][kLaneColumns];
#pragma unroll
  for (int i = 0; i < kPassPieces; ++i) {
    const PassPiece at(cta, warp + Warps * i, pieces);
    load_eight(cta, x + static_cast<std::int64_t>(at.row) * params.token_stride, at.column(cta),
               at.row < rows ? columns : 0, values[i]);
  }
  float sum[kPassPieces];
#pragma unroll
  for (int i = 0; i < kPassPieces; ++i) sum[i] = piece_square_sum(cta, values[i]);
#pragma unroll
  for (int i = 0; i < kPassPieces; ++i)
    if (cta.lane() == 0) cta.store_shared(&storage.piece_sums[warp + Warps * i], sum[i]);
  cta.sync_block();  // every piece is summed
#pragma unroll
  for (int i = 0; i < kPassPieces; ++i) {
    const PassPiece at(cta, warp + Warps * i, pieces);
    if (at.row >= rows) break;
    const float factor = inverse_rms(cta, storage.piece_sums + at.row * pieces, columns, params.epsilon);
    if (at.column(cta) >= columns) continue;
    const device::U32x4 normed = normed_eight<Cta>(values[i], factor, weight[i]);
    cta.store_shared(
        reinterpret_cast<device::U32x4*>(to + (first + at.row) * row_bytes(columns) + 2 * at.column(cta)),
        normed);
    if (params.normed_out && cta.block() == 0)
      cta.store(reinterpret_cast<device::U32x4*>(
                    params.normed_out + static_cast<std::int64_t>(first + at.row) * columns + at.column(cta)),
                normed);
  }
  cta.sync_block();  // the rows are complete, and the sums are read
}

// One user's row. Every block stands still for it, so it has code of its own that is short: no row to find,
// one factor, and what is known without the row is known before.
template <int Warps, class Cta>
FOURFOLD_DEVICE void norm_narrow(Cta cta, const DenseParams& params, NormedRows::Storage<Warps>& storage,
                                 unsigned char* to, int warp, const PassValues& weight, float per_column) {
  constexpr int pieces = kNarrowPieces<Warps>;
  const int columns = params.records * record::kColumns;
  const int first = warp * kPieceColumns + cta.lane() * kLaneColumns;
  float values[pieces][kLaneColumns];
#pragma unroll
  for (int i = 0; i < pieces; ++i)
    load_eight(cta, static_cast<const float*>(params.tokens), first + i * Warps * kPieceColumns, columns,
               values[i]);
#pragma unroll
  for (int i = 0; i < pieces; ++i) {
    const float sum = piece_square_sum(cta, values[i]);
    if (cta.lane() == 0) cta.store_shared(&storage.piece_sums[warp + Warps * i], sum);
  }
  cta.sync_block();  // every piece is summed
  const float factor =
      inverse_rms_of(cta, storage.piece_sums, pieces_of(columns), per_column, params.epsilon);
#pragma unroll
  for (int i = 0; i < pieces; ++i) {
    const int column = first + i * Warps * kPieceColumns;
    if (column >= columns) break;
    const device::U32x4 normed = normed_eight<Cta>(values[i], factor, weight[i]);
    cta.store_shared(reinterpret_cast<device::U32x4*>(to + 2 * column), normed);
    if (params.normed_out && cta.block() == 0)
      cta.store(reinterpret_cast<device::U32x4*>(params.normed_out + column), normed);
  }
  cta.sync_block();  // the row is complete
}

// All tokens into shared memory, a pass after the other. All warps of the block. per_column: 1 / columns.
template <int Warps, class Cta>
FOURFOLD_DEVICE void norm_tokens(Cta cta, const DenseParams& params, NormedRows::Storage<Warps>& storage,
                                 unsigned char* to, int warp, const PassValues& weight, float per_column) {
  if (is_narrow(params)) return norm_narrow<Warps>(cta, params, storage, to, warp, weight, per_column);
  const int rows_of_pass = Warps * kPassPieces / pieces_of(params.records * record::kColumns);
#pragma unroll 1
  for (int first = 0; first < params.token_count; first += rows_of_pass) {
    const int left = params.token_count - first;
    norm_pass<Warps>(cta, params, storage, to, warp, first, left < rows_of_pass ? left : rows_of_pass,
                     weight);
  }
}

// Where this lane's row has its columns of a segment, in bytes from the first normed row.
template <class Cta>
FOURFOLD_DEVICE int normed_offset(Cta cta, const DenseParams& params, int segment) {
  const int bytes = 2 * record::kColumns;
  return token_of_place(cta.lane() >> 2, params.token_count) * row_bytes(params.records * record::kColumns) +
         bytes * kSegmentRecords * segment + 16 * (cta.lane() & 3);
}

}  // namespace fourfold::dense
