// A 64-bit checksum of bytes, at the speed of memory: for files we wrote ourselves and read back. A change of
// one word is always noticed, any other with all but one in 2^64; it is no defence against an adversary.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "base/random.h"

namespace fourfold {

inline std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0) {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15u;
  // One to one in the lane and in the word.
  const auto step = [](std::uint64_t lane, std::uint64_t word) {
    const std::uint64_t mixed = (lane ^ word) * odd;
    return mixed ^ (mixed >> 29);
  };
  // Four lanes by name, so that they stay in registers and no multiplication waits for another.
  std::uint64_t a = seed, b = seed + 1, c = seed + 2, d = seed + 3, words[4] = {};
  const std::byte* from = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 32; left -= 32, from += 32) {
    std::memcpy(words, from, 32);
    a = step(a, words[0]);
    b = step(b, words[1]);
    c = step(c, words[2]);
    d = step(d, words[3]);
  }
  std::uint64_t rest[4] = {};
  if (left > 0) std::memcpy(rest, from, left);
  std::uint64_t sum = mix_bits(bytes.size() + odd);
  for (const std::uint64_t lane : {step(a, rest[0]), step(b, rest[1]), step(c, rest[2]), step(d, rest[3])})
    sum = mix_bits(sum * odd + lane);
  return sum;
}

}  // namespace fourfold
