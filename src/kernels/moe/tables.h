// What the kernels of the MoE layer hand to each other in device memory. All sizes are worst cases fixed by
// the caller's token count, so every launch has a fixed grid and can be captured in a graph; what varies lies
// in these tables.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fourfold::moe {

inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxTopK = 32;
// Slots of an expert start at a multiple of 8, the width of a token record and of an n8 tile.
inline constexpr int kSlotGroup = 8;
// A decode dot product is the ordered sum of its segments of 512 columns (the last may be shorter).
inline constexpr int kSegmentColumns = 512;

// Up to N tokens of one expert: the token side of a work item.
struct alignas(16) TokenTile {
  std::int32_t expert;
  std::int32_t first_slot;  // multiple of kSlotGroup
  std::int32_t count;       // 1..N
  std::int32_t reserved;
};

// Written by the router, read by every later kernel of the layer. Pair p = token * k + rank.
struct RouteTables {
  std::int32_t* pair_expert;  // [pairs]
  float* pair_weight;         // [pairs]
  std::int32_t* pair_slot;    // [pairs]
  std::int32_t* slot_token;   // [slots]; unwritten where an expert's last group of eight has no token
  float* slot_weight;         // [slots]
  TokenTile* tiles;           // [tile_limit]
  std::int32_t* tile_count;   // [1]
};

constexpr int round_up(int value, int to) { return (value + to - 1) / to * to; }

// Slots when each expert's group is rounded up: at most one ragged group per expert that has a token.
constexpr int slot_limit(int tokens, int top_k, int experts) {
  const int pairs = tokens * top_k;
  return round_up(pairs + (kSlotGroup - 1) * std::min(experts, pairs), kSlotGroup);
}
constexpr int tile_limit(int tokens, int top_k, int experts, int tile_tokens) {
  const int pairs = tokens * top_k;
  return pairs / tile_tokens + std::min(experts, pairs);
}

}  // namespace fourfold::moe
