// Where the slots and tiles of each expert begin: prefix sums over the experts, and the tile list.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_route/route_params.h"

namespace fourfold::moe_route {

// Two values summed side by side.
struct TwoSums {
  int slots;
  int tiles;
};
// Inclusive prefix sums over the lanes of a warp.
template <class Cta>
FOURFOLD_DEVICE TwoSums prefix_of_warp(Cta cta, TwoSums own) {
  const int lane = cta.lane();
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const int slots = cta.shuffle(own.slots, lane >= by ? lane - by : lane);
    const int tiles = cta.shuffle(own.tiles, lane >= by ? lane - by : lane);
    if (lane >= by) {
      own.slots += slots;
      own.tiles += tiles;
    }
  }
  return own;
}
// Exclusive prefix sums over the block's threads.
template <class Cta, class Storage>
FOURFOLD_DEVICE TwoSums prefix_of_block(Cta cta, Storage& storage, TwoSums own, TwoSums& total) {
  const TwoSums inclusive = prefix_of_warp(cta, own);
  const int lane = cta.lane(), warp = cta.warp(), warps = cta.threads() / 32;
  if (lane == 31) {
    cta.store_shared(&storage.scan[0][warp], inclusive.slots);
    cta.store_shared(&storage.scan[1][warp], inclusive.tiles);
  }
  cta.sync_block();  // the warps' totals are written
  // Every warp scans them for itself: a lane a warp.
  TwoSums of_warp{0, 0};
  if (lane < warps)
    of_warp = {cta.load_shared(&storage.scan[0][lane]), cta.load_shared(&storage.scan[1][lane])};
  const TwoSums up_to = prefix_of_warp(cta, of_warp);
  total = {cta.shuffle(up_to.slots, 31), cta.shuffle(up_to.tiles, 31)};
  const TwoSums before{cta.shuffle(up_to.slots - of_warp.slots, warp),
                       cta.shuffle(up_to.tiles - of_warp.tiles, warp)};
  return {before.slots + inclusive.slots - own.slots, before.tiles + inclusive.tiles - own.tiles};
}

// Tokens of each tile of an expert (the last may have fewer): as few tiles as N allows, as even as groups of
// eight allow.
FOURFOLD_DEVICE int tokens_of_tile(int count, int tile_tokens) {
  if (count <= tile_tokens) return moe::round_up(count, moe::kSlotGroup);  // most experts: no division
  const int tiles = (count + tile_tokens - 1) / tile_tokens;
  return moe::round_up((count + tiles - 1) / tiles, moe::kSlotGroup);
}
FOURFOLD_DEVICE int tiles_of(int count, int tile_tokens) {
  if (count <= tile_tokens) return count > 0;
  const int each = tokens_of_tile(count, tile_tokens);
  return (count + each - 1) / each;
}
template <class Cta>
FOURFOLD_DEVICE void write_tiles(Cta cta, const RouteParams& params, int expert, int count, int first_slot,
                                 int first_tile) {
  const int each = tokens_of_tile(count, params.tile_tokens);
  int index = first_tile;
  for (int begin = 0; begin < count; begin += each, ++index) {
    const int left = count - begin;
    cta.store(params.tables.tiles + index,
              moe::TokenTile{expert, first_slot + begin, left < each ? left : each, 0});
  }
}

}  // namespace fourfold::moe_route
