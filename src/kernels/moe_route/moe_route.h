// From router logits to the tables of the layer: top-k per token, then a stable counting sort of the pairs by
// expert and the list of token tiles. No atomics: a slot depends only on the pairs before it, so the tables
// are the same every time.
//
// Up to kOneBlockTokens tokens and kOneBlockExperts experts route_table does it all (few_tables.h). Beyond
// that route_choose picks the experts, many blocks; up to kSmallTokens route_table does the rest; beyond,
// tokens are cut into chunks whose counts route_choose leaves and route_place turns into slots; many chunks
// are added up by route_scan in between. launch_route.h has the sequence.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_route/few_tables.h"
#include "kernels/moe_route/lay_out.h"
#include "kernels/moe_route/route_params.h"
#include "kernels/moe_route/top_k.h"
#include "kernels/moe_tokens/moe_tokens.h"

namespace fourfold::moe_route {

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
template <class Storage, class Cta>
FOURFOLD_DEVICE void count_chunk(Cta cta, const RouteParams& params, Storage& storage, int pair_count) {
  for (int expert = cta.thread(); expert < params.experts; expert += cta.threads())
#pragma unroll
    for (int w = 0; w < kCountingWarps; ++w) cta.store_shared(&storage.counts[w][expert], 0);
  cta.sync_block();  // the counts are zero, and the ids of the chunk in shared memory
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
template <class Storage, class Cta>
FOURFOLD_DEVICE int ranks_of_warps(Cta cta, Storage& storage, int expert, int base) {
  int count[kCountingWarps];
#pragma unroll
  for (int w = 0; w < kCountingWarps; ++w) count[w] = cta.load_shared(&storage.counts[w][expert]);
  int running = base;
#pragma unroll
  for (int w = 0; w < kCountingWarps; ++w) {
    cta.store_shared(&storage.counts[w][expert], running);
    running += count[w];
  }
  return running - base;
}

// First slot of every expert from the totals, into shared memory; with `writes` also the tile list. Blocks of
// fewer threads than experts take several rounds.
template <class Storage, class Cta, class TotalOf>
FOURFOLD_DEVICE void lay_out_experts(Cta cta, const RouteParams& params, Storage& storage, bool writes,
                                     const TotalOf& total_of) {
  TwoSums before{0, 0};
  for (int base = 0; base < params.experts; base += cta.threads()) {
    const int expert = base + cta.thread();
    const int total = expert < params.experts ? total_of(expert) : 0;
    TwoSums all;
    const TwoSums first = prefix_of_block(
        cta, storage, {moe::round_up(total, moe::kSlotGroup), tiles_of(total, params.tile_tokens)}, all);
    if (expert < params.experts) {
      cta.store_shared(&storage.first_slot[expert], before.slots + first.slots);
      if (writes)
        write_tiles(cta, params, expert, total, before.slots + first.slots, before.tiles + first.tiles);
    }
    before = {before.slots + all.slots, before.tiles + all.tiles};
    cta.sync_block();  // the sums of the warps are read before another round writes them; first slots are in
                       // place
  }
  if (writes && cta.thread() == 0) cta.store(params.tables.tile_count, before.tiles);
}

// Writes the slots of a chunk's pairs. counts[w][e] holds warp w's first rank and first_slot[e] the expert's
// first slot.
template <class Storage, class Cta>
FOURFOLD_DEVICE void place_chunk(Cta cta, const RouteParams& params, Storage& storage, int first_token,
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
      const int rank =
          cta.load_shared(&storage.counts[warp][expert]) + Cta::count_ones(same & ((1u << cta.lane()) - 1u));
      const int slot = cta.load_shared(&storage.first_slot[expert]) + rank;
      const std::int64_t pair = first_pair + in_chunk;
      cta.store(params.tables.pair_slot + pair, slot);
      cta.store(params.tables.slot_token + slot, first_token + in_chunk / params.top_k);
      cta.store(params.tables.slot_weight + slot, cta.load_shared(&storage.weight_of_pair[in_chunk]));
    }
    cta.sync_warp();  // ranks are read before they move on
    if (valid && Cta::lowest_bit(same) == cta.lane()) {
      std::int32_t* count = &storage.counts[warp][expert];
      cta.store_shared(count, cta.load_shared(count) + Cta::count_ones(same));
    }
    cta.sync_warp();  // the next 32 pairs see the new ranks
  }
}

template <class Storage, class Cta>
FOURFOLD_DEVICE void load_pairs(Cta cta, const RouteParams& params, Storage& storage, int first_token,
                                int pairs) {
  const std::int64_t first = static_cast<std::int64_t>(first_token) * params.top_k;
  for (int i = cta.thread(); i < pairs; i += cta.threads()) {
    cta.store_shared(&storage.expert_of_pair[i], cta.load(params.tables.pair_expert + first + i));
    cta.store_shared(&storage.weight_of_pair[i], cta.load(params.tables.pair_weight + first + i));
  }
}

// ---- the kernels ----

// The experts of tokens first_token .. + tokens, one warp a token; the ids also into shared memory.
template <bool AnyRule, class Storage, class Cta>
FOURFOLD_DEVICE void choose_chunk(Cta cta, const RouteParams& params, Storage& storage, int first_token,
                                  int tokens) {
  const int lane = cta.lane();
  for (int i = cta.warp(); i < tokens; i += cta.threads() / 32) {
    const int token = first_token + i;
    const int stride = params.logits_stride ? params.logits_stride : params.experts;
    const Choice choice = top_k_experts<moe::kMaxExperts, AnyRule>(
        cta, params.logits + static_cast<std::int64_t>(token) * stride, params.experts, params.top_k,
        params.rule, &storage.expert_of_pair[i * params.top_k], &storage.weight_of_pair[i * params.top_k]);
    cta.sync_warp();  // the logits there are read
    if (lane < params.top_k) {
      const std::int64_t pair = static_cast<std::int64_t>(token) * params.top_k + lane;
      cta.store(params.tables.pair_expert + pair, choice.expert);
      cta.store(params.tables.pair_weight + pair, choice.weight);
      cta.store_shared(&storage.weight_of_pair[i * params.top_k + lane], choice.weight);
    }
  }
}

// For many tokens also the counts of the chunk.
template <bool AnyRule, class Cta>
FOURFOLD_DEVICE void route_choose(Cta cta, const RouteParams& params) {
  cta.wait_predecessors();
  cta.release_successors();
  const int chunks = chunk_count(params.tokens);
  if (cta.block() >= chunks)
    return moe_tokens::stage_share(cta, params.stage, cta.block() - chunks, cta.blocks() - chunks);
  ChunkStorage& storage = cta.template shared<ChunkStorage>();
  const int each = chunk_tokens(params.tokens);
  const int first_token = cta.block() * each;
  const int tokens = params.tokens - first_token < each ? params.tokens - first_token : each;
  choose_chunk<AnyRule>(cta, params, storage, first_token, tokens);
  if (params.chunk_counts == nullptr) return;
  count_chunk(cta, params, storage, tokens * params.top_k);
  for (int expert = cta.thread(); expert < params.experts; expert += cta.threads())
    cta.store(params.chunk_counts + static_cast<std::int64_t>(cta.block()) * params.experts + expert,
              ranks_of_warps(cta, storage, expert, 0));
}

// One block: all tables of a small batch.
template <bool AnyRule, class Cta>
FOURFOLD_DEVICE void route_table(Cta cta, const RouteParams& params) {
  if (in_one_block(params.tokens, params.experts)) return route_one_block<AnyRule>(cta, params);
  TableStorage& storage = cta.template shared<TableStorage>();
  cta.wait_predecessors();
  cta.release_successors();
  const int pairs = params.tokens * params.top_k;
  load_pairs(cta, params, storage, 0, pairs);
  count_chunk(cta, params, storage, pairs);
  lay_out_experts(cta, params, storage, true,
                  [&](int expert) { return ranks_of_warps(cta, storage, expert, 0); });
  place_chunk(cta, params, storage, 0, pairs);
}

// A block owns kScanExperts experts, a lane each; warps share the chunks. Counts become first ranks, in chunk
// order.
template <class Cta>
FOURFOLD_DEVICE void route_scan(Cta cta, const RouteParams& params) {
  ScanStorage& storage = cta.template shared<ScanStorage>();
  cta.wait_predecessors();
  cta.release_successors();
  const int expert = cta.block() * kScanExperts + cta.lane(), warp = cta.warp(), warps = cta.threads() / 32;
  const bool valid = expert < params.experts;
  const int chunks = chunk_count(params.tokens);
  const int each = (chunks + warps - 1) / warps;  // contiguous, so that ranks follow the chunk order
  const int begin = warp * each < chunks ? warp * each : chunks;
  const int end = begin + each < chunks ? begin + each : chunks;
  int sum = 0;
  for (int c = begin; c < end; ++c)
    if (valid) sum += cta.load(params.chunk_counts + static_cast<std::int64_t>(c) * params.experts + expert);
  cta.store_shared(&storage.sums[warp][cta.lane()], sum);
  cta.sync_block();  // the warps' sums are written
  int running = 0, total = 0;
  for (int w = 0; w < warps; ++w) {
    const int part = cta.load_shared(&storage.sums[w][cta.lane()]);
    running += w < warp ? part : 0;
    total += part;
  }
  if (!valid) return;
  for (int c = begin; c < end; ++c) {
    std::int32_t* count = params.chunk_counts + static_cast<std::int64_t>(c) * params.experts + expert;
    const int here = cta.load(count);
    cta.store(count, running);
    running += here;
  }
  if (warp == 0) cta.store(params.expert_counts + expert, total);
}

// Pairs of an expert in all chunks; those of the chunks before this one are its first rank here.
template <class Storage, class Cta>
FOURFOLD_DEVICE int total_and_first_rank(Cta cta, const RouteParams& params, Storage& storage, int expert) {
  const std::int32_t* counts = params.chunk_counts + expert;
  int total = 0, before = 0;
  if (scans_apart(params.tokens)) {
    before = cta.load(counts + static_cast<std::int64_t>(cta.block()) * params.experts);
    total = cta.load(params.expert_counts + expert);
  } else {
#pragma unroll 16
    for (int chunk = 0; chunk < chunk_count(params.tokens); ++chunk, counts += params.experts) {
      const int count = cta.load(counts);
      total += count;
      before += chunk < cta.block() ? count : 0;
    }
  }
  cta.store_shared(&storage.first_rank[expert], before);
  return total;
}

// A chunk's pairs to their slots. Every block lays the experts out for itself; the first one writes the tile
// list.
template <class Cta>
FOURFOLD_DEVICE void route_place(Cta cta, const RouteParams& params) {
  ChunkStorage& storage = cta.template shared<ChunkStorage>();
  cta.wait_predecessors();
  cta.release_successors();
  const int chunk = cta.block(), each = chunk_tokens(params.tokens), first_token = chunk * each;
  const int tokens = params.tokens - first_token < each ? params.tokens - first_token : each;
  lay_out_experts(cta, params, storage, chunk == 0,
                  [&](int expert) { return total_and_first_rank(cta, params, storage, expert); });
  load_pairs(cta, params, storage, first_token, tokens * params.top_k);
  count_chunk(cta, params, storage, tokens * params.top_k);
  for (int expert = cta.thread(); expert < params.experts; expert += cta.threads())
    ranks_of_warps(cta, storage, expert, cta.load_shared(&storage.first_rank[expert]));
  cta.sync_block();  // ranks are in place
  place_chunk(cta, params, storage, first_token, tokens * params.top_k);
}

}  // namespace fourfold::moe_route
