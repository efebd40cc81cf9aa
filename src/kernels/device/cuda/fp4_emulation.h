// The FP4 MMA of SM120 computed on Hopper, bit for bit as the model in base/tensor_core.h says. It exists to
// prove the SM120 kernels on silicon that lacks the instruction, never to serve: a call costs hundreds of
// instructions.
//
// A quad's lane t holds columns 8t..8t+7 of each 32-half, so a 16-block lives in two lanes of the quad.
// Zeroing the other two gives exact block sums from ordinary f16 MMAs (products are multiples of 1/4, sums at
// most 576) with no data exchange; only the scales are shuffled.
#pragma once

#include <cstdint>

#include "base/tensor_core.h"

namespace fourfold::device::ptx {

__device__ __forceinline__ void mma_f16_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                                 std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Eight E2M1 codes to four f16 pairs {code j, code j + 4}, times 2^-14 (the exponent field starts at zero).
__device__ __forceinline__ void expand_e2m1(std::uint32_t codes, std::uint32_t (&pairs)[4]) {
#pragma unroll
  for (int j = 3; j >= 0; --j) {
    pairs[j] = ((codes >> 3) & 0x0E000E00u) | (codes & 0x80008000u);
    codes <<= 4;
  }
}

template <bool Mxfp4>
__device__ __noinline__ void emulate_mma_fp4(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1, std::uint32_t scale_a, std::uint32_t scale_b,
                                             int thread_a, int thread_b) {
  const unsigned lane = threadIdx.x & 31u, quad = lane & ~3u, t = lane & 3u;
  float block[4][4];
#pragma unroll
  for (int b = 0; b < 4; ++b) {
    const int half = b >> 1;
    const bool mine = (t >> 1) == (static_cast<unsigned>(b) & 1u);
    std::uint32_t low[4], high[4], column[4];
    expand_e2m1(mine ? a[2 * half] : 0u, low);
    expand_e2m1(mine ? a[2 * half + 1] : 0u, high);
    expand_e2m1(half ? b1 : b0, column);
    block[b][0] = block[b][1] = block[b][2] = block[b][3] = 0.0f;
    const std::uint32_t first[4] = {low[0], high[0], low[1], high[1]};
    const std::uint32_t second[4] = {low[2], high[2], low[3], high[3]};
    mma_f16_m16n8k16(block[b], first, column[0], column[1]);
    mma_f16_m16n8k16(block[b], second, column[2], column[3]);
  }
  const std::uint32_t row_scale[2] = {__shfl_sync(~0u, scale_a, quad + 2 * thread_a),
                                      __shfl_sync(~0u, scale_a, quad + 2 * thread_a + 1)};
  const std::uint32_t column_scale[2] = {__shfl_sync(~0u, scale_b, 8 * t + thread_b),
                                         __shfl_sync(~0u, scale_b, 8 * t + 4 + thread_b)};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::int32_t sum_x4[4], exponent[4], product[4];
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int byte = Mxfp4 ? b >> 1 : b;
      const std::uint32_t ra = row_scale[i >> 1] >> (8 * byte), cb = column_scale[i & 1] >> (8 * byte);
      const tensor_core::ScaleParts pa = Mxfp4 ? tensor_core::split_ue8m0(ra) : tensor_core::split_ue4m3(ra);
      const tensor_core::ScaleParts pb = Mxfp4 ? tensor_core::split_ue8m0(cb) : tensor_core::split_ue4m3(cb);
      sum_x4[b] = static_cast<std::int32_t>(block[b][i] *
                                            1073741824.0f);  // x 2^28 undoes the codes' 2^-14 twice, x 4
      exponent[b] = pa.exponent + pb.exponent;
      product[b] = pa.significand * pb.significand;
    }
    if constexpr (Mxfp4) {
      // Two scales: blocks of 32 are summed exactly before they are scaled.
      sum_x4[0] += sum_x4[1];
      sum_x4[1] = sum_x4[2] + sum_x4[3];
      exponent[1] = exponent[2];
      product[1] = product[2];
      d[i] = tensor_core::fused_sum_fp4(d[i], sum_x4, exponent, product, 0, 2);
    } else {
      d[i] = tensor_core::fused_sum_fp4(d[i], sum_x4, exponent, product, 6, 4);
    }
  }
}

}  // namespace fourfold::device::ptx
