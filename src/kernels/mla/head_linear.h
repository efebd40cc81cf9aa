// A small matrix for each head, on tensor cores and straight from memory: no weight is read twice by a warp,
// so shared memory would only be a detour. A warp takes 64 columns of one head's result for 16 or 32 rows;
// the warps of a block take the next rows of the same columns, and find the weights in the SM's cache.
//
// Lane t of a quad has eight neighbouring input columns of every 32: two k16 steps of four. The weights are
// read to match, as they are stored: [out][in] gives the registers as they lie, [in][out] is paired with
// byte_permute. Either way n8 tile j has columns j, 8 + j, ..., 56 + j, so a lane's results are sixteen
// neighbours. A result's sum runs over the input columns in this one order, whatever the number of rows.
//
// Few rows come from a kernel that is short, and a weight waits for memory longer than for them: the weights
// of the first steps are asked for before the rows are there.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/mla/mla_params.h"

namespace fourfold::mla {

inline constexpr int kStepColumns = 32;  // of the input, two k16 steps
// Of few rows, whose weights are on their way at once: 16 KB a warp, 128 registers.
inline constexpr int kEarlySteps = 4;

// Rows of weights are read once where a warp has few rows; more rows find them in the cache.
template <class Row, class Cta>
FOURFOLD_DEVICE device::U32x4 load_weight_chunk(Cta cta, const std::uint16_t* from, bool is_there) {
  if (!is_there) return {};
  const auto* chunk = reinterpret_cast<const device::U32x4*>(from);
  if constexpr (Row::tiles == 1) return cta.load_stream(chunk);
  return cta.load(chunk);
}

// The weights of 32 input columns as they lie in memory, eight chunks a lane.
struct StepWeights {
  device::U32x4 chunk[8];
};

template <class Row, class Cta>
FOURFOLD_DEVICE void ask_weights(Cta cta, const HeadLinearParams& params, int head, int out_first, int first,
                                 StepWeights& weights) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
  const int in = first + 8 * t, out = out_first + 8 * g;
  const bool is_there = in < params.in_columns && out < params.out_columns;
  const std::int64_t stride = params.weight_stride;
  const std::int64_t row = Row::transposed ? static_cast<std::int64_t>(head) * params.in_columns + in
                                           : static_cast<std::int64_t>(head) * params.out_columns + out;
  const std::uint16_t* from = params.weight + row * stride + (Row::transposed ? out : in);
#pragma unroll
  for (int i = 0; i < 8; ++i) weights.chunk[i] = load_weight_chunk<Row>(cta, from + i * stride, is_there);
}

// The B operands of both k16 steps: [step][n8 tile][register].
template <class Row, class Cta>
FOURFOLD_DEVICE void pair_weights(Cta, const StepWeights& weights, std::uint32_t (&b)[2][8][2]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Row::transposed) {
      const device::U32x4 &even = weights.chunk[2 * i], &odd = weights.chunk[2 * i + 1];
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        b[i / 2][2 * word][i % 2] = Cta::byte_permute(even.v[word], odd.v[word], 0x5410u);
        b[i / 2][2 * word + 1][i % 2] = Cta::byte_permute(even.v[word], odd.v[word], 0x7632u);
      }
    } else {
#pragma unroll
      for (int n = 0; n < 8; ++n) b[i / 2][n][i % 2] = weights.chunk[n].v[i];
    }
  }
}

// Eight neighbouring input columns of a row as bf16 pairs.
template <class Row, class Cta>
FOURFOLD_DEVICE device::U32x4 load_input(Cta cta, const HeadLinearParams& params, int row, int head,
                                         int column) {
  using Element = typename Row::Element;
  if (row >= params.row_count || column >= params.in_columns) return {};
  const Element* from =
      static_cast<const Element*>(params.in) + row * params.in_stride + head * params.in_head_stride + column;
  if constexpr (std::is_same_v<Element, float>) {
    const auto low = cta.load(reinterpret_cast<const device::F32x4*>(from));
    const auto high = cta.load(reinterpret_cast<const device::F32x4*>(from + 4));
    return {{Cta::pack_bf16(low.v[0], low.v[1]), Cta::pack_bf16(low.v[2], low.v[3]),
             Cta::pack_bf16(high.v[0], high.v[1]), Cta::pack_bf16(high.v[2], high.v[3])}};
  } else {
    return cta.load(reinterpret_cast<const device::U32x4*>(from));
  }
}

// The A operands of 32 input columns: [m16 tile][step][register].
template <class Row>
using StepRows = std::uint32_t[Row::tiles][2][4];

template <class Row, class Cta>
FOURFOLD_DEVICE void load_rows(Cta cta, const HeadLinearParams& params, int first_row, int head, int first,
                               StepRows<Row>& a) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
#pragma unroll
  for (int m = 0; m < Row::tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const device::U32x4 in =
          load_input<Row>(cta, params, first_row + 16 * m + 8 * half + g, head, first + 8 * t);
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i / 2][half + 2 * (i % 2)] = in.v[i];
    }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_step(Cta cta, const StepWeights& weights, const StepRows<Row>& a,
                                   float (&sum)[Row::tiles][8][4]) {
  std::uint32_t b[2][8][2];
  pair_weights<Row>(cta, weights, b);
#pragma unroll
  for (int step = 0; step < 2; ++step)
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int m = 0; m < Row::tiles; ++m) cta.mma_bf16(sum[m][n], a[m][step], b[step][n][0], b[step][n][1]);
}

// Behind the last head's columns a row may be wider, as the matrix that reads it is: zeros.
template <class Row, class Cta>
FOURFOLD_DEVICE void store_head(Cta cta, const HeadLinearParams& params, int head, int out_first,
                                int first_row, const float (&sum)[Row::tiles][8][4]) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3, column = out_first + 16 * t;
  const bool pads = head == params.heads - 1 && out_first + kHeadColumns >= params.out_columns;
#pragma unroll
  for (int m = 0; m < Row::tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 16 * m + 8 * half + g;
      if (row >= params.row_count) continue;
      std::uint16_t* to = params.out + row * params.out_stride + head * params.out_head_stride;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        std::uint32_t pair[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
          pair[j] = Cta::pack_bf16(sum[m][2 * j][2 * half + i], sum[m][2 * j + 1][2 * half + i]);
        if (column < params.out_columns)
          cta.store(reinterpret_cast<device::U32x4*>(to + column + 8 * i),
                    device::U32x4{{pair[0], pair[1], pair[2], pair[3]}});
      }
      for (int i = 8 * t; pads && i < params.pad_columns; i += 32)
        cta.store(reinterpret_cast<device::U32x4*>(to + params.out_head_stride + i), device::U32x4{});
    }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void head_linear(Cta cta, const HeadLinearParams& params) {
  constexpr bool is_early = Row::tiles == 1;
  const int row_tiles = (params.row_count + Row::tokens - 1) / Row::tokens;
  const int out_tiles = (params.out_columns + kHeadColumns - 1) / kHeadColumns;
  const std::int64_t unit = static_cast<std::int64_t>(cta.block()) * kLatentWarps + cta.warp();
  const int first_row = static_cast<int>(unit % row_tiles) * Row::tokens;
  const int place = static_cast<int>(unit / row_tiles);
  const int head = place / out_tiles, out_first = place % out_tiles * kHeadColumns;
  StepWeights weights[Row::steps];
  const auto ask = [&](int first, StepWeights& to) {
    ask_weights<Row>(cta, params, head, out_first, first, to);
  };
  if (is_early && head < params.heads)
#pragma unroll
    for (int i = 0; i < Row::steps; ++i) ask(i * kStepColumns, weights[i]);
  cta.wait_predecessors();
  cta.release_successors();
  if (head >= params.heads) return;
  float sum[Row::tiles][8][4] = {};
#pragma unroll 1
  for (int begin = 0; begin < params.in_columns; begin += Row::steps * kStepColumns) {
    StepRows<Row> a[Row::steps];
#pragma unroll
    for (int i = 0; i < Row::steps; ++i) {
      if (!is_early || begin > 0) ask(begin + i * kStepColumns, weights[i]);
      load_rows<Row>(cta, params, first_row, head, begin + i * kStepColumns, a[i]);
    }
#pragma unroll
    for (int i = 0; i < Row::steps; ++i) {
      if (begin + i * kStepColumns >= params.in_columns) break;
      multiply_step<Row>(cta, weights[i], a[i], sum);
    }
  }
  store_head<Row>(cta, params, head, out_first, first_row, sum);
}

}  // namespace fourfold::mla
