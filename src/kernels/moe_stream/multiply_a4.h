// One unit of a strip times up to N tokens in token records: the FP4 instruction takes both operands as they
// lie.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_stream/stream_row.h"
#include "kernels/record/record.h"

namespace fourfold::moe_stream {

template <class Row>
struct Fp4Operands {
  static constexpr int depth = Row::depth;
  static constexpr int scale_groups = (Row::token_tiles + 3) / 4;
  device::U32x4 tile[depth][2];
  std::uint32_t scales[depth];
  const unsigned char* token[Row::token_tiles]{};    // token record of tile n, record 0
  const unsigned char* token_scale[scale_groups]{};  // scale word this lane supplies for tiles 4c .. 4c + 3
};

template <class Row, class Cta>
FOURFOLD_DEVICE void load_record(Cta cta, Fp4Operands<Row>& operands, int slot, const unsigned char* at) {
  const int lane = cta.lane();
  operands.tile[slot][0] =
      cta.load_stream(reinterpret_cast<const device::U32x4*>(at + record::payload_offset(0, lane)));
  operands.tile[slot][1] =
      cta.load_stream(reinterpret_cast<const device::U32x4*>(at + record::payload_offset(1, lane)));
  // One word a lane holds the row scales of both tiles; the instruction's selector picks. MXFP4 words have
  // two bytes: lanes read the aligned pair and keep their half.
  if constexpr (Row::Format::scale_word_bytes == 4) {
    operands.scales[slot] =
        cta.load_stream(reinterpret_cast<const std::uint32_t*>(at + record::kPayloadBytes) + lane);
  } else {
    const std::uint32_t pair =
        cta.load_stream(reinterpret_cast<const std::uint32_t*>(at + record::kPayloadBytes) + (lane >> 1));
    operands.scales[slot] = (lane & 1) ? pair >> 16 : pair & 0xFFFFu;
  }
}

template <class Row, class Cta, class TileList>
FOURFOLD_DEVICE void enter_tile(Cta cta, Fp4Operands<Row>& operands, const moe::GemmParams& params,
                                const TileList&, int, const moe::TokenTile& tile) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
  const int last = (tile.count - 1) / record::kTokens;  // record groups beyond the tile repeat its last one
  const auto group = [&](int n) {
    const std::int64_t at = tile.first_slot / record::kTokens + (n < last ? n : last);
    return params.tokens + at * params.records * record::kTokenRecordBytes;
  };
#pragma unroll
  for (int n = 0; n < Row::token_tiles; ++n) operands.token[n] = group(n) + 8 * cta.lane();
#pragma unroll
  for (int c = 0; c < Fp4Operands<Row>::scale_groups; ++c)
    operands.token_scale[c] = group(4 * c + t) + record::kTokenPayloadBytes + 4 * g;
}

// tile and n are constants once the loops are unrolled; the instruction wants its selectors as immediates.
template <class Row, class Cta>
FOURFOLD_DEVICE void mma_selected(Cta cta, int tile, int n, float (&sum)[4], const std::uint32_t (&a)[4],
                                  std::uint32_t b0, std::uint32_t b1, std::uint32_t scale_a,
                                  std::uint32_t scale_b) {
  const auto run = [&]<int TileSelect, int TokenSelect>() {
    if constexpr (Row::Format::scale_word_bytes == 4)
      cta.template mma_nvfp4<TileSelect, TokenSelect>(sum, a, b0, b1, scale_a, scale_b);
    else
      cta.template mma_mxfp4<TileSelect, TokenSelect>(sum, a, b0, b1, scale_a, scale_b);
  };
  switch (4 * tile + (n & 3)) {
    case 0: return run.template operator()<0, 0>();
    case 1: return run.template operator()<0, 1>();
    case 2: return run.template operator()<0, 2>();
    case 3: return run.template operator()<0, 3>();
    case 4: return run.template operator()<1, 0>();
    case 5: return run.template operator()<1, 1>();
    case 6: return run.template operator()<1, 2>();
    default: return run.template operator()<1, 3>();
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_unit(Cta cta, Fp4Operands<Row>& operands, const unsigned char* current,
                                   const unsigned char* next, int first_record, int /*records*/,
                                   float (&sum)[2][Row::token_tiles][4]) {
  static_assert(!Row::ragged && Row::unit_records % Row::depth == 0);
  constexpr int count = Row::unit_records;
#pragma unroll
  for (int r = 0; r < count; ++r) {
    const int slot = r % Row::depth;
    const device::U32x4 tile[2] = {operands.tile[slot][0], operands.tile[slot][1]};
    const std::uint32_t scales = operands.scales[slot];
    load_record<Row>(cta, operands, slot,
                     r + Row::depth < count ? current + (r + Row::depth) * Row::record_bytes
                                            : next + (r + Row::depth - count) * Row::record_bytes);
    const int token_at = (first_record + r) * record::kTokenRecordBytes;
    std::uint32_t token_scale[Fp4Operands<Row>::scale_groups];
#pragma unroll
    for (int c = 0; c < Fp4Operands<Row>::scale_groups; ++c)
      token_scale[c] = cta.load(reinterpret_cast<const std::uint32_t*>(operands.token_scale[c] + token_at));
#pragma unroll
    for (int n = 0; n < Row::token_tiles; ++n) {
      const device::U32x2 b = cta.load(reinterpret_cast<const device::U32x2*>(operands.token[n] + token_at));
#pragma unroll
      for (int m = 0; m < 2; ++m)
        mma_selected<Row>(cta, m, n, sum[m][n], tile[m].v, b.v[0], b.v[1], scales, token_scale[n / 4]);
    }
  }
}

}  // namespace fourfold::moe_stream
