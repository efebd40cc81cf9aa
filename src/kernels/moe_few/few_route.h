// Routing for a handful of tokens, redone by every block in shared memory: cheaper than a kernel of its own.
// Tokens that chose the same expert share a tile, so its weights stream once.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/moe_route/top_k.h"

namespace fourfold::moe_few {

// Tile u: one expert and the tokens that chose it; its slots are 8u .. 8u + 7.
struct FewRoute {
  // [token][rank], ranks beyond top_k hold -1, so that four can be read at once.
  alignas(16) std::int32_t rank_expert[kFewTokens][moe::kMaxTopK];
  float pair_weight[kFewPairs];        // pair = token * top_k + rank
  std::int32_t pair_place[kFewPairs];  // kFewTokens * tile + place
  std::int32_t leaders[kFewTokens];    // mask of ranks whose expert no earlier token chose
  std::int32_t tile_expert[kFewPairs];
  std::int32_t tile_count[kFewPairs];
  std::int32_t tile_token[kFewPairs][kFewTokens];
};

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
  for (int t = 0; t < params.tokens; ++t) {
    int rank = -1;  // at most one: a token's experts differ
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

// All threads of the block call it; returns the number of tiles.
template <class Cta>
FOURFOLD_DEVICE int route_few(Cta cta, const FewParams& params, FewRoute& route) {
  const int token = cta.warp(), rank = cta.lane();
  const bool has_token = token < params.tokens;
  int expert = -1;
  if (has_token) {
    const moe_route::Choice choice = moe_route::choose_experts(
        cta, params.logits + token * params.experts, params.experts, params.top_k, params.renormalise);
    expert = rank < params.top_k ? choice.expert : -1;
    cta.store_shared(&route.rank_expert[token][rank], expert);
    if (rank < params.top_k) {
      cta.store_shared(&route.pair_weight[token * params.top_k + rank], choice.weight);
    }
  }
  cta.sync_block();  // every token has its experts
  PairView view{-1, 0, 0, 0};
  if (has_token) {
    if (rank < params.top_k) view = look_around(cta, route, params, token, expert);
    const std::uint32_t leaders = cta.ballot(view.leader_token == token);
    if (rank == 0) cta.store_shared(&route.leaders[token], static_cast<std::int32_t>(leaders));
  }
  cta.sync_block();  // every token's leaders are known
  int tiles = 0, before_leader = 0;
  for (int t = 0; t < params.tokens; ++t) {
    const auto mask = static_cast<std::uint32_t>(cta.load_shared(&route.leaders[t]));
    if (t == view.leader_token)
      before_leader = tiles + Cta::count_ones(mask & ((1u << view.leader_rank) - 1u));
    tiles += Cta::count_ones(mask);
  }
  if (view.leader_token >= 0) {
    const int pair = token * params.top_k + rank;
    cta.store_shared(&route.tile_token[before_leader][view.place], token);
    cta.store_shared(&route.pair_place[pair], kFewTokens * before_leader + view.place);
    if (view.place == 0) {
      cta.store_shared(&route.tile_expert[before_leader], expert);
      cta.store_shared(&route.tile_count[before_leader], view.count);
    }
  }
  cta.sync_block();  // the tiles are complete
  return tiles;
}

// The tile list as the streaming kernel reads it.
struct FewTiles {
  const FewRoute& route;
  template <class Cta>
  FOURFOLD_DEVICE int expert(Cta cta, int index) const {
    return cta.load_shared(&route.tile_expert[index]);
  }
  template <class Cta>
  FOURFOLD_DEVICE moe::TokenTile tile(Cta cta, int index) const {
    return {expert(cta, index), moe::kSlotGroup * index, cta.load_shared(&route.tile_count[index]), 0};
  }
  // GEMM1 reads the token, GEMM2 (no tokens given) the slot GEMM1 wrote.
  bool reads_tokens;
  template <class Cta>
  FOURFOLD_DEVICE int token_row(Cta cta, const moe::GemmParams&, int index, const moe::TokenTile& tile,
                                int place) const {
    return reads_tokens ? cta.load_shared(&route.tile_token[index][place]) : tile.first_slot + place;
  }
};

}  // namespace fourfold::moe_few
