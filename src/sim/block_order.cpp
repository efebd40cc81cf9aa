// Who knows what: the clock operations behind every synchronisation (clock.h).
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "sim/block.h"

namespace fourfold::sim {

void Block::tick(Thread& thread) {
  if (++thread.clock > kClockMax) [[unlikely]]
    fail_with_hint(Code::over_capacity, "simulate a smaller shape",
                   "a simulated thread synchronised more than {} times in one block", kClockMax);
}

void Block::acquire(Thread& thread, const ClockRef& other) {
  if (thread.known == other) return;
  auto& memo = thread.warp->joined;
  if (!(memo.before == thread.known && memo.other == other)) {
    ClockRef after = clocks_.copy(*thread.known);
    if (!clocks_.join(*after, *other)) after = thread.known;
    memo.before = thread.known;
    memo.other = other;
    memo.after = after;
  }
  thread.known = memo.after;
  thread.visible = std::max(thread.visible, other->visible);
}

void Block::release(Thread& thread, ClockVector& into, ClockRef& last) {
  if (!(thread.known == last)) {
    clocks_.join(into, *thread.known);
    last = thread.known;
  }
  into.happened[thread.id] = std::max(into.happened[thread.id], thread.clock);
  into.fenced[thread.id] = std::max(into.fenced[thread.id], thread.fenced);
  into.settled[thread.id] = std::max(into.settled[thread.id], thread.settled);
  into.visible = std::max(into.visible, thread.visible);
  tick(thread);
}

void Block::fence(Thread& thread) {
  auto& memo = thread.warp->fenced;
  if (!(memo.before == thread.known)) {
    memo.after = clocks_.copy(*thread.known);
    clocks_.fence(*memo.after);
    memo.before = thread.known;
  }
  thread.known = memo.after;
  thread.fenced = thread.clock;
  thread.settled = thread.clock;  // its own loads only: those of other lanes may still be on their way
  tick(thread);
}

void Block::join_warps(std::uint32_t warp_mask) {
  ClockRef joined, last;
  for (std::uint32_t left = warp_mask; left; left &= left - 1) {
    Warp& warp = warps_[static_cast<std::size_t>(std::countr_zero(left))];
    for (unsigned lane = 0; lane < 32; ++lane) {
      Thread& thread = warp.threads[lane];
      if (!joined)
        joined = clocks_.copy(*thread.known);
      else if (!(thread.known == last))
        clocks_.join(*joined, *thread.known);
      last = thread.known;
    }
  }
  for (std::uint32_t left = warp_mask; left; left &= left - 1) {
    Warp& warp = warps_[static_cast<std::size_t>(std::countr_zero(left))];
    for (unsigned lane = 0; lane < 32; ++lane) {
      Thread& thread = warp.threads[lane];
      joined->happened[thread.id] = thread.clock;
      joined->fenced[thread.id] = thread.fenced;
      joined->settled[thread.id] = thread.settled;
      joined->visible = std::max(joined->visible, thread.visible);
    }
  }
  for (std::uint32_t left = warp_mask; left; left &= left - 1) {
    Warp& warp = warps_[static_cast<std::size_t>(std::countr_zero(left))];
    for (unsigned lane = 0; lane < 32; ++lane) {
      Thread& thread = warp.threads[lane];
      thread.known = joined;
      thread.visible = joined->visible;
      tick(thread);
    }
  }
}

void Block::learn(Warp& warp, std::uint32_t party, std::uint32_t clock) {
  ClockRef before, after;
  for (unsigned lane = 0; lane < 32; ++lane) {
    Thread& thread = warp.threads[lane];
    if (thread.known->happened[party] >= clock) continue;
    if (!(thread.known == before)) {
      before = thread.known;
      after = clocks_.copy(*before);
      after->happened[party] = clock;
    }
    thread.known = after;
  }
}

}  // namespace fourfold::sim
