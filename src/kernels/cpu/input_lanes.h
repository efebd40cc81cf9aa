// input_rows.h sixteen lanes at a time: a block is one register. Gives the bits of make_input_row.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/input_rows.h"

namespace fourfold::cpu {

template <class L>
typename L::F magnitude(typename L::F x) {
  return L::larger(x, L::sub(L::zero(), x));
}

template <class L>
void round_row(const float* values, std::int64_t columns, std::uint8_t* out) {
  for (std::int64_t i = 0; i < columns; i += 16)
    L::store(reinterpret_cast<float*>(out) + i, L::round_bf16(load_some<L>(values + i, columns - i)));
}

template <class L>
void make_two_plane_row(const float* values, std::int64_t columns, std::uint8_t* out) {
  using F = typename L::F;
  for (std::int64_t i = 0; i < columns; i += 16, out += block_bytes(2)) {
    const F given = load_some<L>(values + i, columns - i);
    F x = L::round_bf16(given);
    // Infinities and NaN times zero are NaN; a large f32 may round to an infinity.
    const bool finite = L::sum(L::add(L::mul(given, L::zero()), L::mul(x, L::zero()))) == 0;
    if (!finite) x = L::zero();
    float amax = L::largest(magnitude<L>(x));
    std::uint32_t bits;
    std::memcpy(&bits, &amax, sizeof bits);
    std::int32_t exponent = static_cast<std::int32_t>(bits >> 23) - 127;
    if (exponent < -100) exponent = -100;
    const F inverse = L::power_of_two(L::broadcast(static_cast<float>(14 - exponent)));
    F q = L::nearest(L::mul(x, inverse));
    q = L::larger(L::broadcast(-32640.0f), L::smaller(L::broadcast(32639.0f), q));
    const F upper = L::floor(L::mul(L::add(q, L::broadcast(128.0f)), L::broadcast(1.0f / 256)));
    auto* planes = reinterpret_cast<std::int8_t*>(out);
    L::store_int8(planes, upper);
    L::store_int8(planes + 16, L::fma(upper, L::broadcast(-256.0f), q));
    BlockTail tail{};
    const std::uint32_t scale_bits =
        finite ? static_cast<std::uint32_t>(exponent - 14 + 7 + 127) << 23 : 0x7FC00000u;
    std::memcpy(&tail.scale, &scale_bits, sizeof scale_bits);
    tail.minus_sum = -kCodeBias * static_cast<std::int32_t>(L::sum(q));
    std::memcpy(out + 32, &tail, sizeof tail);
  }
}

// The largest magnitude of each block, NaN left out.
template <class L>
void block_maxima(const float* values, std::int64_t columns, float* out) {
  for (std::int64_t i = 0; i < columns; i += 16)
    *out++ = L::largest(L::larger(magnitude<L>(load_some<L>(values + i, columns - i)), L::zero()));
}

// FP4 codes, doubled, of values times their block's multiplier: halves below 2, then ones, then twos, each to
// the nearest and ties to the even code.
template <class L>
void make_one_plane_row(const float* values, std::int64_t columns, const float* multipliers,
                        const float* scales, std::uint8_t* out) {
  using F = typename L::F;
  for (std::int64_t i = 0; i < columns; i += 16, out += block_bytes(1), ++multipliers, ++scales) {
    const F x = L::mul(load_some<L>(values + i, columns - i), L::broadcast(*multipliers));
    const F size = magnitude<L>(x);
    const F by_half = L::nearest(L::add(size, size));
    const F by_one = L::mul(L::nearest(size), L::broadcast(2.0f));
    const F by_two = L::smaller(L::mul(L::nearest(L::mul(size, L::broadcast(0.5f))), L::broadcast(4.0f)),
                                L::broadcast(12.0f));  // NaN, too, becomes 12
    F doubled = L::select_less(size, L::broadcast(4.0f), by_one, by_two);
    doubled = L::select_less(size, L::broadcast(2.0f), by_half, doubled);
    doubled = L::select_less(x, L::zero(), L::sub(L::zero(), doubled), doubled);
    if (*multipliers == 0) doubled = L::zero();
    L::store_int8(reinterpret_cast<std::int8_t*>(out), doubled);
    BlockTail tail{};
    tail.scale = *scales;
    tail.minus_sum = -kCodeBias * static_cast<std::int32_t>(L::sum(doubled));
    std::memcpy(out + 16, &tail, sizeof tail);
  }
}

}  // namespace fourfold::cpu
