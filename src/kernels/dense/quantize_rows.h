// bf16 rows to E4M3 codes and a factor a row, for prompt rows of FP8 x FP8 matrices whose producer cannot do
// it: a row's largest number is known when the row is complete. A warp a row, which it reads twice.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/dense_params.h"
#include "kernels/dense/fp8_codes.h"
#include "kernels/device/types.h"

namespace fourfold::dense {

// 32 columns as pair j of chunk t: in[t].v[j], or in[j].v[t] where the row is staged.
struct ThirtyTwo {
  device::U32x4 in[4];
  template <class Cta>
  FOURFOLD_DEVICE ThirtyTwo(Cta cta, const std::uint16_t* from) {
#pragma unroll
    for (int i = 0; i < 4; ++i) in[i] = cta.load(reinterpret_cast<const device::U32x4*>(from) + i);
  }
};

template <bool Staged, class Cta>
FOURFOLD_DEVICE void store_codes(Cta cta, const ThirtyTwo& from, float inverse, std::uint8_t* to) {
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    device::U32x4 words;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const int j = 2 * upper;
      words.v[t] = Staged ? four_codes<Cta>(from.in[j].v[t], from.in[j + 1].v[t], inverse)
                          : four_codes<Cta>(from.in[t].v[j], from.in[t].v[j + 1], inverse);
    }
    cta.store(reinterpret_cast<device::U32x4*>(to) + upper, words);
  }
}

template <class Cta>
FOURFOLD_DEVICE void quantize_rows(Cta cta, const QuantizeRowsParams& params) {
  const int row = cta.block() * kQuantizeWarps + cta.warp();
  cta.wait_predecessors();
  cta.release_successors();
  if (row >= params.row_count) return;
  const std::int64_t start = static_cast<std::int64_t>(row) * params.columns;
  float inverse = params.inverse;
  if (inverse == 0.0f) {
    float largest = 0.0f;
    for (int column = 32 * cta.lane(); column < params.columns; column += 32 * 32) {
      const ThirtyTwo from(cta, params.rows + start + column);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) largest = larger<Cta>(largest, from.in[i].v[j]);
    }
    const Fp8RowFactor factor = fp8_row_factor(largest_of_warp(cta, largest));
    if (cta.lane() == 0) cta.store(params.factor + row, factor.factor);
    inverse = factor.inverse;
  }
  for (int column = 32 * cta.lane(); column < params.columns; column += 32 * 32) {
    const ThirtyTwo from(cta, params.rows + start + column);
    if (params.is_staged)
      store_codes<true>(cta, from, inverse, params.codes + start + column);
    else
      store_codes<false>(cta, from, inverse, params.codes + start + column);
  }
}

}  // namespace fourfold::dense
