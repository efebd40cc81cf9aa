// Register operands of mma.m16n8k16 out of shared memory, for both kinds of cached numbers. The k16 steps of
// a product over fp8 take their columns in an order of their own (see load_keys), which the query rows
// follow.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/attention/kv_numbers.h"
#include "kernels/attention/page_layout.h"
#include "kernels/device/types.h"

namespace fourfold::attention {

// Byte offset of 16-byte chunk `chunk` of query vector `row` among Rows of them.
template <int Rows>
constexpr std::uint32_t query_offset(int row, int chunk) {
  return static_cast<std::uint32_t>(chunk / 8 * Rows * 128) +
         device::swizzled_offset(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(chunk % 8));
}

// Sixteen columns of a query vector as they go to shared memory. For fp8, step slots 2t, 2t + 1, 8 + 2t,
// 9 + 2t are columns 4t to 4t + 3: what one register of an ldmatrix over bytes holds.
template <class Kv>
FOURFOLD_DEVICE void order_query(device::U32x4& low, device::U32x4& high) {
  if constexpr (Kv::bytes == 1) {
    const device::U32x4 first = low, second = high;
    low = {{first.v[0], first.v[2], second.v[0], second.v[2]}};
    high = {{first.v[1], first.v[3], second.v[1], second.v[3]}};
  }
}

// Vectors to shared memory by Threads threads, of which this is number `thread`. vector_at(i) is where vector
// i lies, or null for zeros.
template <class Layout, int Vectors, int Threads, class Cta, class VectorAt>
FOURFOLD_DEVICE void stage_vectors(Cta cta, int thread, unsigned char* to, const VectorAt& vector_at) {
  constexpr int groups = Layout::head_dim / 16;  // of 16 columns, in a vector
  constexpr int passes = (Vectors * groups + Threads - 1) / Threads, batch = passes < 4 ? passes : 4;
  static_assert(passes % batch == 0);
#pragma unroll 1
  for (int first = 0; first < passes; first += batch) {
    device::U32x4 low[batch]{}, high[batch]{};
    // All of a batch are on their way before the first one is stored.
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int at = (first + i) * Threads + thread;
      const std::uint16_t* from = at < Vectors * groups ? vector_at(at / groups) : nullptr;
      if (from == nullptr) continue;
      low[i] = cta.load(reinterpret_cast<const device::U32x4*>(from + 16 * (at % groups)));
      high[i] = cta.load(reinterpret_cast<const device::U32x4*>(from + 16 * (at % groups) + 8));
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int at = (first + i) * Threads + thread, vector = at / groups, group = at % groups;
      if (at >= Vectors * groups) break;
      order_query<typename Layout::Kv>(low[i], high[i]);
      // Lanes of the second half of a 128-byte row store their odd chunk first: no bank is asked twice.
      const int odd = group >> 2 & 1;
      const auto chunk_at = [&](int chunk) {
        return reinterpret_cast<device::U32x4*>(to + query_offset<Vectors>(vector, chunk));
      };
      cta.store_shared(chunk_at(2 * group + odd), odd ? high[i] : low[i]);
      cta.store_shared(chunk_at(2 * group + 1 - odd), odd ? low[i] : high[i]);
    }
  }
}

// The A operand of step `step` for query vectors 16 * tile on; or of weights, whose rows are positions.
template <int Rows, class Cta>
FOURFOLD_DEVICE void load_rows(Cta cta, const unsigned char* rows, int tile, int step,
                               std::uint32_t (&a)[4]) {
  const device::U32x4 four = cta.load_matrix_x4(
      rows + query_offset<Rows>(16 * tile + (cta.lane() & 15), 2 * step + (cta.lane() >> 4)));
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = four.v[i];
}

// The B operands of steps `step` to step + 3 of a piece of K, for Tiles n8 tiles of positions from `position`
// on: [step][tile][register].
template <class Layout, int Tiles, class Cta>
FOURFOLD_DEVICE void load_keys(Cta cta, const unsigned char* piece, int position, int step,
                               std::uint32_t (&b)[4][Tiles][2]) {
  constexpr int chunks = Layout::Kv::bytes;  // of a step
  constexpr int loads = chunks * Tiles;      // of four matrices each
  constexpr int matrices = 4 / Tiles;        // of one tile in a load: neighbouring chunks
  static_assert(Tiles == 1 || Tiles == 2);
  const int matrix = cta.lane() >> 3;
  const int row = position + (cta.lane() & 7) + 8 * (matrix / matrices);
#pragma unroll
  for (int load = 0; load < loads; ++load) {
    const int chunk = chunks * step + matrices * load + matrix % matrices;
    const device::U32x4 four =
        cta.load_matrix_x4(piece + chunk_offset<Layout::key_row_bytes>(static_cast<std::uint32_t>(row),
                                                                       static_cast<std::uint32_t>(chunk)));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int tile = i / matrices, from_first = matrices * load + i % matrices;
      if constexpr (chunks == 2) {
        b[from_first / 2][tile][from_first % 2] = four.v[i];
      } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) b[from_first][tile][half] = decode_e4m3x2<Cta>(four.v[i], half);
      }
    }
  }
}

// The B operands of a page's four steps of 16 positions, for dimensions dim to dim + 7 of a piece of V.
template <class Layout, class Cta>
FOURFOLD_DEVICE void load_values(Cta cta, const unsigned char* piece, int dim, std::uint32_t (&b)[4][2]) {
  const int lane = cta.lane();
  const auto row = static_cast<std::uint32_t>(dim + (lane & 7)),
             chunk = static_cast<std::uint32_t>(lane >> 3);
  if constexpr (Layout::Kv::bytes == 2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const device::U32x4 four =
          cta.load_matrix_x4(piece + chunk_offset<Layout::value_row_bytes>(row, 4 * half + chunk));
#pragma unroll
      for (int i = 0; i < 4; ++i) b[2 * half + i / 2][i % 2] = four.v[i];
    }
  } else {
    const device::U32x4 four = cta.load_matrix_x4(piece + chunk_offset<Layout::value_row_bytes>(row, chunk));
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) b[i][half] = decode_e4m3x2<Cta>(four.v[i], half);
  }
}

// Which of a page's positions hold values: bytes of others may be anything, and 0 * NaN is not 0. One mask
// for each register of load_values; `count` positions from the first are good.
template <class Cta>
FOURFOLD_DEVICE void mask_values(Cta cta, int count, std::uint32_t (&mask)[4][2]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int left = count - (8 * i + 2 * (cta.lane() & 3));
    mask[i / 2][i % 2] = left >= 2 ? 0xFFFFFFFFu : left == 1 ? 0x0000FFFFu : 0u;
  }
}

}  // namespace fourfold::attention
