// Sixteen lanes in one AVX-512 register. See lanes_plain.h for what each function means.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa.h"

namespace fourfold::cpu {

struct Avx512Lanes {
  static constexpr Isa isa = Isa::avx512;
  static constexpr int float_tile = 8;
  static constexpr int code_tile = 16;
  // vpdpbusd takes one operand without sign, so codes are decoded as 0..24 and the sums corrected.
  static constexpr int code_bias = 12;

  using F = __m512;
  using I = __m512i;
  struct Codes {
    __m512i columns[4];  // [four columns each][16 rows x 4]
  };

  // A tile of a product (tile.h): sixteen rows, whose numbers the fused operation broadcasts itself.
  using V = __m512;
  using Four = const float*;
  static constexpr int vector = 16;
  static constexpr int tile_rows = 16;
  template <int Rows>
  static constexpr int tile_vectors = 1;
  static V zero_vector() { return zero(); }
  static V broadcast_vector(float x) { return broadcast(x); }
  static V load_vector(const float* p) { return load(p); }
  static V load_vector(const std::uint16_t* p) { return load_bf16(p); }
  static void store_vector(float* p, V x) { store(p, x); }
  static V add_vector(V a, V b) { return add(a, b); }
  static V mul_vector(V a, V b) { return mul(a, b); }
  static V fma_vector(V a, V b, V c) { return fma(a, b, c); }
  static Four load_four(const float* p) { return p; }
  template <int Which>
  static V mul_of_four(Four a, V b) {
    return _mm512_mul_ps(_mm512_set1_ps(a[Which]), b);
  }
  template <int Which>
  static V fma_of_four(Four a, V b, V c) {
    return _mm512_fmadd_ps(_mm512_set1_ps(a[Which]), b, c);
  }

  // Four rows of four become the columns of rows `Stride` apart.
  template <int Stride>
  static void transpose_four(const float* p, std::int64_t stride, float* to) {
    __m128 a = _mm_loadu_ps(p), b = _mm_loadu_ps(p + stride);
    __m128 c = _mm_loadu_ps(p + 2 * stride), d = _mm_loadu_ps(p + 3 * stride);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a), _mm_storeu_ps(to + Stride, b);
    _mm_storeu_ps(to + 2 * Stride, c), _mm_storeu_ps(to + 3 * Stride, d);
  }

  static F broadcast(float x) { return _mm512_set1_ps(x); }
  static F zero() { return _mm512_setzero_ps(); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F larger(F a, F b) { return _mm512_max_ps(a, b); }
  static F smaller(F a, F b) { return _mm512_min_ps(a, b); }
  static F nearest(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F floor(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
  static F select_less(F a, F b, F x, F y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
  }
  static F round_bf16(F x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __m512i rounded = _mm512_and_si512(sum, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u)));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_blend_ps(is_nan, _mm512_castsi512_ps(rounded), x);
  }
  static void store_int8(std::int8_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
  }
  static F power_of_two(F x) {
    const __m512i exponent = _mm512_add_epi32(_mm512_cvttps_epi32(x), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
  }
  static float sum(F x) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  static float largest(F x) { return _mm512_reduce_max_ps(x); }

  static F load_bf16(const std::uint16_t* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static void load_bf16_pairs(const std::uint8_t* p, F& even, F& odd) {
    const __m512i pairs = _mm512_loadu_si512(p);
    even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
  }
  static F load_e4m3(const std::uint8_t* p) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
    const __m256i sign = _mm256_and_si256(high, _mm256_set1_epi16(static_cast<short>(0x8000)));
    const __m256i size = _mm256_srli_epi16(_mm256_slli_epi16(high, 1), 2);
    return _mm512_cvtph_ps(_mm256_or_si256(sign, size));
  }

  static I broadcast_int(std::int32_t x) { return _mm512_set1_epi32(x); }
  static I shift_up_8_and_add(I high, I low) { return _mm512_add_epi32(_mm512_slli_epi32(high, 8), low); }
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }

  static Codes decode(const std::uint8_t* p) {
    const __m512i table =
        _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m512i low = _mm512_set1_epi8(15);
    Codes codes;
    for (int half = 0; half < 2; ++half) {
      const __m512i pairs = _mm512_loadu_si512(p + 64 * half);
      codes.columns[2 * half] = _mm512_shuffle_epi8(table, _mm512_and_si512(pairs, low));
      codes.columns[2 * half + 1] =
          _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(pairs, 4), low));
    }
    return codes;
  }
  static I dot(const Codes& codes, const std::int8_t* x, I start) {
    for (int group = 0; group < 4; ++group) {
      std::int32_t four;
      std::memcpy(&four, x + 4 * group, sizeof four);
      start = _mm512_dpbusd_epi32(start, codes.columns[group], _mm512_set1_epi32(four));
    }
    return start;
  }
};

}  // namespace fourfold::cpu
