// How wide the simulator's vectors are: four lanes of 32 bits, which every x86-64 and aarch64 has, or eight.
#pragma once

namespace fourfold::sim {

// With the same results. Tests switch it off, to run four where there are eight.
#if defined(__x86_64__)
#define FOURFOLD_SIM_EIGHT_LANES [[gnu::target("avx2")]]
inline bool has_eight_lanes = __builtin_cpu_supports("avx2");
#else
inline bool has_eight_lanes = false;
#endif

}  // namespace fourfold::sim
