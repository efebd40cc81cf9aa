// The plain grouped GEMM's own kernels. A caller's groups are rows sorted by expert and their offsets, both
// on the device; group_tiles makes the tile list out of the offsets, so no host ever reads them. The 16-bit
// paths then read and write the caller's rows in place. Token records hold eight slots of one expert, so W4A4
// numbers the slots in groups of eight and group_scatter brings the results back to the caller's rows.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe_group/group_params.h"
#include "kernels/moe_route/moe_route.h"

namespace fourfold::moe_group {

// Rows of the block's threads to their slots. offset[] ascends, so the owner of a row is found by halving.
template <class Cta>
FOURFOLD_DEVICE void map_rows(Cta cta, const TileParams& params, TileStorage& storage) {
  const int end = cta.load_shared(&storage.offset[params.experts]);
  const int step = cta.blocks() * cta.threads();
  for (int row = cta.load_shared(&storage.offset[0]) + cta.block() * cta.threads() + cta.thread(); row < end;
       row += step) {
    int expert = 0, above = params.experts;
    while (above - expert > 1) {
      const int middle = (expert + above) / 2;
      if (cta.load_shared(&storage.offset[middle]) <= row)
        expert = middle;
      else
        above = middle;
    }
    const int place = row - cta.load_shared(&storage.offset[expert]);
    cta.store(params.slot_token + cta.load_shared(&storage.first_slot[expert]) + place, row);
  }
}

// Offsets that descend or leave [0, rows] make no tile at all: the GEMM then writes nothing, rather than past
// a buffer.
template <class Cta>
FOURFOLD_DEVICE void group_tiles(Cta cta, const TileParams& params) {
  TileStorage& storage = cta.template shared<TileStorage>();
  cta.wait_predecessors();
  cta.release_successors();
  const int expert = cta.thread();
  for (int i = expert; i <= params.experts; i += cta.threads())
    cta.store_shared(&storage.offset[i], cta.load(params.offsets + i));
  cta.sync_block();  // the offsets are in shared memory

  int begin = 0, end = 0;
  if (expert < params.experts) {
    begin = cta.load_shared(&storage.offset[expert]);
    end = cta.load_shared(&storage.offset[expert + 1]);
  }
  moe_route::TwoSums wrong;
  moe_route::prefix_of_block(cta, storage, {begin < 0 || end < begin || end > params.rows, 0}, wrong);
  const bool writes = cta.block() == 0;
  if (wrong.slots > 0) {
    if (writes && cta.thread() == 0) cta.store(params.tile_count, 0);
    return;
  }
  cta.sync_block();  // the sums of the warps are read before they are written again

  const int count = end - begin;
  moe_route::TwoSums total;
  const moe_route::TwoSums first = moe_route::prefix_of_block(
      cta, storage, {moe::round_up(count, moe::kSlotGroup), moe_route::tiles_of(count, params.tile_tokens)},
      total);
  const int first_slot = params.slot_token ? first.slots : begin;
  if (writes) {
    moe_route::RouteParams list{};
    list.tables.tiles = params.tiles;
    list.tile_tokens = params.tile_tokens;
    if (expert < params.experts) moe_route::write_tiles(cta, list, expert, count, first_slot, first.tiles);
    if (cta.thread() == 0) cta.store(params.tile_count, total.tiles);
  }
  if (params.slot_token == nullptr) return;
  if (expert < params.experts) cta.store_shared(&storage.first_slot[expert], first_slot);
  cta.sync_block();  // first slots are in place
  map_rows(cta, params, storage);
}

// Results from slots to rows, 16 bytes a thread; blocks take token tiles round robin.
template <class Cta>
FOURFOLD_DEVICE void group_scatter(Cta cta, const ScatterParams& params) {
  cta.wait_predecessors();
  cta.release_successors();
  const int tiles = cta.load(params.tile_count);
  const int chunks = params.row_bytes / 16;
  for (int index = cta.block(); index < tiles; index += cta.blocks()) {
    const moe::TokenTile tile = cta.load(params.tiles + index);
    for (int i = cta.thread(); i < tile.count * chunks; i += cta.threads()) {
      const int place = i / chunks, chunk = i - place * chunks;
      const std::int64_t slot = tile.first_slot + place;
      const std::int64_t row = cta.load(params.slot_token + slot);
      const auto* from = reinterpret_cast<const device::U32x4*>(params.from + slot * params.row_bytes);
      cta.store(reinterpret_cast<device::U32x4*>(params.to + row * params.row_bytes) + chunk,
                cta.load(from + chunk));
    }
  }
}

}  // namespace fourfold::moe_group
