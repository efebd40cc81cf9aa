// The scheduler's dice: a few instructions a throw, the same on every machine.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace fourfold::sim {

class Dice {
 public:
  // Streams of one seed are unrelated: one per block, one per grid.
  explicit Dice(std::uint64_t seed = 1, std::uint64_t stream = 0) : state_(random_bits(seed, stream) | 1u) {}
  std::uint32_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<std::uint32_t>((state_ * 0x2545F4914F6CDD1Du) >> 32);
  }
  // 0 .. limit-1; limit is small, so the bias of the product does not matter.
  std::uint32_t below(std::uint32_t limit) {
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(next()) * limit) >> 32);
  }
  // True in `numerator` of 256 cases.
  bool chance(std::uint32_t numerator) { return (next() & 255u) < numerator; }

 private:
  std::uint64_t state_;
};

}  // namespace fourfold::sim
