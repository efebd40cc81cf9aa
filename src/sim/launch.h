// What a host says to launch a kernel on the simulated GPU, and what it gets back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/arch.h"
#include "sim/site.h"

namespace fourfold::sim {

class Lane;

struct LaunchConfig {
  int blocks = 1;
  int threads = 32;              // per block, a multiple of 32, at most 1,024
  int shared_bytes = 0;          // dynamic shared memory per block
  int shared_limit_bytes = 0;    // of the chip; asking for more is a fault
  int registers_per_thread = 0;  // at launch; 0 takes what 65,536 registers give
  bool pdl = false;  // may start before its predecessor has finished (programmatic dependent launch)
  // Blocks run side by side, because they wait for each other or for those of other ranks. Without it one
  // runs after the other.
  bool together = false;
  // Whose SMs run it, and how many there are: decides which blocks are there at the same time. Null: all that
  // are asked for.
  const plan::ArchFacts* chip = nullptr;
  int sms = 0;
  std::uint64_t seed = 0;  // 0: plain order; every other number is another schedule
  const char* name = "kernel";
  std::uint64_t step_limit = 1'000'000'000;  // scheduler turns and memory accesses; more is a livelock
};

// Shared-memory accesses of one line of the kernel.
struct SiteTraffic {
  std::string file;
  int line = 0;
  std::uint64_t accesses = 0;    // warp instructions
  std::uint64_t wavefronts = 0;  // passes they took
  std::uint64_t ideal = 0;       // passes without bank conflicts
};

struct LaunchStats {
  std::uint64_t collectives = 0;  // of warps
  std::uint64_t switches = 0;     // between simulated threads
  std::uint64_t turns = 0;        // of the scheduler
  std::uint64_t accesses = 0;     // loads and stores of single threads
  std::uint64_t bulk_copies = 0;
  std::uint64_t async_copies = 0;  // 16-byte copies of single threads
  std::uint64_t copied_bytes = 0;
  std::uint64_t mma_bf16 = 0;
  std::uint64_t mma_e4m3 = 0;
  std::uint64_t mma_fp4 = 0;
  std::uint64_t wgmma = 0;               // counted once per warp
  std::uint64_t uncounted_accesses = 0;  // left out of `traffic`: too many between two collectives
  std::vector<SiteTraffic> traffic;
  std::vector<SyncSite> sites;  // every synchronisation that was executed
};

// A kernel as the scheduler calls it: once per thread, without the cost of std::function.
struct Kernel {
  void (*call)(void* self, Lane& lane);
  std::shared_ptr<void> self;
};

}  // namespace fourfold::sim
