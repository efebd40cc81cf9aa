// Random numbers of sampling: each is a pure function of the request's seed, the position of the token it
// decides and what it is for. So a request draws the same numbers alone or in a batch, however its prompt was
// cut and whatever was drafted and taken back.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace fourfold::sample {

enum class Purpose : std::uint64_t {
  token,        // the token itself
  draft,        // a draft of it
  acceptance,   // whether the draft stands
  replacement,  // the token instead of it
};

// [0, 1) in steps of 2^-53.
constexpr double uniform(std::uint64_t seed, std::int64_t position, Purpose purpose) {
  const std::uint64_t stream = random_bits(seed, static_cast<std::uint64_t>(position));
  return static_cast<double>(random_bits(stream, static_cast<std::uint64_t>(purpose)) >> 11) * 0x1p-53;
}

}  // namespace fourfold::sample
