// The barriers of a block: mbarriers (arrivals and transaction bytes, in phases) and the sixteen named
// barriers of whole warps. An mbarrier's 8 bytes in shared memory are opaque; its state lives here, found by
// its address.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/clock.h"
#include "sim/site.h"
#include "sim/thread.h"

namespace fourfold::sim {

class Block;

struct Barrier {
  std::uint32_t offset;  // in shared memory
  SiteTable::Id site;    // of its init
  std::uint32_t initialiser;
  bool fenced = false;            // fence_barrier_init followed
  std::uint32_t fence_clock = 0;  // of the initialiser
  std::uint32_t party;            // the copies that complete here, as seen by the clocks
  int expected;
  int pending;
  std::int64_t bytes = 0;   // expected less landed; may be negative for a while
  std::uint32_t phase = 0;  // the current, incomplete one
  int copies_in_flight = 0;

  ClockRef gathering;     // released into by this phase's arrivals
  ClockRef last_arrival;  // what was joined last: the next lane of a warp brings the same
  ClockRef last_settled;  // and what was settled last
  ClockRef completed;     // acquired by waiters of the phase before

  std::uint32_t waiting[32] = {};  // masks of lanes per warp
  int woken = 0;                   // waiters that have not run since their phase completed
};

class Barriers {
 public:
  static constexpr int kMbarriersMax = 512;
  static constexpr int kNamedMax = 16;
  static constexpr std::int64_t kBytesMax = (1 << 20) - 1;  // transaction count of the hardware

  explicit Barriers(Block& block) : block_(block) {}
  void reset();

  void init(Thread& thread, const void* address, int arrivals, SiteTable::Id site);
  void fence_init(Thread& thread);
  // expect_bytes is -1 for a plain arrive.
  void arrive(Thread& thread, const void* address, std::int64_t expect_bytes, SiteTable::Id site);
  void wait(Thread& thread, const void* address, std::uint32_t parity, SiteTable::Id site);

  // For the copy engine: the barrier a bulk copy of this thread completes on.
  int for_copy(Thread& thread, const void* address, SiteTable::Id site);
  Barrier& at(int index) { return mbarriers_[static_cast<std::size_t>(index)]; }
  void land(int index, std::uint32_t bytes, SiteTable::Id site);

  // For the copies of single threads: the barrier their completion arrives on, and that arrival, with what
  // the thread knew when it asked for it.
  int for_copy_arrival(Thread& thread, const void* address, SiteTable::Id site);
  void arrive_later(int index, const ClockVector& known, std::uint32_t thread, std::uint32_t clock,
                    std::uint32_t fenced, SiteTable::Id site);

  // A whole warp has gathered at a named barrier: to wait there (true when it may go on), or to pass.
  bool sync_named(Warp& warp, int id, int threads, SiteTable::Id site);
  void arrive_named(Warp& warp, int id, int threads, SiteTable::Id site);

  // Bytes still expected at the end of a block.
  void check_end();
  std::string describe(int index) const;
  std::string describe_named(const Warp& warp) const;

 private:
  struct Named {
    int threads = 0;
    std::uint32_t warps = 0;    // mask of the warps that have arrived
    std::uint32_t waiting = 0;  // of those, the ones that wait
    ClockRef passed;            // what the others knew when they passed
    SiteTable::Id site = 0;
    SiteTable::Id waiting_site = 0;  // of those that wait: one instruction for all of them
  };
  Named& join_named(Warp& warp, int id, int threads, SiteTable::Id site);
  bool complete_named(Named& named, const Warp& last);

  Barrier& usable(Thread& thread, const void* address, SiteTable::Id site, const char* operation);
  void settle(Barrier& barrier, const Thread* thread, SiteTable::Id site);
  void complete(Barrier& barrier, const Thread* thread, SiteTable::Id site);

  Block& block_;
  std::vector<Barrier> mbarriers_;
  std::vector<std::int16_t> index_at_;  // per 8 bytes of shared memory; -1 where there is none
  Named named_[kNamedMax];
};

}  // namespace fourfold::sim
