// The way of latent pages into shared memory for wgmma: a ring of whole pages, filled by one thread. In
// memory a page is two tiles of 32 positions; wgmma steps from eight positions to the next eight by one
// stride, so here the 64 positions of a panel lie behind each other: a copy is one tile's part of a panel.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/mla/latent_page.h"

namespace fourfold::mla {

// Of a page in shared memory: 64 positions of 64 columns.
inline constexpr int kPagePanelBytes = kPageTiles * kPanelBytes;

template <class Row>
struct PageRing {
  using Page = typename Row::Page;
  using Storage = typename Row::Storage;

  device::PipelineCursor<Row::stages> taking;
  device::PipelineCursor<Row::stages> filling;

  // By one thread; whoever uses the ring must meet it at a sync_block before.
  template <class Cta>
  static FOURFOLD_DEVICE void init(Cta cta, Storage& storage) {
    if (cta.thread() == 0) {
#pragma unroll 1
      for (int i = 0; i < Row::stages; ++i) {
        cta.init(&storage.full[i], 1);
        cta.init(&storage.empty[i], Row::math_warps * Cta::kWarpArrivals);
      }
      cta.fence_barrier_init();
    }
  }

  // All lanes of the filling warp: the pages of a unit, one after another. numbers: where they are, in units
  // of a page behind `pages`.
  template <class Cta>
  FOURFOLD_DEVICE void fill(Cta cta, Storage& storage, const unsigned char* pages,
                            const std::int32_t* numbers, int count) {
    int known = 0;  // lane j: the number of page 32 i + j
#pragma unroll 1
    for (int page = 0; page < count; ++page) {
      if (page % 32 == 0 && page + cta.lane() < count) known = cta.load(numbers + page + cta.lane());
      const std::int64_t number = cta.shuffle(known, page % 32);
      if (cta.lane() == 0) {
        // A fresh barrier reports its previous phase as complete: the first lap does not wait.
        cta.wait(&storage.empty[filling.stage], filling.phase ^ 1u);
        cta.arrive_expect(&storage.full[filling.stage], Page::page_bytes);
        const unsigned char* from = pages + number * Page::page_bytes;
#pragma unroll 1
        for (int i = 0; i < kPageTiles * Page::panels; ++i, from += kPanelBytes)
          cta.bulk_load(storage.page[filling.stage] + i % Page::panels * kPagePanelBytes +
                            i / Page::panels * kPanelBytes,
                        from, kPanelBytes, &storage.full[filling.stage]);
      }
      filling.advance();
    }
  }

  // Math warps: the next page, when it has landed.
  template <class Cta>
  FOURFOLD_DEVICE unsigned char* take(Cta cta, Storage& storage) {
    cta.wait(&storage.full[taking.stage], taking.phase);
    return storage.page[taking.stage];
  }
  // Every lane of the warp has read (a wgmma_wait says so); lane 0 speaks for them (racecheck build: each for
  // itself).
  template <class Cta>
  FOURFOLD_DEVICE void give_back(Cta cta, Storage& storage) {
    if (cta.lane() < Cta::kWarpArrivals) cta.arrive(&storage.empty[taking.stage]);
    taking.advance();
  }
};

}  // namespace fourfold::mla
