// Routing for a handful of tokens, redone by every block in shared memory: cheaper than a kernel of its own.
// Tokens that chose the same expert share a tile, so its weights stream once.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/named_barrier.h"
#include "kernels/device/types.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/moe_route/top_k.h"

namespace fourfold::moe_few {

// Tile u: one expert and the tokens that chose it; its slots are 8u .. 8u + 7. pair = token * top_k + rank.
struct FewRoute {
  // [token][rank], ranks beyond top_k hold -1, so that four can be read at once.
  alignas(16) std::int32_t rank_expert[kFewTokens][kFewTopK];
  float pair_weight[kFewPairs];
  std::int32_t pair_tile[kFewPairs];
  std::int32_t leaders[kFewTokens];  // mask of ranks whose expert no earlier token chose
  std::int32_t tile_expert[kFewPairs];
  std::int32_t tile_count[kFewPairs];
  std::int32_t tile_entry[kFewPairs][kFewTokens];  // token and pair of a slot, see below
  std::int32_t pair_slot[kFewPairs];
};

constexpr int token_of_entry(int entry) { return entry & 0xFF; }
constexpr int pair_of_entry(int entry) { return entry >> 8; }

// What a pair finds out by looking at all pairs.
struct PairView {
  int leader_token;  // first token that chose the expert, and at which rank
  int leader_rank;
  int place;  // earlier tokens that chose it
  int count;  // tokens that chose it
};

template <class Cta>
FOURFOLD_DEVICE PairView look_around(Cta cta, const FewRoute& route, const FewParams& params, int token,
                                     int expert) {
  PairView view{-1, 0, 0, 0};
#pragma unroll 1
  for (int t = 0; t < params.tokens; ++t) {
    int rank = -1;  // at most one: a token's experts differ
#pragma unroll 1
    for (int r = 0; r < params.top_k; r += 4) {
      const auto four = cta.load_shared(reinterpret_cast<const device::U32x4*>(&route.rank_expert[t][r]));
#pragma unroll
      for (int i = 0; i < 4; ++i) rank = static_cast<int>(four.v[i]) == expert ? r + i : rank;
    }
    if (rank < 0) continue;
    if (view.leader_token < 0) {
      view.leader_token = t;
      view.leader_rank = rank;
    }
    view.place += t < token;
    ++view.count;
  }
  return view;
}

// Where a pair belongs: the tile of its expert, and its place among the tokens that share it.
struct PairPlace {
  int expert;
  int tile;
  int place;
  int count;  // tokens of the tile
};
template <class Cta>
FOURFOLD_DEVICE void put_pair(Cta cta, FewRoute& route, const PairPlace& of, int token, int pair) {
  cta.store_shared(&route.tile_entry[of.tile][of.place], pair << 8 | token);
  cta.store_shared(&route.pair_tile[pair], of.tile);
  cta.store_shared(&route.pair_slot[pair], moe::kSlotGroup * of.tile + of.place);
  if (of.place > 0) return;
  cta.store_shared(&route.tile_expert[of.tile], of.expert);
  cta.store_shared(&route.tile_count[of.tile], of.count);
}

// What is known before the logits are; a block-wide barrier must follow.
template <class Cta>
FOURFOLD_DEVICE void prepare_route(Cta cta, const FewParams& params, FewRoute& route) {
  if (params.tokens == 1) {  // every rank is a tile of its own, whatever its expert
    if (const int rank = cta.thread(); rank < params.top_k) put_pair(cta, route, {0, rank, 0, 1}, 0, rank);
  } else {
    for (int i = cta.thread(); i < kFewTokens * kFewTopK; i += cta.threads())
      cta.store_shared(&route.rank_expert[0][0] + i, -1);
  }
}

// The first Row::routing_warps warps of the block call it after prepare_route; returns the number of tiles.
// GEMM1 needs no weights.
template <class Row, bool Weights, class Cta>
FOURFOLD_DEVICE int route_few(Cta cta, const FewParams& params, FewRoute& route, int warp) {
  const auto sync = [&] { cta.barrier_sync(device::NamedBarrier::route, 32 * Row::routing_warps); };
  const int token = warp, rank = cta.lane();
  const bool has_token = token < params.tokens, has_pair = has_token && rank < params.top_k;
  if (has_token) {
    const float* logits =
        params.logits + token * (params.logits_stride ? params.logits_stride : params.experts);
    std::int32_t* experts = params.tokens == 1 ? route.tile_expert : route.rank_expert[token];
    float* weights = route.pair_weight + token * params.top_k;
    moe_route::rank_experts<kFewExperts, Row::any_rule>(cta, logits, params.experts, params.top_k,
                                                        params.rule, [&](int r, int expert, float logit) {
                                                          cta.store_shared(experts + r, expert);
                                                          if constexpr (Weights)
                                                            cta.store_shared(weights + r, logit);
                                                        });
    if constexpr (Weights) {
      cta.sync_warp();  // every logit is written
      const int own = has_pair ? rank : 0;
      const moe_route::Ranked ranked{Row::any_rule ? cta.load_shared(experts + own) : 0,
                                     cta.load_shared(weights + own), cta.load_shared(weights)};
      cta.sync_warp();  // and read
      const float weight = moe_route::routing_weight<Row::any_rule>(cta, logits, params.experts, params.top_k,
                                                                    params.rule, ranked);
      if (has_pair) cta.store_shared(weights + rank, weight);
    }
  }
  if (params.tokens == 1) {
    sync();  // the tiles are complete
    return params.top_k;
  }
  sync();  // every token has its experts
  PairView view{-1, 0, 0, 0};
  int expert = -1;
  if (has_token) {
    if (has_pair) {
      expert = cta.load_shared(&route.rank_expert[token][rank]);
      view = look_around(cta, route, params, token, expert);
    }
    const std::uint32_t leaders = cta.ballot(view.leader_token == token);
    if (rank == 0) cta.store_shared(&route.leaders[token], static_cast<std::int32_t>(leaders));
  }
  sync();  // every token's leaders are known
  int tiles = 0, before_leader = 0;
#pragma unroll 1
  for (int t = 0; t < params.tokens; ++t) {
    const auto mask = static_cast<std::uint32_t>(cta.load_shared(&route.leaders[t]));
    if (t == view.leader_token)
      before_leader = tiles + Cta::count_ones(mask & ((1u << view.leader_rank) - 1u));
    tiles += Cta::count_ones(mask);
  }
  if (view.leader_token >= 0)
    put_pair(cta, route, {expert, before_leader, view.place, view.count}, token, token * params.top_k + rank);
  sync();  // the tiles are complete
  return tiles;
}

}  // namespace fourfold::moe_few
