// Logits as whole numbers in the same order.
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"

namespace fourfold::sampling {

// Key 0 is "no token here" and NaN, which is never chosen while there is another. The two zeros are equal, as
// numbers are; they have one key.
template <class Cta>
FOURFOLD_DEVICE std::uint32_t order_key(float value) {
  if (value != value) return 0u;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(Cta::add(value, 0.0f));
  return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}
constexpr float value_of_key(std::uint32_t key) {
  if (key == 0u) return std::bit_cast<float>(0x7FFFFFFFu);
  return std::bit_cast<float>((key & 0x80000000u) ? key & 0x7FFFFFFFu : ~key);
}

// Of two entries the larger one is ranked first: by key, then the lower token.
constexpr std::uint64_t entry_of(std::uint32_t key, int token) {
  return std::uint64_t{key} << 32 | static_cast<std::uint32_t>(~token);
}
constexpr std::uint32_t key_of(std::uint64_t entry) { return static_cast<std::uint32_t>(entry >> 32); }
constexpr int token_of(std::uint64_t entry) {
  return static_cast<int>(~static_cast<std::uint32_t>(entry & 0xFFFFFFFFu));
}

struct Four {
  float value[4];
};

// Logits first .. first + 3; those that are no tokens read as NaN.
template <class Cta>
FOURFOLD_DEVICE Four load_four(Cta cta, const float* logits, int first, int tokens) {
  Four out;
  if (first + 4 <= tokens) {
    const auto loaded = cta.load(reinterpret_cast<const device::F32x4*>(logits + first));
#pragma unroll
    for (int i = 0; i < 4; ++i) out.value[i] = loaded.v[i];
    return out;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    out.value[i] = first + i < tokens ? cta.load(logits + first + i) : std::bit_cast<float>(0x7FFFFFFFu);
  return out;
}

// All exponent bits set: NaN or infinite.
constexpr bool is_finite(float value) {
  return (std::bit_cast<std::uint32_t>(value) & 0x7F800000u) != 0x7F800000u;
}

}  // namespace fourfold::sampling
