// Flags between ranks: who has sent what, and for how long that is waited for.
//
// A call has an epoch, counted by every block for itself; ranks make the same calls in the same order, so
// that the epochs agree. Buffers alternate with the epoch's parity. Why two are enough: a block sends epoch e
// + 1 after its rank's whole grid of epoch e has ended, and no rank writes epoch e + 2 before having received
// e + 1 from every rank; so whoever read epoch e has finished when its place is written again. That holds
// when a graph is replayed, and when calls of different sizes and ways follow each other: blocks without work
// exchange their flags as well.
//
// A block that has lost a rank does nothing in later calls: who did not answer may still be reading.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/all_reduce/all_reduce_params.h"

namespace fourfold::all_reduce {

// One block of one rank in one call.
struct Call {
  const RankPlaces* mine;
  int rank;
  int block;
  std::uint32_t epoch;
  std::int64_t parity_at;  // first quad of this epoch's half of a receive buffer
};

// After wait_predecessors.
template <class Cta>
FOURFOLD_DEVICE Call begin_call(Cta cta, const AllReduceParams& params) {
  Call call;
  const int in_grid = cta.block() / params.blocks;
  call.rank = params.first_rank + in_grid;
  call.block = cta.block() - in_grid * params.blocks;
  call.mine = params.rank + call.rank;
  call.epoch = cta.load(call.mine->epochs + call.block);
  call.parity_at = static_cast<std::int64_t>(call.epoch & 1u) * params.ranks * params.capacity;
  return call;
}

inline constexpr std::uint32_t kEnded = 0;  // in place of an epoch: a rank was lost

// The parity goes on.
constexpr std::uint32_t next_epoch(std::uint32_t epoch) { return epoch == 0xFFFFFFFFu ? 2u : epoch + 1; }

// By one thread, when every thread of the block has read the epoch.
template <class Cta>
FOURFOLD_DEVICE void end_call(Cta cta, const Call& call, bool heard) {
  if (cta.thread() != 0) return;
  cta.store(call.mine->epochs + call.block, heard ? next_epoch(call.epoch) : kEnded);
}

FOURFOLD_DEVICE std::uint32_t* flag_of(const AllReduceParams& params, std::uint32_t* flags, int phase,
                                       int source, int block) {
  return flags + (phase * params.ranks + source) * params.blocks + block;
}

inline constexpr unsigned kLooks = 64;  // at a flag between two looks at the clock

// Whether `source` has sent; waits for it. Gives up after the time limit or when the host says so: the step
// then ends at once, and the host finds the report before it looks at any result.
template <class Cta>
FOURFOLD_DEVICE bool wait_for(Cta cta, const AllReduceParams& params, const Call& call,
                              const std::uint32_t* flag, int source) {
  std::uint64_t begin = 0;
  for (unsigned looks = 1;; ++looks) {
    // The source may be one call ahead.
    if (static_cast<std::int32_t>(cta.load_acquire_system(flag) - call.epoch) >= 0) return true;
    if (looks % kLooks == 0) {
      const std::uint64_t now = cta.nanoseconds();
      if (begin == 0) begin = now;
      if (now - begin > params.wait_nanoseconds || cta.load_acquire_system(params.stop) != 0) break;
    }
    cta.give_way();
  }
  cta.store_release_system(call.mine->report + source, static_cast<std::uint32_t>(params.place) + 1u);
  return false;
}

// How much is to be carried, told before the flags are.
template <class Cta>
FOURFOLD_DEVICE void announce(Cta cta, const AllReduceParams& params, const Call& call) {
  if (params.carried == nullptr || call.block != 0 || cta.thread() != 0) return;
  CarriedCall* told = params.carried + (call.epoch & 1u);
  const std::int64_t quads = static_cast<std::int64_t>(params.rows) * params.columns / 4;
  cta.store(&told->quads, static_cast<std::uint32_t>(quads));
  cta.store(&told->place, static_cast<std::uint32_t>(params.place));
}

struct ExchangeStorage {
  std::uint32_t lost;  // mask of ranks that did not answer
};

// What this block has written is told to every rank (to all at once where they share a flag), and what the
// others have written has arrived when it returns true. All threads.
template <bool SharedFlags, class Cta>
FOURFOLD_DEVICE bool exchange(Cta cta, ExchangeStorage& storage, const AllReduceParams& params,
                              const Call& call, int phase) {
  static_assert(kRanksMost <= 32, "a lane of the first warp for each rank");
  if constexpr (SharedFlags) announce(cta, params, call);
  cta.sync_block();  // every thread's writes come before the flag
  if (cta.warp() == 0) {
    const int other = cta.lane();
    bool lost = false;
    if (other < params.ranks) {
      if (SharedFlags ? other == call.rank : other != call.rank)
        cta.store_release_system(flag_of(params, params.rank[other].flags, phase, call.rank, call.block),
                                 call.epoch);
      if (other != call.rank)
        lost =
            !wait_for(cta, params, call, flag_of(params, call.mine->flags, phase, other, call.block), other);
    }
    const std::uint32_t all = cta.ballot(lost);
    if (other == 0) cta.store_shared(&storage.lost, all);
  }
  cta.sync_block();  // every source has been heard
  return cta.load_shared(&storage.lost) == 0;
}

}  // namespace fourfold::all_reduce
