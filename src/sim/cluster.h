// The blocks of a cluster: they are on SMs at the same time, meet at a barrier of their own and send to each
// other. A launch without clusters has them of one block.
//
// What a thread knows of another block it has learned at the cluster's barrier, by its own cluster_wait; what
// was sent tells of nothing but itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/block.h"
#include "sim/dice.h"

namespace fourfold::sim {

class Cluster {
 public:
  // first_stack: of the pool, for the first block's first thread; the others' follow.
  Cluster(LaunchContext& launch, StackPool& stacks, std::size_t first_stack);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Runs cluster number `index`. go_on() returns true when every block has ended, false when a thread gave
  // way; it throws the first Fault.
  void start(int index);
  bool go_on();
  void abandon();
  bool has_released() const;

  int size() const { return static_cast<int>(seats_.size()); }
  const Block& at(int rank) const { return *seats_[static_cast<std::size_t>(rank)].block; }

  // ---- for its blocks ----
  // Whether the block that runs gives the turn to another one.
  bool is_turn_over() { return pass_ != 0 && dice_.chance(pass_); }
  // A whole warp arrives, or waits: true when it may go on.
  void arrive(Block& block, Warp& warp);
  bool wait(Block& block, Warp& warp);
  std::string describe() const;
  struct Sent {
    void* to;
    int rank;
    const void* value;
    std::uint32_t bytes;
    const void* barrier;
    SiteTable::Id site;
  };
  void send(Block& from, Thread& thread, const Sent& sent);

 private:
  struct Seat {
    std::unique_ptr<Block> block;
    bool ended = false;
    // Of the cluster's barrier: what the block's threads have brought to the phase under way, and what they
    // brought to the last two that are complete, by the lowest bit of their number.
    ClockRef gathering, last_arrival, completed[2];
  };
  Seat* next_seat();
  void complete();
  void learn(Block& block, Warp& warp);
  View view_of(const Seat& seat, const Block& from, const Thread& thread, const ClockRef& nothing) const;
  [[noreturn]] void deadlock() const;

  LaunchContext& launch_;
  std::vector<Seat> seats_;
  std::size_t at_ = 0;  // whose turn it was last
  std::uint32_t phase_ = 0;
  std::uint32_t arrived_ = 0;  // warps

  bool seeded_ = false;
  Dice dice_;
  std::uint32_t pass_ = 0;  // chance of 256, per turn of a warp, that another block runs
};

}  // namespace fourfold::sim
