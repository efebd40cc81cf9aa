// The most of something that fits, by bisection.
#pragma once

#include <cstdint>

namespace fourfold {

// The largest number from `low` to `high` for which `holds` is true, as it is for all below; `low` if none.
template <class Holds>
std::int64_t largest(std::int64_t low, std::int64_t high, const Holds& holds) {
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (holds(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace fourfold
