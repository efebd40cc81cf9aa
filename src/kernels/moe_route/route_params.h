// The arguments and sizes of the routing kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/moe/tables.h"
#include "kernels/moe_route/route_rule.h"
#include "kernels/moe_tokens/token_params.h"

namespace fourfold::moe_route {

// Names of the rows.
inline constexpr const char* kTableRow = "route_table";
inline constexpr const char* kChooseRow = "route_choose";
inline constexpr const char* kScanRow = "route_scan";
inline constexpr const char* kPlaceRow = "route_place";

inline constexpr int kOneBlockTokens = 16;    // up to here one block does everything, a warp a token,
inline constexpr int kOneBlockExperts = 512;  // with the registers that 1,024 threads leave it
constexpr bool in_one_block(int tokens, int experts) {
  return tokens <= kOneBlockTokens && experts <= kOneBlockExperts;
}
inline constexpr int kSmallTokens = 64;  // up to here one block builds the tables
inline constexpr int kSmallPairs = kSmallTokens * moe::kMaxTopK;
inline constexpr int kSmallThreads = 1024;  // route_table and route_scan
inline constexpr int kChunkThreads = 256;   // route_choose and route_place
inline constexpr int kCountingWarps = 8;    // warps that count and rank the pairs of a chunk
inline constexpr int kScanExperts = 32;     // experts a block of route_scan owns: one a lane
static_assert(kSmallThreads >= moe::kMaxExperts && kSmallThreads >= 32 * kOneBlockTokens &&
              kChunkThreads == 32 * kCountingWarps);

// Tokens of a block of route_choose, and of a chunk: one a warp while there are few, so that each finishes
// soon.
constexpr int chunk_tokens(int tokens) {
  return tokens <= kSmallTokens ? kCountingWarps : 2 * kCountingWarps;
}
constexpr int chunk_count(int tokens) { return (tokens + chunk_tokens(tokens) - 1) / chunk_tokens(tokens); }

// Up to here every block of route_place adds up the chunks for itself, sooner than another launch would.
inline constexpr int kOwnScanChunks = 32;
constexpr bool scans_apart(int tokens) { return chunk_count(tokens) > kOwnScanChunks; }

// Threads of route_table: no more than have work, since all of them meet at its barriers.
constexpr int table_threads(int tokens, int experts) {
  if (!in_one_block(tokens, experts)) return kSmallThreads;
  return 32 * std::max(tokens, (experts + 31) / 32);
}

struct RouteParams {
  const float* logits;  // [tokens, experts]
  moe::RouteTables tables;
  std::int32_t* chunk_counts;   // [chunks, experts]: pairs per chunk, then, if they are scanned apart, their
                                // first rank (more than kSmallTokens tokens only)
  std::int32_t* expert_counts;  // [experts], likewise
  std::int32_t tokens;
  std::int32_t experts;
  std::int32_t top_k;
  std::int32_t tile_tokens;  // N of the GEMM row
  RouteRule rule;
  std::int32_t logits_stride = 0;  // from one token's logits to the next's; 0: experts
  // Tokens that route_choose stages on SMs it leaves idle: blocks beyond those of the chunks. No groups:
  // none.
  moe_tokens::StageParams stage = {};
};
static_assert(moe_tokens::kThreads == kChunkThreads);

// Shared memory of the kernels that sort pairs. counts[w][e]: pairs of expert e in warp w's part, then their
// first rank.
template <int Pairs>
struct SortStorage {
  std::int32_t expert_of_pair[Pairs];
  float weight_of_pair[Pairs];
  std::int32_t counts[kCountingWarps][moe::kMaxExperts];
  std::int32_t first_slot[moe::kMaxExperts];
  std::int32_t first_rank[moe::kMaxExperts];  // of a chunk (route_place)
  std::int32_t scan[2][kSmallThreads / 32];
};
using TableStorage = SortStorage<kSmallPairs>;
using ChunkStorage = SortStorage<2 * kCountingWarps * moe::kMaxTopK>;  // route_choose and route_place
// ... of route_table when one block does everything ...
struct OneBlockStorage {
  std::int32_t expert_of_pair[kOneBlockTokens * moe::kMaxTopK];
  float logit_of_pair[kOneBlockTokens * moe::kMaxTopK];
  std::uint32_t experts_of_token[kOneBlockTokens][kOneBlockExperts / 32];  // a bit an expert
  std::uint32_t tokens_of_expert[kOneBlockExperts];                        // a bit a token
  std::int32_t first_slot[kOneBlockExperts];
  std::int32_t scan[2][kSmallThreads / 32];
};
static_assert(sizeof(OneBlockStorage) <= sizeof(TableStorage));
// ... and of route_scan: sums of the warps for the block's experts.
struct ScanStorage {
  std::int32_t sums[kSmallThreads / 32][kScanExperts];
};

}  // namespace fourfold::moe_route
