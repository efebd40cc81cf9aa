// What a choosing block does together: sums, running sums and sorting of 64-bit words. All its threads call
// these, and all of them order shared memory on entry and on return.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/sampling/sampling_params.h"

namespace fourfold::sampling {

inline constexpr int kChooseWarps = kChooseThreads / 32;

struct alignas(16) TwoEntries {
  std::uint64_t v[2];
};

struct alignas(16) BlockScratch {
  std::uint64_t warp_sums[3][kChooseWarps];
};

// A thread's place in the running sum of all threads: the sum before it, and that of all.
struct Running {
  std::uint64_t before;
  std::uint64_t total;
};

template <class Cta>
FOURFOLD_DEVICE std::uint64_t warp_running_sum(Cta cta, std::uint64_t value) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const std::uint64_t other = cta.shuffle(value, cta.lane() >= step ? cta.lane() - step : 0);
    value += cta.lane() >= step ? other : 0;
  }
  return value;
}

template <class Cta>
FOURFOLD_DEVICE Running running_sum(Cta cta, BlockScratch& scratch, std::uint64_t value) {
  const int warp = cta.warp();
  const std::uint64_t inside = warp_running_sum(cta, value);
  cta.sync_block();  // the scratch is free
  if (cta.lane() == 31) cta.store_shared(&scratch.warp_sums[0][warp], inside);
  cta.sync_block();  // every warp's sum is there
  Running out{inside - value, 0};
#pragma unroll
  for (int i = 0; i < kChooseWarps; i += 2) {
    const auto two = cta.load_shared(reinterpret_cast<const TwoEntries*>(&scratch.warp_sums[0][i]));
    out.before += (i < warp ? two.v[0] : 0) + (i + 1 < warp ? two.v[1] : 0);
    out.total += two.v[0] + two.v[1];
  }
  return out;
}

// The sums over all threads of each of Count values.
template <int Count, class Cta>
FOURFOLD_DEVICE void sum_all(Cta cta, BlockScratch& scratch, std::uint64_t (&value)[Count]) {
  static_assert(Count <= 3);
  const int warp = cta.warp();
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
#pragma unroll
    for (int j = 0; j < Count; ++j) value[j] += cta.shuffle_xor(value[j], mask);
  cta.sync_block();  // the scratch is free
  if (cta.lane() == 0)
#pragma unroll
    for (int j = 0; j < Count; ++j) cta.store_shared(&scratch.warp_sums[j][warp], value[j]);
  cta.sync_block();  // every warp's sums are there
#pragma unroll
  for (int j = 0; j < Count; ++j) {
    value[j] = 0;
#pragma unroll 4
    for (int i = 0; i < kChooseWarps; i += 2) {
      const auto two = cta.load_shared(reinterpret_cast<const TwoEntries*>(&scratch.warp_sums[j][i]));
      value[j] += two.v[0] + two.v[1];
    }
  }
}

// Few entries: each thread counts how many are larger than its own, which is its entry's place. Entries
// differ, except that several may be zero; those stay behind the others and keep their order.
template <class Cta>
FOURFOLD_DEVICE void sort_by_counting(Cta cta, std::uint64_t* entries, int count) {
  const int mine = cta.thread();
  if (mine == 0 && count % 2 != 0) cta.store_shared(entries + count, std::uint64_t{0});
  cta.sync_block();  // the entries are written
  std::uint64_t own = 0;
  int place = 0;
  if (mine < count) {
    own = cta.load_shared(entries + mine);
    for (int i = 0; i < count; i += 2) {
      const auto two = cta.load_shared(reinterpret_cast<const TwoEntries*>(entries + i));
      place += two.v[0] > own || (two.v[0] == own && i < mine) ? 1 : 0;
      place += two.v[1] > own || (two.v[1] == own && i + 1 < mine) ? 1 : 0;
    }
  }
  cta.sync_block();  // all have read
  if (mine < count) cta.store_shared(entries + place, own);
  cta.sync_block();  // and written
}

// Many entries: a bitonic network over the next power of two, whose empty places are zero.
template <class Cta>
FOURFOLD_DEVICE void sort_by_network(Cta cta, std::uint64_t* entries, int count) {
  int size = 2 * kChooseThreads;
  while (size < count) size *= 2;
  for (int i = count + cta.thread(); i < size; i += kChooseThreads)
    cta.store_shared(entries + i, std::uint64_t{0});
#pragma unroll 1
  for (int run = 2; run <= size; run *= 2)
#pragma unroll 1
    for (int apart = run / 2; apart > 0; apart /= 2) {
      cta.sync_block();  // the stage before is done
      for (int i = cta.thread(); i < size / 2; i += kChooseThreads) {
        const int low = 2 * i - (i & (apart - 1)), high = low + apart;
        const std::uint64_t a = cta.load_shared(entries + low), b = cta.load_shared(entries + high);
        const bool descending = (low & run) == 0;
        if ((a < b) != descending) continue;
        cta.store_shared(entries + low, b);
        cta.store_shared(entries + high, a);
      }
    }
  cta.sync_block();  // sorted
}

// The largest first. Room: kRankedMost.
template <class Cta>
FOURFOLD_DEVICE void sort_entries(Cta cta, std::uint64_t* entries, int count) {
  if (count <= kChooseThreads)
    sort_by_counting(cta, entries, count);
  else
    sort_by_network(cta, entries, count);
}

}  // namespace fourfold::sampling
