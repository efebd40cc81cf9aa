// The arguments and sizes of the routing kernels.
#pragma once

#include <cstdint>

#include "kernels/moe/tables.h"

namespace fourfold::moe_route {

inline constexpr int kChunkTokens = 64;
inline constexpr int kChunkPairs = kChunkTokens * moe::kMaxTopK;
inline constexpr int kSmallThreads = 1024;   // route_small and route_scan: one thread per expert
inline constexpr int kChunkThreads = 256;    // route_choose and route_place
inline constexpr int kCountingWarps = 8;     // warps that count and rank the pairs of a chunk
static_assert(kSmallThreads >= moe::kMaxExperts);

struct RouteParams {
  const float* logits;  // [tokens, experts]
  moe::RouteTables tables;
  std::int32_t* chunk_counts;  // [chunks, experts], only for several chunks
  std::int32_t tokens;
  std::int32_t experts;
  std::int32_t top_k;
  std::int32_t tile_tokens;  // N of the GEMM row
  bool renormalise;
};

// Shared memory of all routing kernels. counts[w][e]: pairs of expert e in warp w's part of the chunk, then their first rank.
struct SortStorage {
  std::int32_t expert_of_pair[kChunkPairs];
  std::int32_t counts[kCountingWarps][moe::kMaxExperts];
  std::int32_t first_slot[moe::kMaxExperts];
  std::int32_t scan[2][kSmallThreads / 32];
};

}  // namespace fourfold::moe_route
