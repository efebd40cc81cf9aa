// Cached numbers to and from what the tensor cores multiply.
#pragma once

#include <bit>
#include <cstdint>

#include "base/bf16.h"
#include "base/e4m3.h"
#include "base/macros.h"
#include "kernels/attention/page_layout.h"

namespace fourfold::attention {

// Two neighbouring E4M3 codes of `codes` (bytes 0 and 1, or 2 and 3) as two bf16: the bits of a code, moved
// to where a bf16 has its exponent and fraction, are the number times 2^-120. NaN codes read as 480.
template <class Cta>
FOURFOLD_DEVICE std::uint32_t decode_e4m3x2(std::uint32_t codes, int pair) {
  const std::uint32_t high = Cta::byte_permute(codes, 0u, pair == 0 ? 0x1404u : 0x3424u);  // each code << 8
  const std::uint32_t small = (high & 0x80008000u) | (high & 0x7F007F00u) >> 4;
  return Cta::mul_bf16x2(small, 0x7B807B80u);  // 2^120
}

// Numbers as they lie in a page: `Count` neighbours of one row.
template <class Kv, int Count>
struct PackedNumbers {
  static constexpr int bytes = Count * Kv::bytes;
  static constexpr int words = bytes < 4 ? 1 : bytes / 4;
  std::uint32_t word[words];
};

template <class Kv, class Cta, int Count>
FOURFOLD_DEVICE PackedNumbers<Kv, Count> pack_numbers(const float (&value)[Count]) {
  PackedNumbers<Kv, Count> packed;
#pragma unroll
  for (int i = 0; i < PackedNumbers<Kv, Count>::words; ++i) packed.word[i] = 0;
  if constexpr (Kv::bytes == 2) {
#pragma unroll
    for (int i = 0; i < Count / 2; ++i) packed.word[i] = Cta::pack_bf16(value[2 * i], value[2 * i + 1]);
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i)
      packed.word[i / 4] |= static_cast<std::uint32_t>(to_e4m3(value[i]).bits) << (8 * (i % 4));
  }
  return packed;
}

template <class Cta, class Kv, int Count>
FOURFOLD_DEVICE void store_numbers(Cta cta, unsigned char* to, const PackedNumbers<Kv, Count>& packed) {
  const std::uint32_t* word = packed.word;
  if constexpr (PackedNumbers<Kv, Count>::bytes == 16)
    cta.store(reinterpret_cast<device::U32x4*>(to), device::U32x4{{word[0], word[1], word[2], word[3]}});
  else if constexpr (PackedNumbers<Kv, Count>::bytes == 8)
    cta.store(reinterpret_cast<device::U32x2*>(to), device::U32x2{{word[0], word[1]}});
  else if constexpr (PackedNumbers<Kv, Count>::bytes == 4)
    cta.store(reinterpret_cast<std::uint32_t*>(to), word[0]);
  else
    cta.store(reinterpret_cast<std::uint16_t*>(to), static_cast<std::uint16_t>(word[0]));
}

// One number alone.
template <class Kv, class Cta>
FOURFOLD_DEVICE void store_number(Cta cta, unsigned char* to, float value) {
  if constexpr (Kv::bytes == 2)
    cta.store(reinterpret_cast<std::uint16_t*>(to),
              static_cast<std::uint16_t>(Cta::pack_bf16(value, 0.0f) & 0xFFFFu));
  else
    cta.store(to, to_e4m3(value).bits);
}

}  // namespace fourfold::attention
