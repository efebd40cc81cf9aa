// One record of weights times the tokens that lie in shared memory: the inner loop of dense_many and
// dense_tall.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/dense_params.h"
#include "kernels/device/types.h"
#include "kernels/record/lane_tile.h"

namespace fourfold::dense {

// Tokens lie in rows of Row::token_row_bytes. The two 64-byte halves of a record's columns change places in
// odd rows: the eight lanes that read together, two tokens of four chunks, then meet all banks.
template <class Row>
constexpr int token_offset(int row, int record, int chunk) {
  return row * Row::token_row_bytes + record * 2 * record::kColumns + 16 * (chunk ^ (4 * (row & 1)));
}

template <class Row>
using ManySums = float[Row::tiles][Row::groups][4];

template <class Row>
FOURFOLD_DEVICE void clear(ManySums<Row>& sum) {
#pragma unroll
  for (int m = 0; m < Row::tiles; ++m)
#pragma unroll
    for (int n = 0; n < Row::groups; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[m][n][j] = 0.0f;
}

// Where a loop has its code once: the next sums take the place of those that are done.
FOURFOLD_DEVICE void move_up(float (&to)[4], const float (&from)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) to[j] = from[j];
}

template <class Row>
using ManyWeights = record::LaneTiles<typename Row::Format, Row::tiles>;

// One record times all tokens; `tokens` is record r of the first row.
template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_many(Cta cta, const ManyWeights<Row>& weights, const unsigned char* tokens,
                                   ManySums<Row>& sum) {
  // Groups whose operands wait together: enough sums for the tensor core's latency, few registers.
  constexpr int kTogether = Row::groups % 4 == 0 ? 4 : Row::groups % 3 == 0 ? 3 : 2;
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t steps[Row::tiles][2][4];
#pragma unroll
    for (int m = 0; m < Row::tiles; ++m) weights.template decode<Cta>(cta.lane(), m, 0, half, steps[m]);
    const unsigned char* chunk = tokens + token_offset<Row>(g, 0, 4 * half + t);
#pragma unroll
    for (int first = 0; first < Row::groups; first += kTogether) {
      device::U32x4 b[kTogether];
#pragma unroll
      for (int n = 0; n < kTogether; ++n)
        b[n] = cta.load_shared(
            reinterpret_cast<const device::U32x4*>(chunk + (first + n) * kTokens * Row::token_row_bytes));
#pragma unroll
      for (int s = 0; s < 2; ++s)
#pragma unroll
        for (int n = 0; n < kTogether; ++n)
#pragma unroll
          for (int m = 0; m < Row::tiles; ++m)
            cta.mma_bf16(sum[m][first + n], steps[m][s], b[n].v[2 * s], b[n].v[2 * s + 1]);
    }
  }
}

}  // namespace fourfold::dense
