// Sixteen lanes in four NEON registers. See lanes_plain.h for what each function means.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/cpu/isa.h"

namespace fourfold::cpu {

struct NeonLanes {
  static constexpr Isa isa = Isa::neon;
  static constexpr int float_tile = 2;
  static constexpr int code_tile = 4;
  static constexpr int code_bias = 0;

  struct F {
    float32x4_t part[4];
  };
  struct I {
    int32x4_t part[4];
  };
  struct Codes {
    int8x16_t columns[4][4];  // [four columns each][four rows each]
  };

  // A tile of a product (tile.h): one register of columns, eight rows and two of them at a time.
  using V = float32x4_t;
  using Four = float32x4_t;
  static constexpr int vector = 4;
  static constexpr int tile_rows = 8;
  // Few rows need more columns: sums are to be so many that one is done when its turn comes again.
  template <int Rows>
  static constexpr int tile_vectors = Rows > 4 ? 2 : 4;
  static V zero_vector() { return vdupq_n_f32(0); }
  static V broadcast_vector(float x) { return vdupq_n_f32(x); }
  static V load_vector(const float* p) { return vld1q_f32(p); }
  static V load_vector(const std::uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
  static void store_vector(float* p, V x) { vst1q_f32(p, x); }
  static V add_vector(V a, V b) { return vaddq_f32(a, b); }
  static V mul_vector(V a, V b) { return vmulq_f32(a, b); }
  static V fma_vector(V a, V b, V c) { return vfmaq_f32(c, a, b); }
  static Four load_four(const float* p) { return vld1q_f32(p); }
  template <int Which>
  static V mul_of_four(Four a, V b) {
    return vmulq_laneq_f32(b, a, Which);
  }
  template <int Which>
  static V fma_of_four(Four a, V b, V c) {
    return vfmaq_laneq_f32(c, b, a, Which);
  }

  // Four rows of four become the columns of rows `Stride` apart.
  template <int Stride>
  static void transpose_four(const float* p, std::int64_t stride, float* to) {
    const float32x4x2_t low = vtrnq_f32(vld1q_f32(p), vld1q_f32(p + stride));
    const float32x4x2_t high = vtrnq_f32(vld1q_f32(p + 2 * stride), vld1q_f32(p + 3 * stride));
    for (int i = 0; i < 2; ++i) {
      vst1q_f32(to + i * Stride, vcombine_f32(vget_low_f32(low.val[i]), vget_low_f32(high.val[i])));
      vst1q_f32(to + (2 + i) * Stride, vcombine_f32(vget_high_f32(low.val[i]), vget_high_f32(high.val[i])));
    }
  }

  template <class Make>
  static F each(Make make) {
    return {{make(0), make(1), make(2), make(3)}};
  }

  static F broadcast(float x) {
    return each([&](int) { return vdupq_n_f32(x); });
  }
  static F zero() { return broadcast(0); }
  static F load(const float* p) {
    return each([&](int i) { return vld1q_f32(p + 4 * i); });
  }
  static void store(float* p, const F& x) {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.part[i]);
  }
  static F add(const F& a, const F& b) {
    return each([&](int i) { return vaddq_f32(a.part[i], b.part[i]); });
  }
  static F sub(const F& a, const F& b) {
    return each([&](int i) { return vsubq_f32(a.part[i], b.part[i]); });
  }
  static F mul(const F& a, const F& b) {
    return each([&](int i) { return vmulq_f32(a.part[i], b.part[i]); });
  }
  static F div(const F& a, const F& b) {
    return each([&](int i) { return vdivq_f32(a.part[i], b.part[i]); });
  }
  static F fma(const F& a, const F& b, const F& c) {
    return each([&](int i) { return vfmaq_f32(c.part[i], a.part[i], b.part[i]); });
  }
  static F larger(const F& a, const F& b) {
    return each([&](int i) { return vbslq_f32(vcgtq_f32(a.part[i], b.part[i]), a.part[i], b.part[i]); });
  }
  static F smaller(const F& a, const F& b) {
    return each([&](int i) { return vbslq_f32(vcltq_f32(a.part[i], b.part[i]), a.part[i], b.part[i]); });
  }
  static F nearest(const F& x) {
    return each([&](int i) { return vrndnq_f32(x.part[i]); });
  }
  static F floor(const F& x) {
    return each([&](int i) { return vrndmq_f32(x.part[i]); });
  }
  static F select_less(const F& a, const F& b, const F& x, const F& y) {
    return each([&](int i) { return vbslq_f32(vcltq_f32(a.part[i], b.part[i]), x.part[i], y.part[i]); });
  }
  static F round_bf16(const F& x) {
    return each([&](int i) {
      const uint32x4_t bits = vreinterpretq_u32_f32(x.part[i]);
      const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
      const uint32x4_t sum = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7FFF)), odd);
      const float32x4_t rounded = vreinterpretq_f32_u32(vandq_u32(sum, vdupq_n_u32(0xFFFF0000u)));
      return vbslq_f32(vceqq_f32(x.part[i], x.part[i]), rounded, x.part[i]);
    });
  }
  static void store_int8(std::int8_t* p, const F& x) {
    int16x4_t words[4];
    for (int i = 0; i < 4; ++i) words[i] = vmovn_s32(vcvtnq_s32_f32(x.part[i]));
    vst1_s8(p, vmovn_s16(vcombine_s16(words[0], words[1])));
    vst1_s8(p + 8, vmovn_s16(vcombine_s16(words[2], words[3])));
  }
  static F power_of_two(const F& x) {
    return each([&](int i) {
      const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(x.part[i]), vdupq_n_s32(127));
      return vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23));
    });
  }
  static float sum(const F& x) {
    const float32x4_t four = vaddq_f32(vaddq_f32(x.part[0], x.part[2]), vaddq_f32(x.part[1], x.part[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
  static float largest(const F& x) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.part[0], x.part[1]), vmaxq_f32(x.part[2], x.part[3])));
  }

  static F load_bf16(const std::uint16_t* p) {
    return each([&](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
  }
  static void load_bf16_pairs(const std::uint8_t* p, F& even, F& odd) {
    for (int i = 0; i < 4; ++i) {
      const uint32x4_t pairs = vreinterpretq_u32_u8(vld1q_u8(p + 16 * i));
      even.part[i] = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
      odd.part[i] = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xFFFF0000u)));
    }
  }
  static F load_e4m3(const std::uint8_t* p) {
    const uint8x16_t codes = vld1q_u8(p);
    F out;
    for (int half = 0; half < 2; ++half) {
      const uint16x8_t high = vshlq_n_u16(vmovl_u8(half == 0 ? vget_low_u8(codes) : vget_high_u8(codes)), 8);
      const uint16x8_t size = vshrq_n_u16(vshlq_n_u16(high, 1), 2);
      const float16x8_t halves = vreinterpretq_f16_u16(vorrq_u16(vandq_u16(high, vdupq_n_u16(0x8000)), size));
      out.part[2 * half] = vcvt_f32_f16(vget_low_f16(halves));
      out.part[2 * half + 1] = vcvt_high_f32_f16(halves);
    }
    return out;
  }

  static I broadcast_int(std::int32_t x) {
    const int32x4_t four = vdupq_n_s32(x);
    return {{four, four, four, four}};
  }
  static I shift_up_8_and_add(const I& high, const I& low) {
    I out;
    for (int i = 0; i < 4; ++i) out.part[i] = vaddq_s32(vshlq_n_s32(high.part[i], 8), low.part[i]);
    return out;
  }
  static F to_float(const I& x) {
    return each([&](int i) { return vcvtq_f32_s32(x.part[i]); });
  }

  static Codes decode(const std::uint8_t* p) {
    const int8x16_t table = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    Codes codes;
    for (int half = 0; half < 2; ++half)
      for (int rows = 0; rows < 4; ++rows) {
        const uint8x16_t pairs = vld1q_u8(p + 64 * half + 16 * rows);
        codes.columns[2 * half][rows] = vqtbl1q_s8(table, vandq_u8(pairs, vdupq_n_u8(15)));
        codes.columns[2 * half + 1][rows] = vqtbl1q_s8(table, vshrq_n_u8(pairs, 4));
      }
    return codes;
  }
  static I dot(const Codes& codes, const std::int8_t* x, I start) {
    const int8x16_t all = vld1q_s8(x);
    for (int rows = 0; rows < 4; ++rows) {
      start.part[rows] = vdotq_laneq_s32(start.part[rows], codes.columns[0][rows], all, 0);
      start.part[rows] = vdotq_laneq_s32(start.part[rows], codes.columns[1][rows], all, 1);
      start.part[rows] = vdotq_laneq_s32(start.part[rows], codes.columns[2][rows], all, 2);
      start.part[rows] = vdotq_laneq_s32(start.part[rows], codes.columns[3][rows], all, 3);
    }
    return start;
  }
};

}  // namespace fourfold::cpu
