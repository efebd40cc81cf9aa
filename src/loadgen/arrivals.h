// When requests come, where they come by a rate and not because another has ended.
#pragma once

#include <cstdint>
#include <vector>

namespace fourfold::loadgen {

// Seconds from the start, ascending, the first at 0. Gaps are drawn from a gamma distribution of mean 1/rate
// and shape `burstiness`: 1 is a Poisson process, less comes in bursts, more comes evenly. An infinite rate
// sends all at once.
std::vector<double> arrivals(std::int64_t count, double rate_per_s, double burstiness, std::uint64_t seed);

}  // namespace fourfold::loadgen
