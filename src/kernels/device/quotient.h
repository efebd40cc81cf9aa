// Division by a number of a launch's arguments. It is 25 instructions on a GPU, and a kernel that runs once a
// layer fetches each of them anew: most such numbers are powers of two, for which it is a shift.
#pragma once

#include <cstdint>

#include "base/macros.h"

namespace fourfold::device {

// x / y; x >= 0, y > 0.
template <class Cta>
FOURFOLD_DEVICE int quotient(int x, int y) {
  const auto below = static_cast<std::uint32_t>(y) - 1u;
  if ((static_cast<std::uint32_t>(y) & below) == 0u) return x >> Cta::count_ones(below);
  return static_cast<int>(static_cast<std::uint32_t>(x) / static_cast<std::uint32_t>(y));
}

}  // namespace fourfold::device
