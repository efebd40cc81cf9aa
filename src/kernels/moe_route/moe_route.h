// From router logits to the tables of the layer: top-k per token, then a stable counting sort of the pairs by expert and
// the list of token tiles. No atomics: a slot depends only on the pairs before it, so the tables are the same every time.
//
// Up to kChunkTokens tokens one block does it all (route_small). More tokens are cut into chunks: route_choose picks and
// counts per chunk, route_scan turns counts into positions, route_place writes the tables.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_route/route_params.h"
#include "kernels/moe_route/top_k.h"

namespace fourfold::moe_route {

// Top-k of the chunk's tokens, one warp a token; ids go to shared memory and to the table.
template <class Cta>
FOURFOLD_DEVICE void choose_chunk(Cta cta, const RouteParams& params, SortStorage& storage, int first_token,
                                  int token_count) {
  const int warps = cta.threads() / 32;
  for (int i = cta.warp(); i < token_count; i += warps) {
    const int token = first_token + i;
    const Choice choice = choose_experts(cta, params.logits + static_cast<std::int64_t>(token) * params.experts,
                                         params.experts, params.top_k, params.renormalise);
    const int lane = cta.lane();
    if (lane < params.top_k) {
      cta.store_shared(&storage.expert_of_pair[i * params.top_k + lane], choice.expert);
      const std::int64_t pair = static_cast<std::int64_t>(token) * params.top_k + lane;
      cta.store(params.tables.pair_expert + pair, choice.expert);
      cta.store(params.tables.pair_weight + pair, choice.weight);
    }
  }
  cta.sync_block();  // every id of the chunk is in shared memory
}

// The part of the chunk's pairs that counting warp w owns: contiguous, so ranks follow the pair order.
struct PairRange {
  int begin;
  int end;
};
FOURFOLD_DEVICE PairRange pairs_of_warp(int pair_count, int warp) {
  const int each = moe::round_up((pair_count + kCountingWarps - 1) / kCountingWarps, 32);
  const int begin = warp * each < pair_count ? warp * each : pair_count;
  return {begin, begin + each < pair_count ? begin + each : pair_count};
}

// counts[w][e] for the chunk. Lanes with the same expert find each other by match; the lowest writes for all.
template <class Cta>
FOURFOLD_DEVICE void count_chunk(Cta cta, const RouteParams& params, SortStorage& storage, int pair_count) {
  for (int i = cta.thread(); i < kCountingWarps * params.experts; i += cta.threads())
    cta.store_shared(&storage.counts[i / params.experts][i % params.experts], 0);
  cta.sync_block();  // the counts are zero
  const int warp = cta.warp();
  if (warp < kCountingWarps) {
    const PairRange range = pairs_of_warp(pair_count, warp);
    for (int base = range.begin; base < range.end; base += 32) {
      const int pair = base + cta.lane();
      const bool valid = pair < range.end;
      // Lanes without a pair share a value no expert has.
      const std::uint32_t expert =
          valid ? static_cast<std::uint32_t>(cta.load_shared(&storage.expert_of_pair[pair])) : ~0u;
      const std::uint32_t same = cta.match(expert);
      if (valid && Cta::lowest_bit(same) == cta.lane()) {
        std::int32_t* count = &storage.counts[warp][expert];
        cta.store_shared(count, cta.load_shared(count) + Cta::count_ones(same));
      }
      cta.sync_warp();  // the next 32 pairs see these counts
    }
  }
  cta.sync_block();  // every warp has counted
}

// Sum over the counting warps for one expert; leaves each warp's first rank (from `base`) in counts.
template <class Cta>
FOURFOLD_DEVICE int ranks_of_warps(Cta cta, SortStorage& storage, int expert, int base) {
  int running = base;
  for (int w = 0; w < kCountingWarps; ++w) {
    const int count = cta.load_shared(&storage.counts[w][expert]);
    cta.store_shared(&storage.counts[w][expert], running);
    running += count;
  }
  return running - base;
}

// Exclusive prefix sums over the block's threads of two values at once.
struct TwoSums {
  int slots;
  int tiles;
};
template <class Cta>
FOURFOLD_DEVICE TwoSums prefix_of_block(Cta cta, SortStorage& storage, TwoSums own, TwoSums& total) {
  TwoSums inclusive = own;
  const int lane = cta.lane(), warp = cta.warp(), warps = cta.threads() / 32;
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const int slots = cta.shuffle(inclusive.slots, lane >= by ? lane - by : lane);
    const int tiles = cta.shuffle(inclusive.tiles, lane >= by ? lane - by : lane);
    if (lane >= by) {
      inclusive.slots += slots;
      inclusive.tiles += tiles;
    }
  }
  if (lane == 31) {
    cta.store_shared(&storage.scan[0][warp], inclusive.slots);
    cta.store_shared(&storage.scan[1][warp], inclusive.tiles);
  }
  cta.sync_block();  // the warps' totals are written
  TwoSums before{0, 0};
  total = {0, 0};
  for (int w = 0; w < warps; ++w) {
    const int slots = cta.load_shared(&storage.scan[0][w]), tiles = cta.load_shared(&storage.scan[1][w]);
    if (w < warp) {
      before.slots += slots;
      before.tiles += tiles;
    }
    total.slots += slots;
    total.tiles += tiles;
  }
  return {before.slots + inclusive.slots - own.slots, before.tiles + inclusive.tiles - own.tiles};
}

// The token tiles of one expert: as few as N allows, as even as groups of eight allow.
template <class Cta>
FOURFOLD_DEVICE void write_tiles(Cta cta, const RouteParams& params, int expert, int count, int first_slot,
                                 int first_tile) {
  const int tiles = (count + params.tile_tokens - 1) / params.tile_tokens;
  if (tiles == 0) return;
  const int each = moe::round_up((count + tiles - 1) / tiles, moe::kSlotGroup);
  int index = first_tile;
  for (int begin = 0; begin < count; begin += each, ++index) {
    const int left = count - begin;
    cta.store(params.tables.tiles + index,
              moe::TokenTile{expert, first_slot + begin, left < each ? left : each, 0});
  }
}
FOURFOLD_DEVICE int tiles_of(int count, int tile_tokens) {
  const int tiles = (count + tile_tokens - 1) / tile_tokens;
  if (tiles == 0) return 0;
  const int each = moe::round_up((count + tiles - 1) / tiles, moe::kSlotGroup);
  return (count + each - 1) / each;
}

// Positions of all experts from their totals; thread e owns expert e. Returns expert e's first slot.
template <class Cta>
FOURFOLD_DEVICE int lay_out_experts(Cta cta, const RouteParams& params, SortStorage& storage, int total_of_expert) {
  const int expert = cta.thread();
  const int tiles = tiles_of(total_of_expert, params.tile_tokens);
  TwoSums all;
  const TwoSums first =
      prefix_of_block(cta, storage, {moe::round_up(total_of_expert, moe::kSlotGroup), tiles}, all);
  if (expert < params.experts) write_tiles(cta, params, expert, total_of_expert, first.slots, first.tiles);
  if (cta.thread() == 0) cta.store(params.tables.tile_count, all.tiles);
  return first.slots;
}

// Writes the slots of a chunk's pairs. counts[w][e] holds warp w's first rank and first_slot[e] the expert's first slot.
template <class Cta>
FOURFOLD_DEVICE void place_chunk(Cta cta, const RouteParams& params, SortStorage& storage, int first_token,
                                 int pair_count) {
  const int warp = cta.warp();
  if (warp >= kCountingWarps) return;
  const PairRange range = pairs_of_warp(pair_count, warp);
  const std::int64_t first_pair = static_cast<std::int64_t>(first_token) * params.top_k;
  for (int base = range.begin; base < range.end; base += 32) {
    const int in_chunk = base + cta.lane();
    const bool valid = in_chunk < range.end;
    const std::uint32_t expert =
        valid ? static_cast<std::uint32_t>(cta.load_shared(&storage.expert_of_pair[in_chunk])) : ~0u;
    const std::uint32_t same = cta.match(expert);
    if (valid) {
      const int rank = cta.load_shared(&storage.counts[warp][expert]) +
                       Cta::count_ones(same & ((1u << cta.lane()) - 1u));
      const int slot = cta.load_shared(&storage.first_slot[expert]) + rank;
      const std::int64_t pair = first_pair + in_chunk;
      cta.store(params.tables.pair_slot + pair, slot);
      cta.store(params.tables.slot_token + slot, first_token + in_chunk / params.top_k);
      cta.store(params.tables.slot_weight + slot, cta.load(params.tables.pair_weight + pair));
    }
    cta.sync_warp();  // ranks are read before they move on
    if (valid && Cta::lowest_bit(same) == cta.lane()) {
      std::int32_t* count = &storage.counts[warp][expert];
      cta.store_shared(count, cta.load_shared(count) + Cta::count_ones(same));
    }
    cta.sync_warp();  // the next 32 pairs see the new ranks
  }
}

// ---- the kernels ----

template <class Cta>
FOURFOLD_DEVICE void route_small(Cta cta, const RouteParams& params) {
  SortStorage& storage = cta.template shared<SortStorage>();
  cta.wait_predecessors();
  cta.release_successors();
  const int pairs = params.tokens * params.top_k;
  choose_chunk(cta, params, storage, 0, params.tokens);
  count_chunk(cta, params, storage, pairs);
  const int expert = cta.thread();
  const int total = expert < params.experts ? ranks_of_warps(cta, storage, expert, 0) : 0;
  const int first_slot = lay_out_experts(cta, params, storage, total);
  if (expert < params.experts) cta.store_shared(&storage.first_slot[expert], first_slot);
  cta.sync_block();  // ranks and first slots are in place
  place_chunk(cta, params, storage, 0, pairs);
}

FOURFOLD_DEVICE int tokens_of_chunk(const RouteParams& params, int chunk) {
  const int left = params.tokens - chunk * kChunkTokens;
  return left < kChunkTokens ? left : kChunkTokens;
}

template <class Cta>
FOURFOLD_DEVICE void route_choose(Cta cta, const RouteParams& params) {
  SortStorage& storage = cta.template shared<SortStorage>();
  cta.wait_predecessors();
  cta.release_successors();
  const int chunk = cta.block();
  const int tokens = tokens_of_chunk(params, chunk);
  choose_chunk(cta, params, storage, chunk * kChunkTokens, tokens);
  count_chunk(cta, params, storage, tokens * params.top_k);
  for (int expert = cta.thread(); expert < params.experts; expert += cta.threads()) {
    const int total = ranks_of_warps(cta, storage, expert, 0);
    cta.store(params.chunk_counts + static_cast<std::int64_t>(chunk) * params.experts + expert, total);
  }
}

// One block: counts per chunk become the chunk's first slot per expert.
template <class Cta>
FOURFOLD_DEVICE void route_scan(Cta cta, const RouteParams& params) {
  SortStorage& storage = cta.template shared<SortStorage>();
  cta.wait_predecessors();
  cta.release_successors();
  const int expert = cta.thread();
  const int chunks = (params.tokens + kChunkTokens - 1) / kChunkTokens;
  int total = 0;
  if (expert < params.experts)
    for (int c = 0; c < chunks; ++c)
      total += cta.load(params.chunk_counts + static_cast<std::int64_t>(c) * params.experts + expert);
  int slot = lay_out_experts(cta, params, storage, total);
  if (expert < params.experts)
    for (int c = 0; c < chunks; ++c) {
      std::int32_t* count = params.chunk_counts + static_cast<std::int64_t>(c) * params.experts + expert;
      const int here = cta.load(count);
      cta.store(count, slot);
      slot += here;
    }
}

template <class Cta>
FOURFOLD_DEVICE void route_place(Cta cta, const RouteParams& params) {
  SortStorage& storage = cta.template shared<SortStorage>();
  cta.wait_predecessors();
  cta.release_successors();
  const int chunk = cta.block();
  const int first_token = chunk * kChunkTokens;
  const int pairs = tokens_of_chunk(params, chunk) * params.top_k;
  for (int i = cta.thread(); i < pairs; i += cta.threads())
    cta.store_shared(&storage.expert_of_pair[i],
                     cta.load(params.tables.pair_expert + static_cast<std::int64_t>(first_token) * params.top_k + i));
  for (int expert = cta.thread(); expert < params.experts; expert += cta.threads())
    cta.store_shared(&storage.first_slot[expert],
                     cta.load(params.chunk_counts + static_cast<std::int64_t>(chunk) * params.experts + expert));
  cta.sync_block();  // ids and first slots are in shared memory
  count_chunk(cta, params, storage, pairs);
  for (int expert = cta.thread(); expert < params.experts; expert += cta.threads())
    ranks_of_warps(cta, storage, expert, 0);
  cta.sync_block();  // ranks are in place
  place_chunk(cta, params, storage, first_token, pairs);
}

}  // namespace fourfold::moe_route
