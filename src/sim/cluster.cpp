#include "sim/cluster.h"

#include <algorithm>

#include "base/format.h"

namespace fourfold::sim {
namespace {

constexpr std::uint32_t kNobody = 0xFFFFFFFFu;

}  // namespace

Cluster::Cluster(LaunchContext& launch, StackPool& stacks, std::size_t first_stack)
    : launch_(launch), seats_(static_cast<std::size_t>(launch.config.cluster)) {
  for (Seat& seat : seats_) {
    seat.block = std::make_unique<Block>(launch, *this, stacks, first_stack);
    first_stack += static_cast<std::size_t>(launch.config.threads);
  }
}

Cluster::~Cluster() = default;

void Cluster::start(int index) {
  seeded_ = launch_.config.seed != 0;
  dice_ = Dice(launch_.config.seed,
               (std::uint64_t{launch_.grid.id} << 32) + 0x80000000u + static_cast<std::uint64_t>(index));
  constexpr std::uint32_t kPass[4] = {0, 8, 64, 192};
  pass_ = seeded_ && size() > 1 ? kPass[dice_.below(4)] : 0;
  at_ = seats_.size() - 1;  // so that plain order begins with rank 0
  phase_ = arrived_ = 0;
  for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
    Seat& seat = seats_[rank];
    seat.ended = false;
    seat.last_arrival = seat.completed[0] = seat.completed[1] = {};
    seat.block->start(index * size() + static_cast<int>(rank));
    seat.gathering = seat.block->clocks().zero();
  }
}

// The block that runs next, of those that can.
Cluster::Seat* Cluster::next_seat() {
  std::vector<std::size_t> able;
  for (std::size_t i = 1; i <= seats_.size(); ++i) {
    const std::size_t rank = (at_ + i) % seats_.size();
    if (!seats_[rank].ended && seats_[rank].block->can_go_on()) able.push_back(rank);
  }
  if (able.empty()) return nullptr;
  at_ = able[seeded_ ? dice_.below(static_cast<std::uint32_t>(able.size())) : 0];
  return &seats_[at_];
}

bool Cluster::go_on() {
  if (size() == 1) return seats_[0].block->go_on();
  try {
    while (!std::all_of(seats_.begin(), seats_.end(), [](const Seat& seat) { return seat.ended; })) {
      Seat* const seat = next_seat();
      if (seat == nullptr) deadlock();
      seat->ended = seat->block->go_on();
      if (seat->block->gave_way()) return false;
    }
    return true;
  } catch (...) {
    abandon();
    throw;
  }
}

void Cluster::abandon() {
  for (Seat& seat : seats_) seat.block->abandon();
}

bool Cluster::has_released() const {
  return std::all_of(seats_.begin(), seats_.end(),
                     [](const Seat& seat) { return seat.block->has_released(); });
}

// ---- the barrier ----

void Cluster::arrive(Block& block, Warp& warp) {
  if (warp.cluster_arrived != warp.cluster_waited)
    block.fault(FaultKind::barrier_misuse, &warp.threads[0], warp.site,
                "cluster_arrive again, with no cluster_wait since the last one");
  ++warp.cluster_arrived;
  Seat& seat = seats_[static_cast<std::size_t>(block.rank_in_cluster())];
  for (unsigned lane = 0; lane < 32; ++lane) {
    Thread& thread = warp.threads[lane];
    thread.settled = thread.clock;  // it stands behind the thread's loads
    block.release(thread, *seat.gathering, seat.last_arrival);
  }
  if (++arrived_ == seats_.size() * block.warps().size()) complete();
}

void Cluster::complete() {
  for (Seat& seat : seats_) {
    seat.completed[phase_ & 1u] = std::move(seat.gathering);
    seat.gathering = seat.block->clocks().zero();
    seat.last_arrival = {};
  }
  ++phase_;
  arrived_ = 0;
  for (Seat& seat : seats_)
    for (Warp& warp : seat.block->warps())
      if (warp.op == Collective::cluster_wait && warp.arrived == ~0u) {
        learn(*seat.block, warp);
        seat.block->wake(warp);
      }
}

bool Cluster::wait(Block& block, Warp& warp) {
  if (warp.cluster_arrived == warp.cluster_waited)
    block.fault(FaultKind::barrier_misuse, &warp.threads[0], warp.site,
                "cluster_wait with no cluster_arrive before it");
  if (phase_ < warp.cluster_arrived) return false;
  learn(block, warp);
  return true;
}

void Cluster::learn(Block& block, Warp& warp) {
  const Seat& seat = seats_[static_cast<std::size_t>(block.rank_in_cluster())];
  warp.cluster_waited = warp.cluster_arrived;
  const ClockRef& known = seat.completed[(warp.cluster_waited - 1) & 1u];
  for (unsigned lane = 0; lane < 32; ++lane) block.acquire(warp.threads[lane], known);
}

std::string Cluster::describe() const {
  return format(": {} of {} warps of the cluster have arrived", arrived_,
                seats_.size() * seats_[0].block->warps().size());
}

// ---- sends ----

// What the sending thread knows of the receiving block.
View Cluster::view_of(const Seat& seat, const Block& from, const Thread& thread,
                      const ClockRef& nothing) const {
  if (seat.block.get() == &from) return from.view(thread);
  const std::uint32_t waited = thread.warp->cluster_waited;
  const ClockRef& known = waited == 0 ? nothing : seat.completed[(waited - 1) & 1u];
  return {known->happened, known->fenced, known->settled, kNobody, 0, 0, from.view(thread).threads};
}

void Cluster::send(Block& from, Thread& thread, const Sent& sent) {
  if (sent.rank < 0 || sent.rank >= size())
    from.fault(FaultKind::out_of_bounds, &thread, sent.site,
               format("send to rank {} of a cluster of {} blocks", sent.rank, size()));
  const std::uint32_t to = from.shared_offset(thread, sent.to, sent.bytes, sent.bytes, sent.site, "send");
  const std::uint32_t place = from.shared_offset(thread, sent.barrier, 8, 8, sent.site, "send");
  Seat& seat = seats_[static_cast<std::size_t>(sent.rank)];
  Block& target = *seat.block;
  const auto refuse = [&](FaultKind kind, const std::string& why) {
    from.fault(
        kind, &thread, sent.site,
        format("send of {} bytes to block {} (rank {}): {}", sent.bytes, target.index(), sent.rank, why));
  };
  if (seat.ended)
    refuse(FaultKind::out_of_bounds, "it has returned from the kernel, and its shared memory is gone");
  const ClockRef nothing = target.clocks().zero();
  const View view = view_of(seat, from, thread, nothing);
  int barrier = -1;
  if (const std::string why = target.barriers().find_for_send(view, place, barrier); !why.empty())
    refuse(FaultKind::barrier_misuse, why);
  const Barrier& full = target.barriers().at(barrier);
  SharedConflict conflict;
  if (!target.shared().write_sent(view, to, sent.bytes, make_epoch(full.party, full.phase + 1), sent.site,
                                  conflict))
    refuse(conflict.kind, target.conflict_text(conflict, "send"));
  target.copies().take_sent(to, sent.value, sent.bytes, barrier, sent.site);
}

void Cluster::deadlock() const {
  std::string text = "nobody can run and no copy is in flight";
  for (int rank = 0; rank < size(); ++rank)
    text += format("\n block {} (rank {}):{}", at(rank).index(), rank, at(rank).waits_text());
  FaultPlace place;
  place.kernel = launch_.config.name;
  throw Fault(FaultKind::deadlock, place, text);
}

}  // namespace fourfold::sim
