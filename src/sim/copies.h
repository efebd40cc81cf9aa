// Asynchronous copies from global to shared memory. Bulk copies are cut into pieces that land at random
// moments in random order; each completes its bytes on the copy's barrier. The copies of 4 or 16 bytes of
// single threads land some time before the wait that covers them.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "sim/dice.h"
#include "sim/site.h"
#include "sim/thread.h"

namespace fourfold::sim {

class Block;

class Copies {
 public:
  explicit Copies(Block& block) : block_(block) {}
  void reset();

  void bulk_load(Thread& thread, void* to, const void* from, int bytes, const void* barrier,
                 SiteTable::Id site);
  // bytes: 4 or 16; `what` the kernel called.
  void copy(Thread& thread, void* to, const void* from, std::uint32_t bytes, SiteTable::Id site,
            const char* what);
  void commit(Thread& thread) { thread.copy_groups.push_back(thread.copies.size()); }
  // Until at most `pending` of the thread's committed groups are unfinished.
  void wait(Thread& thread, int pending);
  // An arrival on the barrier once all copies the thread has issued so far have landed.
  void arrive(Thread& thread, const void* barrier, SiteTable::Id site);

  bool any_in_flight() const { return !pieces_.empty() || !arrivals_.empty(); }
  // Lets one piece land: the oldest, or a random one.
  void land_one(Dice* dice);

  // A thread may not leave with copies it never waited for, nor a block with copies in flight.
  void check_exit(Thread& thread, SiteTable::Id site);
  void check_end();

 private:
  struct Bulk {
    std::uint32_t to;
    const std::byte* from;
    std::uint32_t bytes;
    std::uint32_t left;
    int barrier;
    SiteTable::Id site;
  };
  struct Piece {
    std::size_t copy;
    std::uint32_t offset;
    std::uint32_t bytes;
  };

  // Copies of one thread that will arrive on a barrier, and what the thread knew when it said so.
  struct Arrival {
    std::vector<PendingCopy> copies;
    int barrier;
    ClockRef known;
    std::uint32_t thread;
    std::uint32_t clock;
    std::uint32_t fenced;
    SiteTable::Id site;
  };
  void land_arrival(std::size_t chosen);

  Block& block_;
  std::vector<Bulk> bulk_;
  std::vector<Piece> pieces_;
  std::deque<Arrival> arrivals_;
};

}  // namespace fourfold::sim
