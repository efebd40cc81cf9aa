// A block from its first thread to its last check.
#include "sim/block.h"

#include <algorithm>

#include "base/format.h"
#include "sim/lane.h"

namespace fourfold::sim {
namespace {

// Thrown into threads that are still suspended when a launch fails, so that their frames are left properly.
struct Cancelled {};

constexpr int kWarpThreads = 32;

}  // namespace

Block::Block(LaunchContext& launch, StackPool& stacks, std::size_t first_stack)
    : launch_(launch),
      stacks_(stacks),
      first_stack_(first_stack),
      thread_count_(static_cast<std::uint32_t>(launch.config.threads)),
      clocks_(barrier_party(0), barrier_party(Barriers::kMbarriersMax)),
      barriers_(*this),
      copies_(*this),
      warpgroups_(*this),
      threads_(std::make_unique<Thread[]>(thread_count_)),
      warps_(thread_count_ / kWarpThreads) {
  for (std::uint32_t id = 0; id < thread_count_; ++id) {
    Thread& thread = threads_[id];
    thread.block = this;
    thread.id = id;
    thread.lane = id % kWarpThreads;
    thread.warp = &warps_[id / kWarpThreads];
  }
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    warps_[i].index = static_cast<int>(i);
    warps_[i].threads = &threads_[i * kWarpThreads];
  }
}

Block::~Block() = default;

void Block::start(int index) {
  index_ = index;
  seeded_ = config().seed != 0;
  dice_ = Dice(config().seed, (std::uint64_t{grid().id} << 32) + 1 + static_cast<std::uint64_t>(index));
  constexpr std::uint32_t kStay[4] = {0, 128, 224, 250}, kLand[4] = {255, 64, 16, 0},
                          kPartial[4] = {0, 0, 128, 252};
  temper_ = {kStay[dice_.below(4)], kLand[dice_.below(4)], kPartial[dice_.below(4)],
             dice_.next() & dice_.next()};
  current_warp_ = warps_.size() - 1;  // so that plain order begins with warp 0
  failure_ = nullptr;
  cancelling_ = false;
  parked_ = nullptr;
  released_ = false;
  unfinished_ = thread_count_;
  shared_.reset(static_cast<std::uint32_t>(config().shared_bytes));
  barriers_.reset();
  copies_.reset();
  warpgroups_.reset();

  const ClockRef nothing = clocks_.zero();
  nothing->visible = grid().visible_at_start;
  for (std::uint32_t id = 0; id < thread_count_; ++id) {
    Thread& thread = threads_[id];
    thread.known = nothing;
    thread.clock = 1;
    thread.fenced = 0;
    thread.settled = 0;
    thread.visible = grid().visible_at_start;
    thread.started = thread.finished = false;
    thread.waiting_barrier = -1;
    thread.gave_way = false;
    thread.access_index = 0;
    thread.copies.clear();
    thread.copy_groups.clear();
    thread.unfenced_barriers.clear();
    thread.fiber.prepare(stacks_.at(first_stack_ + id), id, &Block::thread_main, &thread);
  }
  for (Warp& warp : warps_) {
    warp.runnable = ~0u;
    warp.turn = warp.finished = warp.arrived = 0;
    warp.op = Collective::none;
    warp.joined = {};
    warp.fenced = {};
    warp.banks.reset();
    warp.accumulators.clear();
    warp.issued.clear();
    warp.wgmma_fenced = false;
    warp.wgmma_committed = warp.wgmma_target = 0;
  }
}

bool Block::go_on() {
  Thread* const next = parked_ != nullptr ? std::exchange(parked_, nullptr) : pick();
  Fiber::transfer(host_, next->fiber);
  if (failure_) {
    cancel();
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  if (parked_ != nullptr) return false;
  check_end();
  for (Warp& warp : warps_) launch_.stats.uncounted_accesses += warp.banks.uncounted();
  return true;
}

// Another block of the grid has failed.
void Block::abandon() {
  failure_ = std::make_exception_ptr(Cancelled{});
  cancel();
  failure_ = nullptr;
}

void Block::give_way(Thread& thread) {
  parked_ = &thread;
  thread.gave_way = true;
  Fiber::transfer(thread.fiber, host_);
  if (cancelling_) throw Cancelled{};
  suspend(thread);  // the block's other threads have their turns, too
  thread.gave_way = false;
}

// Every started thread that is still suspended is resumed once and unwinds.
void Block::cancel() {
  cancelling_ = true;
  for (std::uint32_t id = 0; id < thread_count_; ++id) {
    Thread& thread = threads_[id];
    if (thread.started && !thread.finished) Fiber::transfer(host_, thread.fiber);
  }
}

void Block::check_end() {
  copies_.check_end();
  barriers_.check_end();
  warpgroups_.check_end();
  if (!shared_.red_zones_intact())
    fault(FaultKind::out_of_bounds, nullptr, 0,
          "something wrote past the block's shared memory without load_shared or store_shared");
  std::uint32_t visible = 0;
  for (std::uint32_t id = 0; id < thread_count_; ++id) visible = std::max(visible, threads_[id].visible);
  release_block(visible);
}

void Block::release_block(std::uint32_t visible) {
  if (released_) return;
  released_ = true;
  grid().released = std::min(grid().released, visible);
}

void Block::thread_main(void* argument) {
  Thread& thread = *static_cast<Thread*>(argument);
  Block& block = *thread.block;
  thread.started = true;
  try {
    Lane lane(block, thread);
    block.launch_.kernel.call(block.launch_.kernel.self.get(), lane);
    block.leave(thread);
  } catch (const Cancelled&) {
  } catch (Fault& fault) {
    fault.locate(block.config().name, block.index_, thread.warp->index, static_cast<int>(thread.lane));
    if (!block.failure_) block.failure_ = std::current_exception();
  } catch (...) {
    if (!block.failure_) block.failure_ = std::current_exception();
  }
  block.end_of(thread);
}

// The thread returned from the kernel.
void Block::leave(Thread& thread) {
  Warp& warp = *thread.warp;
  copies_.check_exit(thread, 0);
  if (warp.arrived != 0)
    fault(FaultKind::divergent_collective, &thread, 0,
          format("returned from the kernel while other lanes of its warp wait in {} at {}", name_of(warp.op),
                 site_text(warp.site)));
  warp.finished |= thread.bit();
  if (warp.finished == ~0u) flush_banks(warp);
}

// The last act of a thread, outside of any exception: another thread runs, or the host goes on.
void Block::end_of(Thread& thread) {
  thread.finished = true;
  thread.warp->runnable &= ~thread.bit();
  --unfinished_;
  Fiber* next = &host_;
  if (!failure_ && unfinished_ != 0) {
    try {
      next = &pick()->fiber;
      ++launch_.stats.switches;
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  Fiber::transfer(thread.fiber, *next, true);
}

void Block::flush_banks(Warp& warp) {
  warp.banks.flush(launch_.traffic);
  for (unsigned lane = 0; lane < kWarpThreads; ++lane) warp.threads[lane].access_index = 0;
}

void Block::meet(Thread& thread, Collective op, SiteTable::Id site, void* args, Act act) {
  Warp& warp = *thread.warp;
  if (warp.arrived == 0) {
    if (warp.finished)
      fault(FaultKind::divergent_collective, &thread, site,
            format("{}: {} lanes of the warp have already returned from the kernel", name_of(op),
                   std::popcount(warp.finished)));
    warp.op = op;
    warp.site = site;
  } else if (warp.op != op || warp.site != site) {
    fault(FaultKind::divergent_collective, &thread, site,
          format("{} here, but lane {} of the same warp waits in {} at {}", name_of(op),
                 std::countr_zero(warp.arrived), name_of(warp.op), site_text(warp.site)));
  }
  warp.args[thread.lane] = args;
  warp.arrived |= thread.bit();
  if (warp.arrived != ~0u) {
    warp.runnable &= ~thread.bit();
    suspend(thread);
    return;
  }
  ++launch_.stats.collectives;
  flush_banks(warp);
  if (act(*this, warp)) {
    wake(warp);
    return;
  }
  warp.runnable = 0;
  suspend(thread);
}

void Block::wake(Warp& warp) {
  warp.arrived = 0;
  warp.op = Collective::none;
  warp.runnable = ~0u;
}

// ---- the scheduler ----

void Block::suspend(Thread& thread) {
  Thread* const next = pick();
  if (next == &thread) return;
  ++launch_.stats.switches;
  Fiber::transfer(thread.fiber, next->fiber);
  if (cancelling_) throw Cancelled{};
}

// The next lane of the warp whose turn it is, or of the next warp.
Thread* Block::pick() {
  for (;;) {
    Warp& warp = warps_[current_warp_];
    const std::uint32_t ready = warp.turn & warp.runnable;
    if (ready) {
      unsigned lane;
      if (order_ == 0)
        lane = static_cast<unsigned>(std::countr_zero(ready));
      else if (order_ == 1)
        lane = 31u - static_cast<unsigned>(std::countl_zero(ready));
      else
        lane =
            (static_cast<unsigned>(std::countr_zero(std::rotr(ready, static_cast<int>(order_)))) + order_) &
            31u;
      warp.turn &= ~(1u << lane);
      return &warp.threads[lane];
    }
    next_turn();
  }
}

std::uint32_t Block::ready_warps() const {
  std::uint32_t ready = 0;
  for (std::size_t i = 0; i < warps_.size(); ++i) ready |= (warps_[i].runnable != 0 ? 1u : 0u) << i;
  return ready;
}

void Block::next_turn() {
  ++launch_.stats.turns;
  count_step(nullptr, 0);
  if (!seeded_) {
    if (copies_.any_in_flight()) copies_.land_one(nullptr);
  } else {
    while (copies_.any_in_flight() && dice_.chance(temper_.land)) copies_.land_one(&dice_);
  }
  std::uint32_t ready = ready_warps();
  while (!ready) {
    if (!copies_.any_in_flight()) deadlock();
    copies_.land_one(dice());
    ready = ready_warps();
  }
  if (!seeded_) {
    // Round and round.
    const std::uint32_t later = ready & ~((2u << current_warp_) - 1u);
    current_warp_ = static_cast<std::size_t>(std::countr_zero(later ? later : ready));
    order_ = 0;
  } else {
    if (!(ready >> current_warp_ & 1u) || !dice_.chance(temper_.stay)) {
      for (std::uint32_t skip = dice_.below(static_cast<std::uint32_t>(std::popcount(ready))); skip; --skip)
        ready &= ready - 1;
      current_warp_ = static_cast<std::size_t>(std::countr_zero(ready));
    }
    order_ = dice_.below(32);
  }
  Warp& warp = warps_[current_warp_];
  warp.turn = warp.runnable;
  if (seeded_ && dice_.chance(temper_.partial)) {
    const std::uint32_t quick = warp.runnable & ~temper_.slow;
    if (quick) warp.turn = quick;
  }
}

}  // namespace fourfold::sim
