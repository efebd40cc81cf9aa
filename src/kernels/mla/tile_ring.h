// The way of latent tiles into shared memory: a ring of whole tiles, one bulk copy each, issued by warp 0. A
// tile is read twice, for scores and then for values: its slot is free when every warp has left the values.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/mla/latent_page.h"

namespace fourfold::mla {

// The tiles of one unit of work.
struct TileList {
  const unsigned char* pages = nullptr;   // of the layer, from page 0 on
  const std::int32_t* numbers = nullptr;  // of the unit's pages
  int tiles = 0;
};

template <class Row>
struct TileRing {
  using Page = typename Row::Page;
  using Storage = typename Row::Storage;

  device::PipelineCursor<Row::stages> taking;
  device::PipelineCursor<Row::stages> filling;
  int filled = 0;
  int numbers = 0;  // lane j of warp 0: the number of page 32 i + j

  // By one thread, which may fill at once; whoever else uses the ring must meet it at a sync_block before.
  template <class Cta>
  static FOURFOLD_DEVICE void init(Cta cta, Storage& storage) {
    if (cta.thread() == 0) {
#pragma unroll 1
      for (int i = 0; i < Row::stages; ++i) {
        cta.init(&storage.full[i], 1);
        cta.init(&storage.empty[i], Row::warps * Cta::kWarpArrivals);
      }
      cta.fence_barrier_init();
    }
  }

  // All lanes of warp 0: the next tile of the list, if there is one.
  template <class Cta>
  FOURFOLD_DEVICE void fill(Cta cta, Storage& storage, const TileList& list) {
    if (filled == list.tiles) return;
    const int page = filled / kPageTiles, part = filled % kPageTiles;
    const int pages = (list.tiles + kPageTiles - 1) / kPageTiles;
    if (part == 0 && page % 32 == 0 && page + cta.lane() < pages)
      numbers = cta.load(list.numbers + page + cta.lane());
    const std::int64_t number = cta.shuffle(numbers, page % 32);
    if (cta.lane() == 0) {
      // A fresh barrier reports its previous phase as complete: the first lap does not wait.
      cta.wait(&storage.empty[filling.stage], filling.phase ^ 1u);
      cta.arrive_expect(&storage.full[filling.stage], Page::tile_bytes);
      cta.bulk_load(storage.tile[filling.stage],
                    list.pages + number * Page::page_bytes + part * Page::tile_bytes, Page::tile_bytes,
                    &storage.full[filling.stage]);
    }
    filling.advance();
    ++filled;
  }
  // The same at the start of a list: as many as there are slots.
  template <class Cta>
  FOURFOLD_DEVICE void start(Cta cta, Storage& storage, const TileList& list) {
    filled = 0;
#pragma unroll 1
    for (int i = 0; i < Row::stages; ++i) fill(cta, storage, list);
  }

  // All warps: the next tile, when it has landed.
  template <class Cta>
  FOURFOLD_DEVICE const unsigned char* take(Cta cta, Storage& storage) {
    cta.wait(&storage.full[taking.stage], taking.phase);
    return storage.tile[taking.stage];
  }
  // Lane 0 speaks for its warp (racecheck build: each for itself).
  template <class Cta>
  FOURFOLD_DEVICE void give_back(Cta cta, Storage& storage) {
    cta.sync_warp();  // every lane has read
    if (cta.lane() < Cta::kWarpArrivals) cta.arrive(&storage.empty[taking.stage]);
    taking.advance();
  }
};

}  // namespace fourfold::mla
