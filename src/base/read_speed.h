// How fast this machine's cores read memory together: the ceiling of everything that streams weights.
#pragma once

#include <cstddef>

namespace fourfold {

// Decimal gigabytes a second over a buffer of this size, which should be many times the caches; the best of
// three rounds. Memory that cannot be had gives 0.
double measure_read_gb_per_s(std::size_t bytes = std::size_t{1} << 30);

}  // namespace fourfold
