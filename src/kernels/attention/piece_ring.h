// The way of pages into shared memory: a ring of slots, filled by bulk copies of one thread, emptied by all
// math warps. A slot holds one piece of a page, or (Row::copy_pieces) all of its K or V. They come in the
// order they are multiplied: the K of a page, then its V.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/attention/page_layout.h"
#include "kernels/device/types.h"

namespace fourfold::attention {

// The pages of one unit of work, for one KV head.
struct PageList {
  const unsigned char* keys = nullptr;  // of this KV head, in page 0
  const unsigned char* values = nullptr;
  std::int64_t page_stride = 0;           // bytes
  const std::int32_t* numbers = nullptr;  // of the pages
  int pages = 0;
};

template <class Layout>
FOURFOLD_DEVICE PageList list_pages(const unsigned char* keys, const unsigned char* values, int kv_head,
                                    int kv_heads, const std::int32_t* numbers, int pages) {
  const std::int64_t first = static_cast<std::int64_t>(kv_head) * Layout::page_bytes;
  return {keys + first, values + first, static_cast<std::int64_t>(kv_heads) * Layout::page_bytes, numbers,
          pages};
}

template <class Row>
struct PieceRing {
  using Layout = typename Row::Layout;
  using Storage = typename Row::Storage;
  static constexpr int copies = 2 * Layout::pieces / Row::copy_pieces;  // of a page
  static constexpr int copy_bytes = Row::copy_pieces * Layout::piece_bytes;
  // A slot is filled again when its piece was used this many pieces ago, so that the filling warp seldom
  // waits for the slowest of the others.
  static constexpr int lag = 2;

  device::PipelineCursor<Row::stages> taking;
  device::PipelineCursor<Row::stages> filling;
  int taken = 0;
  int filled = 0;
  int numbers = 0;  // lane j of the filling warp: the number of page 32 i + j

  // By one thread, which may fill at once; whoever else uses the ring must meet it at a sync_block before.
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

  FOURFOLD_DEVICE void enter() { taken = filled = 0; }
  FOURFOLD_DEVICE bool complete(const PageList& list) const { return filled == copies * list.pages; }

  // All lanes of the filling warp: the next slot of the list.
  template <class Cta>
  FOURFOLD_DEVICE void fill(Cta cta, Storage& storage, const PageList& list) {
    const int page = filled / copies, part = filled % copies;
    if (part == 0 && page % 32 == 0 && page + cta.lane() < list.pages)
      numbers = cta.load(list.numbers + page + cta.lane());
    const std::int64_t number = cta.shuffle(numbers, page % 32);
    if (cta.lane() == 0) {
      // A fresh barrier reports its previous phase as complete: the first lap does not wait.
      cta.wait(&storage.empty[filling.stage], filling.phase ^ 1u);
      cta.arrive_expect(&storage.full[filling.stage], copy_bytes);
      const unsigned char* from =
          part < copies / 2 ? list.keys + part * copy_bytes : list.values + (part - copies / 2) * copy_bytes;
      cta.bulk_load(storage.slot[filling.stage], from + number * list.page_stride, copy_bytes,
                    &storage.full[filling.stage]);
    }
    filling.advance();
    ++filled;
  }
  // The filling warp, at the start of a list: as much as there is room for.
  template <class Cta>
  FOURFOLD_DEVICE void start(Cta cta, Storage& storage, const PageList& list) {
#pragma unroll 1
    while (!complete(list) && filled < Row::stages) fill(cta, storage, list);
  }

  // Math warps: the next slot, when it has landed.
  template <class Cta>
  FOURFOLD_DEVICE const unsigned char* take(Cta cta, Storage& storage) {
    cta.wait(&storage.full[taking.stage], taking.phase);
    return storage.slot[taking.stage];
  }
  // The same where a math warp also fills.
  template <class Cta>
  FOURFOLD_DEVICE const unsigned char* take(Cta cta, Storage& storage, const PageList& list, bool fills) {
    if (fills && taken >= lag && !complete(list)) fill(cta, storage, list);
    ++taken;
    return take(cta, storage);
  }
  // Every lane of the warp has read (a sync_warp or a wgmma_wait says so); lane 0 speaks for them (racecheck
  // build: each for itself).
  template <class Cta>
  FOURFOLD_DEVICE void give_back(Cta cta, Storage& storage) {
    if (cta.lane() < Cta::kWarpArrivals) cta.arrive(&storage.empty[taking.stage]);
    taking.advance();
  }
};

}  // namespace fourfold::attention
