// One running block: its threads as fibers, its shared memory, its barriers and copies, and the scheduler
// that decides who runs next. There is no scheduler thread: whoever must wait picks the next runner and
// switches to it.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "sim/bank_counter.h"
#include "sim/barriers.h"
#include "sim/clock.h"
#include "sim/copies.h"
#include "sim/dice.h"
#include "sim/fault.h"
#include "sim/fiber.h"
#include "sim/global_memory.h"
#include "sim/launch.h"
#include "sim/peer_memory.h"
#include "sim/shared_memory.h"
#include "sim/site.h"
#include "sim/thread.h"
#include "sim/warpgroups.h"

namespace fourfold::sim {

// One grid in the device's chain of launches.
struct Grid {
  std::uint32_t id;                      // from 1; 0 is the host
  std::uint32_t visible_at_start;        // grids up to this one are complete when it starts
  bool waited = false;                   // some thread waited for the predecessors
  std::uint32_t released = 0xFFFFFFFFu;  // what is complete once every block has released its successors
  bool complete = false;                 // every block has ended
};

// What the blocks of one launch share.
struct LaunchContext {
  const LaunchConfig& config;
  Kernel kernel;
  GlobalMemory& memory;
  PeerMemory& peers;
  int rank;
  SiteTable& sites;
  Grid& grid;
  LaunchStats& stats;
  std::vector<BankTraffic>& traffic;  // by site
  const Grid* predecessor = nullptr;  // the grid before it, where that one still runs
  bool reads_clock = false;           // so that it gives up by itself what never comes
  // The one damaged synchronisation, if any.
  bool mutated = false;
  SiteTable::Id mutated_site = 0;
  SyncOp mutated_op = SyncOp::sync_block;
  MutationKind mutation = MutationKind::skip;
};

class Block {
 public:
  // first_stack: of the pool, where other blocks run beside this one.
  Block(LaunchContext& launch, StackPool& stacks, std::size_t first_stack = 0);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Runs block number `index`; throws the first Fault. go_on() returns true when the block has ended, false
  // when a thread gave way.
  void start(int index);
  bool go_on();
  void abandon();

  // ---- for the members of the device language ----
  const LaunchConfig& config() const { return launch_.config; }
  LaunchStats& stats() { return launch_.stats; }
  SiteTable& sites() { return launch_.sites; }
  Grid& grid() { return launch_.grid; }
  GlobalMemory& memory() { return launch_.memory; }
  int index() const { return index_; }
  SharedMemory& shared() { return shared_; }
  Barriers& barriers() { return barriers_; }
  Copies& copies() { return copies_; }
  Warpgroups& warpgroups() { return warpgroups_; }
  std::vector<Warp>& warps() { return warps_; }
  // Null with seed 0, where everything goes in plain order.
  Dice* dice() { return seeded_ ? &dice_ : nullptr; }

  // Notes that the operation was executed here and says whether a mutation removes it.
  bool skips(SiteTable::Id site, SyncOp op, MutationKind kind = MutationKind::skip) {
    launch_.sites.note(site, op);
    return launch_.mutated && launch_.mutated_site == site && launch_.mutated_op == op &&
           launch_.mutation == kind;
  }
  void count_step(const Thread* thread, SiteTable::Id site) {
    if (++steps_ > launch_.config.step_limit) [[unlikely]]
      too_many_steps(thread, site);
  }

  // All 32 lanes of the warp meet here; the last one runs `act`. When it answers false, the warp sleeps until
  // wake().
  using Act = bool (*)(Block& block, Warp& warp);
  void meet(Thread& thread, Collective op, SiteTable::Id site, void* args, Act act);
  void wake(Warp& warp);
  // The calling thread has made itself unrunnable, or gives way.
  void suspend(Thread& thread);
  void release_block(std::uint32_t visible);
  // The thread looked for something that only another block or rank can bring.
  void give_way(Thread& thread);
  bool predecessor_runs() const { return launch_.predecessor != nullptr && !launch_.predecessor->complete; }
  bool has_released() const { return released_; }
  void note_clock() { launch_.reads_clock = true; }
  PeerMemory& peers() { return launch_.peers; }
  int rank() const { return launch_.rank; }

  // ---- order (block_order.cpp) ----
  View view(const Thread& thread) const {
    return {thread.known->happened, thread.known->fenced, thread.known->settled, thread.id,
            thread.fenced,          thread.settled,       thread_count_};
  }
  GlobalAccessor accessor(const Thread& thread, SiteTable::Id site) const {
    return {view(thread),
            thread.epoch(),
            launch_.grid.id,
            static_cast<std::uint32_t>(index_),
            thread.visible,
            launch_.grid.visible_at_start,
            site};
  }
  void tick(Thread& thread);
  void acquire(Thread& thread, const ClockRef& other);
  void release(Thread& thread, ClockVector& into, ClockRef& last);
  void fence(Thread& thread);
  // Everything the lanes of these warps have done is ordered before everything they do next.
  void join_warps(std::uint32_t warp_mask);
  // The warp's lanes learn that `party` has come as far as `clock`.
  void learn(Warp& warp, std::uint32_t party, std::uint32_t clock);
  ClockPool& clocks() { return clocks_; }
  // Parties: the threads, then the warpgroups, then as many barriers as the kernel has initialised.
  std::uint32_t warpgroup_party(int warp) const {
    return thread_count_ + static_cast<std::uint32_t>(warp / 4);
  }
  std::uint32_t barrier_party(int barrier) const {
    return thread_count_ + (thread_count_ + 127) / 128 + static_cast<std::uint32_t>(barrier);
  }

  // ---- messages (block_report.cpp) ----
  [[noreturn]] void fault(FaultKind kind, const Thread* thread, SiteTable::Id site, std::string detail);
  [[noreturn]] void fault(const SharedConflict& conflict, const Thread* thread, SiteTable::Id site,
                          const std::string& action);
  [[noreturn]] void fault(const GlobalConflict& conflict, const Thread* thread, SiteTable::Id site,
                          const std::string& action);
  // Offset of a pointer into shared memory, checked for bounds and alignment.
  std::uint32_t shared_offset(const Thread& thread, const void* pointer, std::uint32_t bytes,
                              std::uint32_t alignment, SiteTable::Id site, const char* action);
  void check_global(const Thread& thread, const void* pointer, std::uint32_t bytes, std::uint32_t alignment,
                    SiteTable::Id site, const char* action);
  // "warp 3 lane 0 at moe_gemm.h:88", "a bulk copy issued at moe_gemm.h:60"
  std::string party_text(Epoch epoch, SiteTable::Id site) const;
  std::string site_text(SiteTable::Id site) const { return launch_.sites.text(site); }
  std::string thread_text(std::uint32_t thread) const;
  // What each warp waits for, a line each.
  std::string waits_text() const;

 private:
  // How this seed likes to schedule: swarm testing, some seeds are eager where others are lazy.
  struct Temper {
    std::uint32_t stay;     // chance of 256 to give the same warp another turn
    std::uint32_t land;     // chance of 256, per turn, that a piece of a copy lands
    std::uint32_t partial;  // chance of 256 that a turn leaves out the slow lanes, which then fall behind
    std::uint32_t slow;     // mask of lanes
  };

  static void thread_main(void* thread);
  void check_end();
  void cancel();
  void leave(Thread& thread);
  void end_of(Thread& thread);
  Thread* pick();
  void next_turn();
  std::uint32_t ready_warps() const;
  void flush_banks(Warp& warp);
  [[noreturn]] void deadlock();
  [[noreturn]] void too_many_steps(const Thread* thread, SiteTable::Id site);
  std::string waiting_text(const Warp& warp) const;
  std::string looking_text(const Warp& warp) const;

  LaunchContext& launch_;
  StackPool& stacks_;
  std::size_t first_stack_;
  std::uint32_t thread_count_;
  ClockPool clocks_;
  SharedMemory shared_;
  Barriers barriers_;
  Copies copies_;
  Warpgroups warpgroups_;
  std::unique_ptr<Thread[]> threads_;
  std::vector<Warp> warps_;

  int index_ = 0;
  Fiber host_;
  std::exception_ptr failure_;
  bool cancelling_ = false;
  std::uint32_t unfinished_ = 0;
  Thread* parked_ = nullptr;  // gave way, and goes on first
  bool released_ = false;

  bool seeded_ = false;
  Dice dice_;
  Temper temper_{};
  std::size_t current_warp_ = 0;
  std::uint32_t order_ = 0;  // of the lanes in this turn
  std::uint64_t steps_ = 0;
};

}  // namespace fourfold::sim
