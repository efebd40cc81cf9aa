// A small counter-based generator: number i of seed s is a pure function of both, so tests and tools draw the
// same values on every standard library (its distributions differ between vendors) and in any order.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "base/check.h"

namespace fourfold {

// The finaliser of splitmix64: every input bit reaches every output bit.
constexpr std::uint64_t mix_bits(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// Number `index` of the stream `seed`. The seed is mixed first, so that neighbouring seeds do not share a
// stream.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15u;
  return mix_bits(mix_bits(seed + golden_ratio) + (index + 1) * golden_ratio);
}

// A cursor over one stream.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : seed_(seed) {}

  constexpr std::uint64_t bits() { return random_bits(seed_, index_++); }

  // [0, 1) in steps of 2^-53.
  constexpr double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  constexpr double uniform(double low, double high) { return low + (high - low) * uniform(); }

  // [0, count), unbiased: draws from the incomplete last group of `count` are drawn again.
  std::uint64_t below(std::uint64_t count) {
    check(count > 0, "there is something to choose from");
    const std::uint64_t rest = (0 - count) % count;  // 2^64 mod count
    std::uint64_t draw = bits();
    while (draw < rest) draw = bits();
    return draw % count;
  }

  // Box-Muller in double; two draws a value, so the index still counts values evenly. log, sqrt and cos are
  // the only platform code: their last bit may differ, which a rounding to f32 hides almost always.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t seed_;
  std::uint64_t index_ = 0;
};

}  // namespace fourfold
