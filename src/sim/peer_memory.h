// Memory that several simulated GPUs see: what a rank's kernels write into another rank's exchange buffers,
// and page-locked memory of the host. Order between ranks comes from flags alone: a release store leaves a
// message (what the storing thread knows to have happened), an acquire load that reads it hears the message.
// A word touched by two parties with no message between them is a race, whoever came first in this run.
//
// What is heard is direct: to know what a rank did, hear it from that rank. Blocks of one grid may speak to
// each other in the same way.
//
// Thread-safe: every rank may be a host thread of its own. With a seed the ranks take turns that the seed
// decides, and a run repeats exactly; without one they run as the host schedules them.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/clock.h"
#include "sim/dice.h"
#include "sim/global_memory.h"

namespace fourfold::sim {

class PeerMemory {
 public:
  static constexpr int kRanksMost = 8;
  explicit PeerMemory(int ranks = 1, std::uint64_t seed = 0);

  // ---- the host ---- memory counts as never written
  void* allocate(std::size_t bytes, std::string_view name);
  void release(const void* pointer);
  bool contains(const void* start, std::size_t bytes) const;
  void write_from_host(void* to, const void* from, std::size_t bytes);
  void read_to_host(void* to, const void* from, std::size_t bytes) const;
  std::string describe(const void* address) const;
  void forget(const void* start, std::size_t bytes);

  // ---- threads of kernels ---- empty: allowed and done; otherwise what is wrong
  struct Answer {
    bool ok = true;
    FaultKind kind = FaultKind::race;
    std::string text;
  };
  Answer read(int rank, const GlobalAccessor& who, const void* from, void* value, std::uint32_t bytes);
  Answer write(int rank, const GlobalAccessor& who, void* to, const void* value, std::uint32_t bytes);
  // speaks: false leaves the store without its message (a mutation); likewise hears. threads: of the block.
  Answer store_release(int rank, const GlobalAccessor& who, void* to, std::uint32_t value, bool speaks);
  Answer load_acquire(int rank, const GlobalAccessor& who, const void* from, std::uint32_t& value,
                      bool hears);

  // ---- time and turns ----
  std::uint64_t nanoseconds() const;
  // How often anything was written, and whether one rank alone does so.
  std::uint64_t news() const { return news_.load(std::memory_order_relaxed); }
  bool is_alone() const { return ranks_ == 1; }
  // A thread of this rank has nothing to do but to look again.
  void give_way(int rank);
  // With a seed: a rank's host thread begins (and waits until every rank has), and ends.
  void enter(int rank);
  void leave(int rank);

 private:
  struct Stamp {  // of an access; grid 0: the host
    std::uint32_t grid = 0;
    Epoch epoch = 0;
    std::uint16_t block = 0;
    std::uint16_t rank = 0;
    std::uint16_t line = 0;
  };
  struct Word {
    Stamp write;
    std::uint8_t written = 0;  // mask of bytes
    std::uint8_t is_flag = 0;
    Stamp read[kRanksMost];
  };
  struct Region {
    std::size_t bytes = 0;
    std::string name;
    std::unique_ptr<std::byte, void (*)(void*)> data{nullptr, std::free};
    std::unique_ptr<Word, void (*)(void*)> words{nullptr, std::free};
  };
  struct Message {
    std::uint32_t grid = 0, visible = 0;
    std::uint16_t block = 0;
    std::vector<std::uint32_t> happened;  // by thread of the block
  };
  struct Heard {
    std::uint32_t grid = 0;
    std::uint32_t block = 0;
    Epoch epoch = 0;
    std::shared_ptr<const Message> message;
  };

  const Region* region_of(const void* start, std::size_t bytes) const;
  template <class F>
  Answer each_word(const void* start, std::uint32_t bytes, F&& visit);
  bool ordered(int rank, const GlobalAccessor& who, const Stamp& before) const;
  Answer judge_write(int rank, const GlobalAccessor& who, const Word& word, const void* address) const;
  Answer complaint(FaultKind kind, int rank, const void* address, const char* what, const Stamp& other) const;
  void pass_turn(int rank);

  mutable std::mutex mutex_;
  int ranks_;
  std::map<const std::byte*, Region, std::greater<>> regions_;
  std::unordered_map<const void*, std::pair<int, std::shared_ptr<const Message>>> spoken_;  // by flag
  std::array<std::array<std::deque<Heard>, kRanksMost>, kRanksMost> heard_;                 // [who][from]

  std::atomic<std::uint64_t> news_ = 0;
  bool seeded_ = false;
  Dice dice_;
  std::condition_variable turn_changed_;
  std::vector<bool> inside_;
  int entered_ = 0;
  int turn_ = -1;
  std::uint64_t turns_ = 0;
};

}  // namespace fourfold::sim
