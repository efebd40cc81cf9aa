// Sixteen lanes in plain C++: what the other lanes_*.h do with registers. A lane is one row of a weight
// matrix, or one of sixteen neighbours of a vector.
//
// Every function is the same IEEE operation on every instruction set (fma is fused everywhere), so a kernel
// written with lanes gives the same bits wherever it runs.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa.h"

namespace fourfold::cpu {

struct PlainLanes {
  static constexpr Isa isa = Isa::plain;
  static constexpr int float_tile = 4;  // tokens that one decoded weight serves in float kernels
  static constexpr int code_tile = 4;   // and in those of FP4
  static constexpr int code_bias = 0;   // what decode() adds to a doubled code

  struct F {
    float lane[16];
  };
  struct I {
    std::int32_t lane[16];
  };
  struct Codes {
    std::int8_t value[16][16];  // [row][column]
  };

  // A tile of a product (tile.h): `tile_rows` rows of numbers, `tile_vectors` vectors of a panel's columns.
  struct V {
    float lane[4];
  };
  using Four = const float*;
  static constexpr int vector = 4;
  static constexpr int tile_rows = 4;
  template <int Rows>
  static constexpr int tile_vectors = 2;
  template <class Make>
  static V each_of_vector(Make make) {
    return {{make(0), make(1), make(2), make(3)}};
  }
  static V zero_vector() { return {}; }
  static V broadcast_vector(float x) { return {{x, x, x, x}}; }
  static V load_vector(const float* p) {
    return each_of_vector([&](int i) { return p[i]; });
  }
  static V load_vector(const std::uint16_t* p) {  // bf16
    return each_of_vector(
        [&](int i) { return std::bit_cast<float>(static_cast<std::uint32_t>(p[i]) << 16); });
  }
  static void store_vector(float* p, const V& x) { std::memcpy(p, x.lane, sizeof x); }
  static V add_vector(const V& a, const V& b) {
    return each_of_vector([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static V mul_vector(const V& a, const V& b) {
    return each_of_vector([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static V fma_vector(const V& a, const V& b, const V& c) {
    return each_of_vector([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
  }
  // Four neighbouring numbers of a row; fma_of_four multiplies by one of them.
  static Four load_four(const float* p) { return p; }
  template <int Which>
  static V mul_of_four(Four a, const V& b) {
    return mul_vector(broadcast_vector(a[Which]), b);
  }
  template <int Which>
  static V fma_of_four(Four a, const V& b, const V& c) {
    return fma_vector(broadcast_vector(a[Which]), b, c);
  }
  // Four rows of four become the columns of rows `Stride` apart.
  template <int Stride>
  static void transpose_four(const float* p, std::int64_t stride, float* to) {
    for (int i = 0; i < 4; ++i)
      for (int r = 0; r < 4; ++r) to[i * Stride + r] = p[r * stride + i];
  }

  template <class Make>
  static F each(Make make) {
    F out;
    for (int i = 0; i < 16; ++i) out.lane[i] = make(i);
    return out;
  }

  static F broadcast(float x) {
    return each([&](int) { return x; });
  }
  static F zero() { return broadcast(0); }
  static F load(const float* p) {
    F out;
    std::memcpy(out.lane, p, sizeof out);
    return out;
  }
  static void store(float* p, const F& x) { std::memcpy(p, x.lane, sizeof x); }
  static F add(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static F sub(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static F mul(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static F div(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  static F fma(const F& a, const F& b, const F& c) {
    return each([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
  }
  // The larger; b where either is not a number.
  static F larger(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F smaller(const F& a, const F& b) {
    return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  // To the nearest integer, ties to even.
  static F nearest(const F& x) {
    return each([&](int i) { return __builtin_nearbyintf(x.lane[i]); });
  }
  static F floor(const F& x) {
    return each([&](int i) { return __builtin_floorf(x.lane[i]); });
  }
  // a < b ? x : y, lane by lane.
  static F select_less(const F& a, const F& b, const F& x, const F& y) {
    return each([&](int i) { return a.lane[i] < b.lane[i] ? x.lane[i] : y.lane[i]; });
  }
  // To the nearest bf16, ties to even; NaN stays.
  static F round_bf16(const F& x) {
    return each([&](int i) {
      const auto bits = std::bit_cast<std::uint32_t>(x.lane[i]);
      const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
      return x.lane[i] == x.lane[i] ? std::bit_cast<float>(rounded) : x.lane[i];
    });
  }
  // Whole numbers from -128 to 127.
  static void store_int8(std::int8_t* p, const F& x) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(x.lane[i]);
  }
  // 2^x for whole x in -126..127.
  static F power_of_two(const F& x) {
    return each([&](int i) {
      const auto exponent = static_cast<std::int32_t>(x.lane[i]) + 127;
      return std::bit_cast<float>(static_cast<std::uint32_t>(exponent) << 23);
    });
  }
  // Halves are added to halves: 16, 8, 4, 2, 1.
  static float sum(F x) {
    for (int half = 8; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) x.lane[i] += x.lane[i + half];
    return x.lane[0];
  }
  static float largest(const F& x) {
    float most = x.lane[0];
    for (int i = 1; i < 16; ++i) most = x.lane[i] > most ? x.lane[i] : most;
    return most;
  }

  static F load_bf16(const std::uint16_t* p) {
    return each([&](int i) { return std::bit_cast<float>(static_cast<std::uint32_t>(p[i]) << 16); });
  }
  // Sixteen pairs, the even element first.
  static void load_bf16_pairs(const std::uint8_t* p, F& even, F& odd) {
    std::uint32_t pair[16];
    std::memcpy(pair, p, sizeof pair);
    even = each([&](int i) { return std::bit_cast<float>(pair[i] << 16); });
    odd = each([&](int i) { return std::bit_cast<float>(pair[i] & 0xFFFF0000u); });
  }
  // Sixteen E4M3 numbers over 2^8: their bits, read as the upper byte of an f16.
  static F load_e4m3(const std::uint8_t* p) {
    return each([&](int i) {
      const std::uint32_t code = p[i] & 0x7Fu;
      const std::uint32_t sign = static_cast<std::uint32_t>(p[i] & 0x80u) << 24;
      const float size =
          code < 8 ? static_cast<float>(code) * 0x1p-17f : std::bit_cast<float>((code << 20) + (112u << 23));
      return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(size));
    });
  }

  static I broadcast_int(std::int32_t x) {
    I out;
    for (int i = 0; i < 16; ++i) out.lane[i] = x;
    return out;
  }
  static I shift_up_8_and_add(const I& high, const I& low) {
    I out;
    for (int i = 0; i < 16; ++i) out.lane[i] = high.lane[i] * 256 + low.lane[i];
    return out;
  }
  static F to_float(const I& x) {
    return each([&](int i) { return static_cast<float>(x.lane[i]); });
  }

  // A block of 16 rows and 16 columns; packed_matrix.h has the order of the nibbles.
  static Codes decode(const std::uint8_t* p) {
    constexpr std::int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    Codes codes;
    for (int half = 0; half < 2; ++half)
      for (int row = 0; row < 16; ++row)
        for (int j = 0; j < 4; ++j) {
          const std::uint8_t pair = p[half * 64 + row * 4 + j];
          codes.value[row][half * 8 + j] = doubled[pair & 15];
          codes.value[row][half * 8 + 4 + j] = doubled[pair >> 4];
        }
    return codes;
  }
  // start + the dot products of the block's rows with sixteen integers.
  static I dot(const Codes& codes, const std::int8_t* x, I start) {
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 16; ++column) start.lane[row] += codes.value[row][column] * x[column];
    return start;
  }
};

}  // namespace fourfold::cpu
