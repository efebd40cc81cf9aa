// The shared expert's down projection, in the shadow of GEMM1: its input is older than GEMM1, so a warp
// of its own multiplies a GEMM2 block's rows while the others route and wait for GEMM1's result. Plain row
// order; the sums are those of dense_few, bit for bit.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/functions.h"
#include "kernels/device/types.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/record/lane_tile.h"

namespace fourfold::moe_few {

// Records whose loads are in flight together.
template <int Tiles>
inline constexpr int kSharedAhead = 2 / Tiles;

// One segment of K, a chain of products in ascending order.
template <class Format, int Tiles, class Cta>
FOURFOLD_DEVICE void shared_segment(Cta cta, const unsigned char* records, const std::uint16_t* token,
                                    int count, int first_tile, float (&sum)[Tiles][4]) {
  constexpr int ahead = kSharedAhead<Tiles>;
  const auto read = [&](const auto* from) { return cta.load_stream(from); };
#pragma unroll 1
  for (int first = 0; first < count; first += ahead) {
    record::LaneTiles<Format, Tiles> weights[ahead];
    device::U32x4 chunk[ahead][2];
#pragma unroll
    for (int r = 0; r < ahead; ++r) {
      if (first + r >= count) break;
      weights[r].load(cta.lane(), read, records + (first + r) * record::kRecordBytes<Format>, first_tile);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        chunk[r][half] = cta.load(
            reinterpret_cast<const device::U32x4*>(token + (first + r) * record::kColumns + 32 * half));
    }
#pragma unroll
    for (int r = 0; r < ahead; ++r) {
      if (first + r >= count) break;
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int m = 0; m < Tiles; ++m) {
          std::uint32_t steps[2][4];
          weights[r].template decode<Cta>(cta.lane(), m, first_tile, half, steps);
#pragma unroll
          for (int s = 0; s < 2; ++s)
            cta.mma_bf16(sum[m], steps[s], chunk[r][half].v[2 * s], chunk[r][half].v[2 * s + 1]);
        }
    }
  }
}

// The factors of complete sums, as dense_few's epilogue has them. bf16 sums without row scales are complete.
template <class Row, class Format, class Cta>
FOURFOLD_DEVICE void finish_shared(Cta cta, const SharedDown& shared, int strip, int first_tile,
                                   float (&total)[Row::rows / 16][4]) {
  const int row = record::kRows * strip + record::kRows / 2 * first_tile + 2 * (cta.lane() >> 2);
#pragma unroll
  for (int m = 0; m < Row::rows / 16; ++m) {
    device::F32x2 scale{{1.0f, 1.0f}};
    if (shared.row_scale)
      scale =
          cta.load(reinterpret_cast<const device::F32x2*>(shared.row_scale + row + record::kRows / 2 * m));
#pragma unroll
    for (int i = 0; i < 4; ++i)
      total[m][i] = Cta::mul(Cta::mul(total[m][i], Format::half_decode_factor), scale.v[i / 2]);
  }
}

// One warp: rows [token][row] of this block times the tokens' gates, into shared memory.
template <class Row, class Format, class Cta>
FOURFOLD_DEVICE void multiply_shared_as(Cta cta, const SharedDown& shared, int tokens, int strip,
                                        int first_tile, float (&out)[kFewTokens][Row::rows]) {
  constexpr int tiles = Row::rows / 16, segment_records = moe::kSegmentColumns / record::kColumns;
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
  const std::uint16_t* token =
      shared.tokens +
      static_cast<std::int64_t>(g < tokens ? g : tokens - 1) * shared.records * record::kColumns + 8 * t;
  const unsigned char* records =
      shared.weights + static_cast<std::int64_t>(strip) * shared.records * record::kRecordBytes<Format>;
  float total[tiles][4];
#pragma unroll 1
  for (int first = 0; first < shared.records; first += segment_records) {
    const int left = shared.records - first;
    float sum[tiles][4] = {};
    shared_segment<Format, tiles>(cta, records + first * record::kRecordBytes<Format>,
                                  token + first * record::kColumns,
                                  left < segment_records ? left : segment_records, first_tile, sum);
#pragma unroll
    for (int m = 0; m < tiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) total[m][i] = first == 0 ? sum[m][i] : Cta::add(total[m][i], sum[m][i]);
  }
  finish_shared<Row, Format>(cta, shared, strip, first_tile, total);
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    const int place = 2 * t + b;
    if (place >= tokens) continue;
    const float open =
        shared.gate ? device::sigmoid<Cta>(cta.load(shared.gate + place * shared.gate_stride)) : 1.0f;
#pragma unroll
    for (int m = 0; m < tiles; ++m)
      cta.store_shared(reinterpret_cast<device::F32x2*>(&out[place][16 * m]) + g,
                       device::F32x2{{Cta::mul(open, total[m][b]), Cta::mul(open, total[m][2 + b])}});
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void multiply_shared(Cta cta, const SharedDown& shared, int tokens, int strip, int first_tile,
                                     float (&out)[kFewTokens][Row::rows]) {
  switch (shared.format) {
    case WeightFormat::bf16:
      return multiply_shared_as<Row, record::Bf16Format>(cta, shared, tokens, strip, first_tile, out);
    case WeightFormat::fp8:
      return multiply_shared_as<Row, record::Fp8Format>(cta, shared, tokens, strip, first_tile, out);
    case WeightFormat::nvfp4:
      return multiply_shared_as<Row, record::Nvfp4>(cta, shared, tokens, strip, first_tile, out);
    case WeightFormat::mxfp4:
    case WeightFormat::f32: break;  // refused where the layer is launched
  }
}

}  // namespace fourfold::moe_few
