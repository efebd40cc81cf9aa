// All tables of up to kOneBlockTokens tokens by one block, in three steps with a barrier between them: a warp
// ranks a token, or Turns of them, and leaves the set of its experts; a thread an expert sees which tokens
// chose it and where its slots begin; a lane a pair takes its slot. The order is that of the counting sort in
// moe_route.h: experts by number, their tokens by number.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_route/lay_out.h"
#include "kernels/moe_route/route_params.h"
#include "kernels/moe_route/top_k.h"

namespace fourfold::moe_route {

// The experts of this warp's token, as a set: lane w has experts 32w to 32w + 31. expert: of rank `lane`.
template <class Cta>
FOURFOLD_DEVICE std::uint32_t set_of_experts(Cta cta, int expert, int top_k) {
  std::uint32_t set = 0;
#pragma unroll 1
  for (int rank = 0; rank < top_k; ++rank) {
    const int chosen = cta.shuffle(expert, rank);
    if (chosen >> 5 == cta.lane()) set |= 1u << (chosen & 31);
  }
  return set;
}

// Which tokens chose the expert, a bit each.
template <class Cta>
FOURFOLD_DEVICE std::uint32_t tokens_of(Cta cta, const OneBlockStorage& storage, int expert, int tokens) {
  std::uint32_t chose = 0;
#pragma unroll 4
  for (int token = 0; token < tokens; ++token)
    chose |= (cta.load_shared(&storage.experts_of_token[token][expert >> 5]) >> (expert & 31) & 1u) << token;
  return chose;
}

// Turns: tokens of a warp, as many warps apart as the block has.
template <bool AnyRule, int Turns = 1, class Cta>
FOURFOLD_DEVICE void route_one_block(Cta cta, const RouteParams& params) {
  OneBlockStorage& storage = cta.template shared<OneBlockStorage>();
  const int rank = cta.lane();
  int token[Turns], pair[Turns];
  bool has_token[Turns], has_pair[Turns];
#pragma unroll
  for (int turn = 0; turn < Turns; ++turn) {
    token[turn] = cta.warp() + turn * (cta.threads() / 32);
    pair[turn] = token[turn] * params.top_k + rank;
    has_token[turn] = token[turn] < params.tokens;
    has_pair[turn] = has_token[turn] && rank < params.top_k;
  }
  cta.wait_predecessors();
  cta.release_successors();
  Choice choice[Turns] = {};
#pragma unroll
  for (int turn = 0; turn < Turns; ++turn)
    if (has_token[turn]) {
      const int stride = params.logits_stride ? params.logits_stride : params.experts;
      const int first = pair[turn] - rank;
      choice[turn] = top_k_experts<kOneBlockExperts, AnyRule>(
          cta, params.logits + static_cast<std::int64_t>(token[turn]) * stride, params.experts, params.top_k,
          params.rule, &storage.expert_of_pair[first], &storage.logit_of_pair[first]);
      const std::uint32_t set = set_of_experts(cta, choice[turn].expert, params.top_k);
      if (rank < kOneBlockExperts / 32) cta.store_shared(&storage.experts_of_token[token[turn]][rank], set);
    }
  cta.sync_block();  // every token's experts are known
  const int expert = cta.thread();
  const std::uint32_t chose = expert < params.experts ? tokens_of(cta, storage, expert, params.tokens) : 0u;
  const int count = Cta::count_ones(chose);
  TwoSums all;
  const TwoSums first = prefix_of_block(
      cta, storage, {moe::round_up(count, moe::kSlotGroup), tiles_of(count, params.tile_tokens)}, all);
  if (expert < params.experts) {
    write_tiles(cta, params, expert, count, first.slots, first.tiles);
    cta.store_shared(&storage.tokens_of_expert[expert], chose);
    cta.store_shared(&storage.first_slot[expert], first.slots);
  }
  if (cta.thread() == 0) cta.store(params.tables.tile_count, all.tiles);
  cta.sync_block();  // every expert's tokens and first slot are known
#pragma unroll
  for (int turn = 0; turn < Turns; ++turn) {
    if (!has_pair[turn]) return;
    const Choice mine = choice[turn];
    const std::uint32_t others = cta.load_shared(&storage.tokens_of_expert[mine.expert]);
    const int slot = cta.load_shared(&storage.first_slot[mine.expert]) +
                     Cta::count_ones(others & ((1u << token[turn]) - 1u));
    cta.store(params.tables.pair_expert + pair[turn], mine.expert);
    cta.store(params.tables.pair_weight + pair[turn], mine.weight);
    cta.store(params.tables.pair_slot + pair[turn], slot);
    cta.store(params.tables.slot_token + slot, token[turn]);
    cta.store(params.tables.slot_weight + slot, mine.weight);
  }
}

}  // namespace fourfold::moe_route
