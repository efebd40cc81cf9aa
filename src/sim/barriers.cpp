#include "sim/barriers.h"

#include <algorithm>
#include <bit>

#include "base/format.h"
#include "sim/block.h"

namespace fourfold::sim {

void Barriers::reset() {
  mbarriers_.clear();
  mbarriers_.reserve(kMbarriersMax);  // waiting threads hold references
  block_.clocks().use(block_.barrier_party(0));
  index_at_.assign(block_.shared().bytes() / 8 + 1, -1);
  for (Named& named : named_) named = {};
}

void Barriers::init(Thread& thread, const void* address, int arrivals, SiteTable::Id site) {
  const std::uint32_t offset = block_.shared_offset(thread, address, 8, 8, site, "init");
  if (arrivals < 1 || arrivals > kBytesMax)
    block_.fault(FaultKind::barrier_misuse, &thread, site,
                 format("init with {} arrivals; a barrier takes 1 to {}", arrivals, kBytesMax));
  std::int16_t& index = index_at_[offset / 8];
  if (index >= 0)
    block_.fault(FaultKind::barrier_misuse, &thread, site,
                 format("init of {}, which was initialised at {} already", describe(index),
                        block_.site_text(at(index).site)));
  if (mbarriers_.size() == kMbarriersMax)
    block_.fault(FaultKind::barrier_misuse, &thread, site,
                 format("more than {} barriers in a block", kMbarriersMax));
  SharedConflict conflict;
  if (!block_.shared().claim_barrier(block_.view(thread), offset, thread.epoch(), site, conflict))
    block_.fault(conflict, &thread, site, "init");
  index = static_cast<std::int16_t>(mbarriers_.size());
  block_.clocks().use(block_.barrier_party(index) + 1);
  Barrier& barrier = mbarriers_.emplace_back();
  barrier.offset = offset;
  barrier.site = site;
  barrier.initialiser = thread.id;
  barrier.party = block_.barrier_party(index);
  barrier.expected = barrier.pending = arrivals;
  barrier.gathering = block_.clocks().zero();
  thread.unfenced_barriers.push_back(index);
}

void Barriers::fence_init(Thread& thread) {
  for (const int index : thread.unfenced_barriers) {
    at(index).fenced = true;
    at(index).fence_clock = thread.clock;
  }
  thread.unfenced_barriers.clear();
  block_.tick(thread);
}

Barrier& Barriers::usable(Thread& thread, const void* address, SiteTable::Id site, const char* operation) {
  const std::uint32_t offset = block_.shared_offset(thread, address, 8, 8, site, operation);
  const int index = index_at_[offset / 8];
  if (index < 0)
    block_.fault(
        FaultKind::barrier_misuse, &thread, site,
        format("{} on shared byte {}, which is no initialised barrier", operation, with_commas(offset)));
  Barrier& barrier = at(index);
  if (thread.id != barrier.initialiser &&
      !(barrier.fenced && thread.known->happened[barrier.initialiser] >= barrier.fence_clock))
    block_.fault(
        FaultKind::barrier_misuse, &thread, site,
        format("{} on {}: {} initialised it at {}, but {}", operation, describe(index),
               block_.thread_text(barrier.initialiser), block_.site_text(barrier.site),
               barrier.fenced ? "nothing orders that before this" : "no fence_barrier_init followed"));
  return barrier;
}

int Barriers::for_copy(Thread& thread, const void* address, SiteTable::Id site) {
  const Barrier& barrier = usable(thread, address, site, "bulk_load");
  const int index = static_cast<int>(&barrier - mbarriers_.data());
  if (!barrier.fenced)
    block_.fault(
        FaultKind::barrier_misuse, &thread, site,
        format("bulk_load on {}: no fence_barrier_init has made its init at {} visible to the copy engine",
               describe(index), block_.site_text(barrier.site)));
  return index;
}

void Barriers::arrive(Thread& thread, const void* address, std::int64_t expect_bytes, SiteTable::Id site) {
  Barrier& barrier = usable(thread, address, site, expect_bytes < 0 ? "arrive" : "arrive_expect");
  const int index = static_cast<int>(&barrier - mbarriers_.data());
  if (barrier.pending == 0)
    block_.fault(FaultKind::barrier_overrun, &thread, site,
                 format("arrive on {}: all {} arrivals of this phase have been made", describe(index),
                        barrier.expected));
  if (expect_bytes > 0) {
    barrier.bytes += expect_bytes;
    if (barrier.bytes > kBytesMax)
      block_.fault(FaultKind::barrier_misuse, &thread, site,
                   format("arrive_expect of {} bytes on {}: a phase holds at most {}",
                          with_commas(expect_bytes), describe(index), with_commas(kBytesMax)));
  }
  thread.settled = thread.clock;  // an arrive stands behind the thread's loads
  // A plain arrive says that a buffer has been read, also by the lanes it speaks for. One that expects bytes
  // says that a buffer will be filled: of the loads of others it says nothing.
  if (expect_bytes < 0 && !(thread.known == barrier.last_settled)) {
    block_.clocks().settle(*barrier.gathering, *thread.known);
    barrier.last_settled = thread.known;
  }
  block_.release(thread, *barrier.gathering, barrier.last_arrival);
  --barrier.pending;
  settle(barrier, &thread, site);
}

int Barriers::for_copy_arrival(Thread& thread, const void* address, SiteTable::Id site) {
  const Barrier& barrier = usable(thread, address, site, "copy_arrive");
  return static_cast<int>(&barrier - mbarriers_.data());
}

void Barriers::arrive_later(int index, const ClockVector& known, std::uint32_t thread, std::uint32_t clock,
                            std::uint32_t fenced, SiteTable::Id site) {
  Barrier& barrier = at(index);
  if (barrier.pending == 0)
    block_.fault(FaultKind::barrier_overrun, nullptr, site,
                 format("copies of {} completed on {}: all {} arrivals of this phase have been made",
                        block_.thread_text(thread), describe(index), barrier.expected));
  block_.clocks().join(*barrier.gathering, known);
  block_.clocks().settle(*barrier.gathering, known);
  barrier.gathering->happened[thread] = std::max(barrier.gathering->happened[thread], clock);
  barrier.gathering->fenced[thread] = std::max(barrier.gathering->fenced[thread], fenced);
  barrier.gathering->settled[thread] = std::max(barrier.gathering->settled[thread], clock);
  barrier.last_arrival = {};
  --barrier.pending;
  settle(barrier, nullptr, site);
}

void Barriers::land(int index, std::uint32_t bytes, SiteTable::Id site) {
  Barrier& barrier = at(index);
  barrier.bytes -= bytes;
  if (barrier.bytes < -kBytesMax)
    block_.fault(FaultKind::barrier_misuse, nullptr, site,
                 format("bulk copies brought {} bytes more than {} expects", with_commas(-barrier.bytes),
                        describe(index)));
  settle(barrier, nullptr, site);
}

void Barriers::settle(Barrier& barrier, const Thread* thread, SiteTable::Id site) {
  if (barrier.pending == 0 && barrier.bytes == 0) complete(barrier, thread, site);
}

void Barriers::complete(Barrier& barrier, const Thread* thread, SiteTable::Id site) {
  const int index = static_cast<int>(&barrier - mbarriers_.data());
  if (barrier.copies_in_flight != 0)
    block_.fault(
        FaultKind::barrier_misuse, thread, site,
        format(
            "{} completed its phase while {} bulk copies on it were in flight: their bytes were not expected",
            describe(index), barrier.copies_in_flight));
  if (barrier.woken != 0)
    block_.fault(
        FaultKind::barrier_overrun, thread, site,
        format(
            "{} completed a second phase while {} threads had not yet seen the first: their parity now means "
            "another phase",
            describe(index), barrier.woken));
  // A waiter learns of this phase's copies, too.
  barrier.gathering->happened[barrier.party] = barrier.phase + 1;
  barrier.completed = barrier.gathering;
  barrier.gathering = block_.clocks().zero();
  barrier.last_arrival = {};
  barrier.last_settled = {};
  ++barrier.phase;
  barrier.pending = barrier.expected;
  for (std::size_t i = 0; i < block_.warps().size(); ++i) {
    if (!barrier.waiting[i]) continue;
    block_.warps()[i].runnable |= barrier.waiting[i];
    barrier.woken += std::popcount(barrier.waiting[i]);
    barrier.waiting[i] = 0;
  }
}

void Barriers::wait(Thread& thread, const void* address, std::uint32_t parity, SiteTable::Id site) {
  Barrier& barrier = usable(thread, address, site, "wait");
  if (parity > 1)
    block_.fault(FaultKind::barrier_misuse, &thread, site,
                 format("wait with parity {}; it is 0 or 1", parity));
  if ((barrier.phase & 1u) == parity) {
    thread.waiting_barrier = static_cast<int>(&barrier - mbarriers_.data());
    thread.waiting_parity = parity;
    thread.waiting_site = site;
    barrier.waiting[thread.warp->index] |= thread.bit();
    thread.warp->runnable &= ~thread.bit();
    block_.suspend(thread);
    thread.waiting_barrier = -1;
    --barrier.woken;
  }
  if (barrier.completed) block_.acquire(thread, barrier.completed);
}

Barriers::Named& Barriers::join_named(Warp& warp, int id, int threads, SiteTable::Id site) {
  const Thread& thread = warp.threads[0];
  const int all = block_.config().threads;
  if (id < 0 || id >= kNamedMax || threads <= 0 || threads % 32 != 0 || threads > all)
    block_.fault(FaultKind::barrier_misuse, &thread, site,
                 format("named barrier ({}, {}): ids are 0 to 15, threads a multiple of 32 up to {}", id,
                        threads, all));
  Named& named = named_[id];
  if (named.warps == 0) {
    named.threads = threads;
    named.site = site;
  } else if (named.threads != threads) {
    block_.fault(FaultKind::barrier_misuse, &thread, site,
                 format("barrier {} with {} threads here and {} at {}", id, threads, named.threads,
                        block_.site_text(named.site)));
  }
  if (named.warps >> warp.index & 1u)
    block_.fault(FaultKind::barrier_overrun, &thread, site,
                 format("barrier {}: this warp has arrived already, and the others have not come yet", id));
  named.warps |= 1u << warp.index;
  return named;
}

// All have come: those that wait learn what every other warp knew. Says whether that was so.
bool Barriers::complete_named(Named& named, const Warp& last) {
  if (std::popcount(named.warps) * 32 < named.threads) return false;
  const std::uint32_t waiting = named.waiting;
  const ClockRef passed = named.passed;
  named = {};
  if (waiting) block_.join_warps(waiting);
  for (std::uint32_t left = waiting; left; left &= left - 1) {
    Warp& warp = block_.warps()[static_cast<std::size_t>(std::countr_zero(left))];
    if (passed)
      for (unsigned lane = 0; lane < 32; ++lane) block_.acquire(warp.threads[lane], passed);
    if (warp.index != last.index) block_.wake(warp);
  }
  return true;
}

bool Barriers::sync_named(Warp& warp, int id, int threads, SiteTable::Id site) {
  Named& named = join_named(warp, id, threads, site);
  // bar.sync is the aligned form: it promises that all who wait execute the same instruction.
  if (named.waiting == 0)
    named.waiting_site = site;
  else if (named.waiting_site != site)
    block_.fault(FaultKind::divergent_collective, &warp.threads[0], site,
                 format("barrier {}: this warp waits here, others at {}; who waits must wait at one place",
                        id, block_.site_text(named.waiting_site)));
  named.waiting |= 1u << warp.index;
  return complete_named(named, warp);
}

void Barriers::arrive_named(Warp& warp, int id, int threads, SiteTable::Id site) {
  Named& named = join_named(warp, id, threads, site);
  if (!named.passed) named.passed = block_.clocks().zero();
  ClockRef last;
  for (unsigned lane = 0; lane < 32; ++lane) block_.release(warp.threads[lane], *named.passed, last);
  complete_named(named, warp);
}

void Barriers::check_end() {
  for (std::size_t i = 0; i < mbarriers_.size(); ++i)
    if (mbarriers_[i].bytes != 0)
      block_.fault(FaultKind::leftover_copy, nullptr, mbarriers_[i].site,
                   format("the block ended with bytes outstanding on {}", describe(static_cast<int>(i))));
}

std::string Barriers::describe(int index) const {
  const Barrier& barrier = mbarriers_[static_cast<std::size_t>(index)];
  return format("the barrier at shared byte {} (phase {}: {} of {} arrivals missing, {} bytes outstanding)",
                with_commas(barrier.offset), barrier.phase, barrier.pending, barrier.expected,
                with_commas(barrier.bytes));
}

std::string Barriers::describe_named(const Warp& warp) const {
  for (int id = 0; id < kNamedMax; ++id)
    if (named_[id].warps >> warp.index & 1u)
      return format(": barrier {} has {} of {} warps", id, std::popcount(named_[id].warps),
                    named_[id].threads / 32);
  return {};
}

}  // namespace fourfold::sim
