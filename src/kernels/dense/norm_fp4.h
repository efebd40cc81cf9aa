// The row norm of prompts whose matrices have FP4 inputs: norm_prompt's plain and staged rows, and token
// records of the same rows, one set for each input scale that is wanted, in the order the FP4 kernels read.
// A dense matrix reads a set as it lies; the tiled kernel gathers rows of it by slot where all experts of a
// layer have its scale. Codes and scales are those of moe_tokens/moe_tokens.h, which quantises where scales
// differ: bf16 first, then the same functions.
//
// A block a row; blocks beyond the rows fill the last group of eight with zeros, as that kernel does.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/dense_params.h"
#include "kernels/dense/norm.h"
#include "kernels/dense/norm_prompt.h"
#include "kernels/dense/norm_rows.h"
#include "kernels/moe_tokens/moe_tokens.h"
#include "kernels/record/record.h"

namespace fourfold::dense {

// Eight neighbours of a row to their place in a record. Eight lanes have the record's 64 columns: lane 4h + t
// those that word h of a lane (g, t) of the products holds. All lanes of the warp take part.
template <class Cta>
FOURFOLD_DEVICE void store_eight_fp4(Cta cta, const Fp4Rows& rows, int columns, int row, int column,
                                     const device::U32x4& eight, bool has_row) {
  const bool is_inside = column < columns;
  E4m3 scale;
  const std::uint32_t codes =
      moe_tokens::quantize_half(cta, eight, has_row && is_inside, rows.inverse, scale);
  const int place = cta.lane() % 8, half = place / 4, t = place % 4;
  std::uint32_t scales = static_cast<std::uint32_t>(scale.bits) << (8 * (place / 2));
  scales |= cta.shuffle_xor(scales, 2);  // lanes of one block have the same byte
  scales |= cta.shuffle_xor(scales, 4);
  if (!is_inside) return;
  const int g = row % record::kTokens;
  const std::int64_t record =
      static_cast<std::int64_t>(row / record::kTokens) * (columns / record::kColumns) +
      column / record::kColumns;
  unsigned char* to = rows.records + record * record::kTokenRecordBytes;
  cta.store(reinterpret_cast<std::uint32_t*>(to) + 8 * g + 2 * t + half, codes);
  if (place == 0) cta.store(reinterpret_cast<std::uint32_t*>(to + record::kTokenPayloadBytes) + g, scales);
}

template <class Cta>
FOURFOLD_DEVICE void store_records(Cta cta, const NormFp4Params& params, int column,
                                   const device::U32x4& normed, bool has_row) {
#pragma unroll
  for (int set = 0; set < kFp4Sets; ++set)
    if (params.fp4[set].records != nullptr)
      store_eight_fp4(cta, params.fp4[set], params.norm.columns, cta.block(), column, normed, has_row);
}

template <class Cta>
FOURFOLD_DEVICE void norm_fp4(Cta cta, const NormFp4Params& params) {
  auto& storage = cta.template shared<NormStorage>();
  const NormParams& norm = params.norm;
  const int warp = cta.warp();
  const std::int64_t start = static_cast<std::int64_t>(cta.block()) * norm.columns;
  TwoPassRow<Cta> row(cta, norm, warp, start);
  cta.wait_predecessors();
  cta.release_successors();
  const bool has_row = cta.block() < params.row_count;
  const float factor = has_row ? row.factor(storage) : 0.0f;
#pragma unroll 1
  for (int i = 0; row.has(i); ++i) {
    const int column = row.column(i);
    device::U32x4 normed{};
    if (has_row && column < norm.columns) {
      normed = row.normed(i, factor);
      store_eight(cta, params.rows, start, column, normed);
    }
    store_records(cta, params, column, normed, has_row);
  }
}

}  // namespace fourfold::dense
