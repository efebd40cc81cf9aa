// Sixteen lanes in two AVX registers. See lanes_plain.h for what each function means.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa.h"

namespace fourfold::cpu {

struct Avx2Lanes {
  static constexpr Isa isa = Isa::avx2;
  static constexpr int float_tile = 2;
  static constexpr int code_tile = 4;
  static constexpr int code_bias = 12;  // vpmaddubsw takes one operand without sign

  struct F {
    __m256 low, high;
  };
  struct I {
    __m256i low, high;
  };
  struct Codes {
    __m256i columns[4][2];  // [four columns each][rows 0-7, rows 8-15]
  };

  // A tile of a product (tile.h): twelve registers of sums, two of columns.
  using V = __m256;
  using Four = const float*;
  static constexpr int vector = 8;
  static constexpr int tile_rows = 6;
  template <int Rows>
  static constexpr int tile_vectors = 2;
  static V zero_vector() { return _mm256_setzero_ps(); }
  static V broadcast_vector(float x) { return _mm256_set1_ps(x); }
  static V load_vector(const float* p) { return _mm256_loadu_ps(p); }
  static V load_vector(const std::uint16_t* p) { return widen_bf16(load_half(p)); }
  static void store_vector(float* p, V x) { _mm256_storeu_ps(p, x); }
  static V add_vector(V a, V b) { return _mm256_add_ps(a, b); }
  static V mul_vector(V a, V b) { return _mm256_mul_ps(a, b); }
  static V fma_vector(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static Four load_four(const float* p) { return p; }
  template <int Which>
  static V mul_of_four(Four a, V b) {
    return _mm256_mul_ps(_mm256_broadcast_ss(a + Which), b);
  }
  template <int Which>
  static V fma_of_four(Four a, V b, V c) {
    return _mm256_fmadd_ps(_mm256_broadcast_ss(a + Which), b, c);
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

  static F broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x.low), _mm256_storeu_ps(p + 8, x.high); }
  static F add(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static F sub(F a, F b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  static F mul(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static F div(F a, F b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  static F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static F larger(F a, F b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
  static F smaller(F a, F b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
  static F nearest(F x) {
    constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.low, mode), _mm256_round_ps(x.high, mode)};
  }
  static F floor(F x) { return {_mm256_floor_ps(x.low), _mm256_floor_ps(x.high)}; }
  static F select_less(F a, F b, F x, F y) {
    return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
            _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
  }
  static __m256 round_bf16_half(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i rounded = _mm256_and_si256(sum, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u)));
    return _mm256_blendv_ps(_mm256_castsi256_ps(rounded), x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  }
  static F round_bf16(F x) { return {round_bf16_half(x.low), round_bf16_half(x.high)}; }
  static void store_int8(std::int8_t* p, F x) {
    // Packing interleaves the halves of both operands; the permutation puts them in order again.
    const __m256i words = _mm256_permute4x64_epi64(
        _mm256_packs_epi32(_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)), 0xD8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
  static __m256 power_of_two_half(__m256 x) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvttps_epi32(x), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  }
  static F power_of_two(F x) { return {power_of_two_half(x.low), power_of_two_half(x.high)}; }
  static float sum(F x) {
    const __m256 eight = _mm256_add_ps(x.low, x.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  static float largest(F x) {
    const __m256 eight = _mm256_max_ps(x.low, x.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
  }

  static __m256 widen_bf16(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static __m128i load_half(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static __m256i load_whole(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static F load_bf16(const std::uint16_t* p) {
    return {widen_bf16(load_half(p)), widen_bf16(load_half(p + 8))};
  }
  static void load_bf16_pairs(const std::uint8_t* p, F& even, F& odd) {
    const __m256i low = load_whole(p);
    const __m256i high = load_whole(p + 32);
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
    even = {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
    odd = {_mm256_castsi256_ps(_mm256_and_si256(low, upper)),
           _mm256_castsi256_ps(_mm256_and_si256(high, upper))};
  }
  static F load_e4m3(const std::uint8_t* p) {
    const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(load_half(p)), 8);
    const __m256i sign = _mm256_and_si256(high, _mm256_set1_epi16(static_cast<short>(0x8000)));
    const __m256i bits = _mm256_or_si256(sign, _mm256_srli_epi16(_mm256_slli_epi16(high, 1), 2));
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(bits)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(bits, 1))};
  }

  static I broadcast_int(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static I shift_up_8_and_add(I high, I low) {
    return {_mm256_add_epi32(_mm256_slli_epi32(high.low, 8), low.low),
            _mm256_add_epi32(_mm256_slli_epi32(high.high, 8), low.high)};
  }
  static F to_float(I x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }

  static Codes decode(const std::uint8_t* p) {
    const __m256i table =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m256i low = _mm256_set1_epi8(15);
    Codes codes;
    for (int half = 0; half < 2; ++half)
      for (int rows = 0; rows < 2; ++rows) {
        const __m256i pairs = load_whole(p + 64 * half + 32 * rows);
        codes.columns[2 * half][rows] = _mm256_shuffle_epi8(table, _mm256_and_si256(pairs, low));
        codes.columns[2 * half + 1][rows] =
            _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(pairs, 4), low));
      }
    return codes;
  }
  // Eight products of at most 24 * 128 stay below 2^15, so the sums of a block fit into 16 bits.
  static I dot(const Codes& codes, const std::int8_t* x, I start) {
    __m256i low = _mm256_setzero_si256();
    __m256i high = _mm256_setzero_si256();
    for (int group = 0; group < 4; ++group) {
      std::int32_t four;
      std::memcpy(&four, x + 4 * group, sizeof four);
      const __m256i columns = _mm256_set1_epi32(four);
      low = _mm256_add_epi16(low, _mm256_maddubs_epi16(codes.columns[group][0], columns));
      high = _mm256_add_epi16(high, _mm256_maddubs_epi16(codes.columns[group][1], columns));
    }
    const __m256i ones = _mm256_set1_epi16(1);
    return {_mm256_add_epi32(start.low, _mm256_madd_epi16(low, ones)),
            _mm256_add_epi32(start.high, _mm256_madd_epi16(high, ones))};
  }
};

}  // namespace fourfold::cpu
