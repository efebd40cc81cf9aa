// One unit of a strip times up to N bf16 tokens: weights stream from global memory straight into registers
// (each is used once, so shared memory would only add a copy), tokens come through L1, where the strips of an
// expert find them again.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_stream/stream_row.h"
#include "kernels/record/lane_tile.h"

namespace fourfold::moe_stream {

template <class Row>
struct HalfOperands {
  static constexpr int depth = Row::depth;
  record::LaneTiles<typename Row::Format, 2, Row::Path::bit_order> weights[depth];
  // Lane's place in the token rows: token 8n + g at column 8t, counted in 16-byte chunks from the first row.
  // Half the registers of pointers.
  const unsigned char* tokens = nullptr;
  std::uint32_t chunk[Row::token_tiles]{};
};

template <class Row, class Cta>
FOURFOLD_DEVICE device::U32x4 load_chunk(Cta cta, const HalfOperands<Row>& operands, int n,
                                         int bytes_along_k) {
  const unsigned char* row = operands.tokens + static_cast<std::int64_t>(operands.chunk[n]) * 16;
  return cta.load(reinterpret_cast<const device::U32x4*>(row + bytes_along_k));
}

template <class Row, class Cta>
FOURFOLD_DEVICE void load_record(Cta cta, HalfOperands<Row>& operands, int slot, const unsigned char* at) {
  operands.weights[slot].load(
      cta.lane(), [&](const auto* from) { return cta.load_stream(from); }, at, 0);
}

// FP4 codes are decoded out of place, so their registers take the next record at once. The wider formats are
// operands as they lie (bf16) or nearly so: each half of a tile is replaced when its products have read it,
// and no second record of registers is needed.
template <class Row>
inline constexpr bool kRefillsByHalves = !record::kHasBlockScales<typename Row::Format>;

template <class Row, class Cta>
FOURFOLD_DEVICE void refill_half(Cta cta, HalfOperands<Row>& operands, int slot, int m, int half,
                                 const unsigned char* at) {
  if constexpr (kRefillsByHalves<Row>)
    operands.weights[slot].tile[m].load_half(
        cta.lane(), [&](const auto* from) { return cta.load_stream(from); }, at, m, half);
}

// The tokens of a tile; places beyond its count repeat the last token, their results are not stored.
template <class Row, class Cta, class TileList>
FOURFOLD_DEVICE void enter_tile(Cta cta, HalfOperands<Row>& operands, const moe::GemmParams& params,
                                const TileList& tiles, int index, const moe::TokenTile& tile) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
  operands.tokens = params.tokens;
#pragma unroll
  for (int n = 0; n < Row::token_tiles; ++n) {
    const int place = 8 * n + g < tile.count ? 8 * n + g : tile.count - 1;
    const int row = tiles.token_row(cta, params, index, tile, place);
    operands.chunk[n] = static_cast<std::uint32_t>(row) * static_cast<std::uint32_t>(params.records) * 8u + t;
  }
}

// What record r's registers take next: a record of this unit or, when it has no more for them, of the next.
// A unit has at least as many records as there are places, so each place gets one of the next.
template <class Row>
FOURFOLD_DEVICE const unsigned char* record_ahead(const unsigned char* current, const unsigned char* next,
                                                  int r, int count) {
  return r + Row::depth < count ? current + (r + Row::depth) * Row::record_bytes
                                : next + r % Row::depth * Row::record_bytes;
}

// Two token tiles or fewer: the tokens of the next records wait in registers.
template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_narrow(Cta cta, HalfOperands<Row>& operands, const unsigned char* current,
                                     const unsigned char* next, int first_record, int records,
                                     float (&sum)[2][Row::token_tiles][4]) {
  constexpr int most = Row::unit_records, ahead = most > 2 ? 2 : 1, ring = ahead + 1;
  const int count = Row::ragged ? records : most;
  device::U32x4 token[ring][Row::token_tiles][2];
  const auto load_tokens = [&](int slot, int record) {
#pragma unroll
    for (int n = 0; n < Row::token_tiles; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        token[slot][n][half] = load_chunk<Row>(cta, operands, n, (first_record + record) * 128 + 64 * half);
  };
#pragma unroll
  for (int r = 0; r < ahead && r < most; ++r) load_tokens(r, r);
#pragma unroll
  for (int r = 0; r < most; ++r) {
    if (r >= Row::depth && r >= count) break;
    const int slot = r % Row::depth;
    const auto weights = operands.weights[slot];
    const unsigned char* ahead_of_r = record_ahead<Row>(current, next, r, count);
    if (r + ahead < count) load_tokens((r + ahead) % ring, r + ahead);
    if constexpr (!kRefillsByHalves<Row>) load_record<Row>(cta, operands, slot, ahead_of_r);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t steps[2][4];
        weights.template decode<Cta>(cta.lane(), m, 0, half, steps);
#pragma unroll
        for (int n = 0; n < Row::token_tiles; ++n) {
          const device::U32x4& b = token[r % ring][n][half];
          cta.mma_bf16(sum[m][n], steps[0], b.v[0], b.v[1]);
          cta.mma_bf16(sum[m][n], steps[1], b.v[2], b.v[3]);
        }
        refill_half<Row>(cta, operands, slot, m, half, ahead_of_r);
      }
    }
  }
}

// More token tiles: half a record of tokens ahead, or none, or the registers would not hold them.
template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_wide(Cta cta, HalfOperands<Row>& operands, const unsigned char* current,
                                   const unsigned char* next, int first_record, int records,
                                   float (&sum)[2][Row::token_tiles][4]) {
  constexpr int most = Row::unit_records, ahead = Row::token_tiles > 4 ? 0 : 1;
  const int count = Row::ragged ? records : most;
  device::U32x4 token[ahead + 1][Row::token_tiles];
  const auto load_tokens = [&](int slot, int step) {
#pragma unroll
    for (int n = 0; n < Row::token_tiles; ++n)
      token[slot][n] = load_chunk<Row>(cta, operands, n, first_record * 128 + 64 * step);
  };
  if constexpr (ahead > 0) load_tokens(0, 0);
    // Rolled for the widest rows: unrolled, the scheduler would keep more tokens in flight than there are
    // registers.
#pragma unroll(Row::token_tiles > 4 ? 1 : most)
  for (int r = 0; r < most; ++r) {
    if (r >= Row::depth && r >= count) break;
    const int slot = r % Row::depth;
    const auto weights = operands.weights[slot];
    const unsigned char* ahead_of_r = record_ahead<Row>(current, next, r, count);
    if constexpr (!kRefillsByHalves<Row>) load_record<Row>(cta, operands, slot, ahead_of_r);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int step = 2 * r + half;
      if (step + ahead < 2 * count) load_tokens((step + ahead) % (ahead + 1), step + ahead);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        std::uint32_t steps[2][4];
        weights.template decode<Cta>(cta.lane(), m, 0, half, steps);
#pragma unroll
        for (int n = 0; n < Row::token_tiles; ++n) {
          const device::U32x4& b = token[step % (ahead + 1)][n];
          cta.mma_bf16(sum[m][n], steps[0], b.v[0], b.v[1]);
          cta.mma_bf16(sum[m][n], steps[1], b.v[2], b.v[3]);
        }
        refill_half<Row>(cta, operands, slot, m, half, ahead_of_r);
      }
    }
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_unit(Cta cta, HalfOperands<Row>& operands, const unsigned char* current,
                                   const unsigned char* next, int first_record, int records,
                                   float (&sum)[2][Row::token_tiles][4]) {
  // A record of bf16 leaves room for the tokens of one n8 tile only.
  if constexpr (Row::token_tiles <= (Row::Format::tile_bytes > 1024 ? 1 : 2))
    multiply_narrow<Row>(cta, operands, current, next, first_record, records, sum);
  else
    multiply_wide<Row>(cta, operands, current, next, first_record, records, sum);
}

}  // namespace fourfold::moe_stream
