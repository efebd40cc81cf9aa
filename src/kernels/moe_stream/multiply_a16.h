// One unit of a strip times up to N bf16 tokens: weights stream from global memory straight into registers
// (each is used once, so shared memory would only add a copy), tokens come through L1, where the strips of an
// expert find them again.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_stream/stream_row.h"
#include "kernels/record/decode.h"

namespace fourfold::moe_stream {

template <class Row>
struct HalfOperands {
  static constexpr int depth = Row::depth;
  device::U32x4 tile[depth][2];
  record::LaneScales<typename Row::Format> scales[depth];
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
  using Word = typename record::LaneScales<typename Row::Format>::Word;
  const int lane = cta.lane();
  operands.tile[slot][0] =
      cta.load_stream(reinterpret_cast<const device::U32x4*>(at + record::payload_offset(0, lane)));
  operands.tile[slot][1] =
      cta.load_stream(reinterpret_cast<const device::U32x4*>(at + record::payload_offset(1, lane)));
  operands.scales[slot].words = cta.load_stream(reinterpret_cast<const Word*>(
      at + record::kPayloadBytes + record::lane_scale_offset<typename Row::Format>(lane)));
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

// Two token tiles or fewer: the tokens of the next records wait in registers.
template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_narrow(Cta cta, HalfOperands<Row>& operands, const unsigned char* current,
                                     const unsigned char* next, int first_record,
                                     float (&sum)[2][Row::token_tiles][4]) {
  constexpr int count = Row::unit_records, ahead = count > 2 ? 2 : 1, ring = ahead + 1;
  device::U32x4 token[ring][Row::token_tiles][2];
  const auto load_tokens = [&](int slot, int record) {
#pragma unroll
    for (int n = 0; n < Row::token_tiles; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        token[slot][n][half] = load_chunk<Row>(cta, operands, n, (first_record + record) * 128 + 64 * half);
  };
#pragma unroll
  for (int r = 0; r < ahead && r < count; ++r) load_tokens(r, r);
#pragma unroll
  for (int r = 0; r < count; ++r) {
    const int slot = r % Row::depth;
    const device::U32x4 tile[2] = {operands.tile[slot][0], operands.tile[slot][1]};
    const auto scales = operands.scales[slot];
    if (r + ahead < count) load_tokens((r + ahead) % ring, r + ahead);
    load_record<Row>(cta, operands, slot,
                     r + Row::depth < count ? current + (r + Row::depth) * Row::record_bytes
                                            : next + (r + Row::depth - count) * Row::record_bytes);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const std::uint32_t pair_g = record::scale_pair<Cta>(scales, m, 0, cta.lane());
      const std::uint32_t pair_g8 = record::scale_pair<Cta>(scales, m, 1, cta.lane());
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t steps[2][4];
        record::decode_tile_half<typename Row::Format, Cta>(tile[m], pair_g, pair_g8, half, steps);
#pragma unroll
        for (int n = 0; n < Row::token_tiles; ++n) {
          const device::U32x4& b = token[r % ring][n][half];
          cta.mma_bf16(sum[m][n], steps[0], b.v[0], b.v[1]);
          cta.mma_bf16(sum[m][n], steps[1], b.v[2], b.v[3]);
        }
      }
    }
  }
}

// More token tiles: half a record of tokens ahead, or none, or the registers would not hold them.
template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_wide(Cta cta, HalfOperands<Row>& operands, const unsigned char* current,
                                   const unsigned char* next, int first_record,
                                   float (&sum)[2][Row::token_tiles][4]) {
  constexpr int count = Row::unit_records, ahead = Row::token_tiles > 4 ? 0 : 1;
  device::U32x4 token[ahead + 1][Row::token_tiles];
  const auto load_tokens = [&](int slot, int step) {
#pragma unroll
    for (int n = 0; n < Row::token_tiles; ++n)
      token[slot][n] = load_chunk<Row>(cta, operands, n, first_record * 128 + 64 * step);
  };
  if constexpr (ahead > 0) load_tokens(0, 0);
    // Rolled for the widest rows: unrolled, the scheduler would keep more tokens in flight than there are
    // registers.
#pragma unroll(Row::token_tiles > 4 ? 1 : count)
  for (int r = 0; r < count; ++r) {
    const int slot = r % Row::depth;
    const device::U32x4 tile[2] = {operands.tile[slot][0], operands.tile[slot][1]};
    const auto scales = operands.scales[slot];
    load_record<Row>(cta, operands, slot,
                     r + Row::depth < count ? current + (r + Row::depth) * Row::record_bytes
                                            : next + (r + Row::depth - count) * Row::record_bytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int step = 2 * r + half;
      if (step + ahead < 2 * count) load_tokens((step + ahead) % (ahead + 1), step + ahead);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const std::uint32_t pair_g = record::scale_pair<Cta>(scales, m, 0, cta.lane());
        const std::uint32_t pair_g8 = record::scale_pair<Cta>(scales, m, 1, cta.lane());
        std::uint32_t steps[2][4];
        record::decode_tile_half<typename Row::Format, Cta>(tile[m], pair_g, pair_g8, half, steps);
#pragma unroll
        for (int n = 0; n < Row::token_tiles; ++n) {
          const device::U32x4& b = token[step % (ahead + 1)][n];
          cta.mma_bf16(sum[m][n], steps[0], b.v[0], b.v[1]);
          cta.mma_bf16(sum[m][n], steps[1], b.v[2], b.v[3]);
        }
      }
    }
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_unit(Cta cta, HalfOperands<Row>& operands, const unsigned char* current,
                                   const unsigned char* next, int first_record,
                                   float (&sum)[2][Row::token_tiles][4]) {
  if constexpr (Row::token_tiles <= 2)
    multiply_narrow<Row>(cta, operands, current, next, first_record, sum);
  else
    multiply_wide<Row>(cta, operands, current, next, first_record, sum);
}

}  // namespace fourfold::moe_stream
