// The blocks that are on the SMs: those of one grid, one after another or side by side, and those of the grid
// behind it where that one may start early and fits beside.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/block.h"
#include "sim/dice.h"
#include "sim/sm_room.h"

namespace fourfold::sim {

// A launched grid and what its blocks share. A grid that waits for the one behind it outlives its launch.
struct Launched {
  Launched(const LaunchConfig& asked, Kernel body, GlobalMemory& memory, PeerMemory& peers, int rank,
           SiteTable& sites, Grid self)
      : config(asked),
        kernel(std::move(body)),
        grid(self),
        needs(needs_of(asked)),
        context{.config = config,
                .kernel = kernel,
                .memory = memory,
                .peers = peers,
                .rank = rank,
                .sites = sites,
                .grid = grid,
                .stats = stats,
                .traffic = traffic} {}
  Launched(const Launched&) = delete;

  LaunchConfig config;
  Kernel kernel;
  Grid grid;
  BlockNeeds needs;
  LaunchStats stats;
  std::vector<BankTraffic> traffic;
  LaunchContext context;
  std::vector<int> order;  // of its blocks
  std::size_t next = 0;    // in `order`: the first that has not started
  std::size_t running = 0;
};

class Residents {
 public:
  Residents(StackPool& stacks, PeerMemory& peers, int rank, const plan::ArchFacts* chip, int sms)
      : stacks_(stacks), peers_(peers), rank_(rank), room_(chip, sms) {}
  ~Residents();

  // A grid behind those that are here; starts what there is room for.
  void add(std::unique_ptr<Launched> launched);
  // Until every block has ended (true), or those that are here look for something that will not come (false).
  // Throws the first Fault.
  bool run();
  // Whether the grids that are here may be left alone until the next launch: all blocks are on their way and
  // have let their successors start.
  bool may_wait_for_successor() const;
  [[noreturn]] void deadlock(const std::string& why) const;
  std::vector<std::unique_ptr<Launched>>& launches() { return launches_; }

 private:
  struct Running {
    std::unique_ptr<Block> block;
    Launched* launch;
    int sm;
  };
  void start_waiting_blocks();
  void end_of(std::size_t at);
  bool nobody_brings_anything();

  StackPool& stacks_;
  PeerMemory& peers_;
  int rank_;
  SmRoom room_;
  std::vector<std::unique_ptr<Launched>> launches_;
  std::vector<Running> running_;
  std::size_t stacks_taken_ = 0;

  Dice dice_;
  std::size_t at_ = 0;
  std::uint64_t turns_ = 0;
  std::uint64_t news_ = 0;   // of the shared memory, at the last look
  std::uint64_t looks_ = 0;  // since then, in vain
};

}  // namespace fourfold::sim
