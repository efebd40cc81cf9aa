// The memory of the simulated GPU: one reserved range of addresses, so that a pointer alone finds its shadow.
// The shadow knows, for every 4 bytes, which of them are allocated and written, and which grid, block and
// thread touched them last. Allocations are real memory: the host may look at them.
//
// Judging only, as in shared_memory.h: a broken rule is answered with a Conflict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "sim/clock.h"
#include "sim/fault.h"
#include "sim/site.h"

namespace fourfold::sim {

// Who touches memory: a thread of a block of a grid, and which grids are complete as far as it knows.
struct GlobalAccessor {
  View view;
  Epoch epoch;
  std::uint32_t grid;
  std::uint32_t block;
  std::uint32_t visible;  // grids up to this one are complete
  std::uint32_t start;    // and these were already when its grid could first start
  SiteTable::Id site;
  bool async = false;     // the copy engine reads on the thread's behalf
  bool cached = false;    // a load through L1: copies of either kind go around it
  bool constant = false;  // through the read-only path, which does not see writes of its own grid
};

struct GlobalConflict {
  FaultKind kind;
  const void* address;
  std::uint32_t other_grid = 0;
  std::uint32_t other_block = 0;
  Epoch other = 0;  // when the other party is a thread of the same block
  SiteTable::Id site = 0;
  bool other_wrote = true;
  bool constant = false;         // ordered, but read through the read-only path
  SiteTable::Id early_site = 0;  // of a stale_read: who fetched the line before the wait
};

class GlobalMemory {
 public:
  explicit GlobalMemory(std::size_t capacity_bytes);
  ~GlobalMemory();
  GlobalMemory(const GlobalMemory&) = delete;
  GlobalMemory& operator=(const GlobalMemory&) = delete;

  // Aligned to 256 bytes, with at least 256 forbidden bytes on both sides. Counts as never written.
  void* allocate(std::size_t bytes, std::string_view name);
  void release(const void* pointer);
  // Host writes are visible to every later grid.
  void mark_written(const void* start, std::size_t bytes) { set_written(start, bytes, true); }
  void forget(const void* start, std::size_t bytes) { set_written(start, bytes, false); }
  // First byte of the range that was never written, or null.
  const void* first_unwritten(const void* start, std::size_t bytes) const;

  // "tokens + 4,096", or a sentence for an address outside all allocations.
  std::string describe(const void* address) const;

  // Whether the address is of this device at all.
  bool owns(const void* address) const { return offset_of(address) < capacity_; }

  static constexpr std::uint32_t kBlocksMax = 0xFFFE;
  // bytes is 1, 2, 4, 8 or 16, naturally aligned, or any multiple of 16 at a multiple of 16.
  bool contains(const void* start, std::size_t bytes) const;
  bool read(const GlobalAccessor& who, const void* start, std::uint32_t bytes, GlobalConflict& conflict);
  bool write(const GlobalAccessor& who, const void* start, std::uint32_t bytes, GlobalConflict& conflict);

 private:
  // Last accesses of 4 bytes. Grid 0 is the host.
  struct Record {
    std::uint32_t write_grid;
    std::uint32_t read_grid;
    std::uint32_t read_before;  // the last reading grid before read_grid
    Epoch write_epoch;          // thread of write_block
    Epoch read_epoch;           // the last thread of read_block that read
    std::uint16_t write_block;
    std::uint16_t read_block;  // kManyBlocks when several blocks of read_grid read
    SiteTable::Id write_site;
    SiteTable::Id read_site;
    std::uint8_t write_bytes;  // mask of the bytes that write_block wrote
    std::uint8_t unused[3];
  };
  static_assert(sizeof(Record) == 32);
  static constexpr std::uint16_t kManyBlocks = 0xFFFF;

  // The last grid that fetched a line into an L1 before it had waited for its predecessors.
  struct EarlyLine {
    std::uint32_t grid;
    SiteTable::Id site;
  };
  static constexpr std::size_t kLineBytes = 128;

  struct Allocation {
    std::size_t bytes;
    std::string name;
  };

  std::size_t offset_of(const void* pointer) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(pointer) - data_);
  }
  bool inside(const void* start, std::size_t bytes) const {
    const std::size_t offset = offset_of(start);
    return offset < capacity_ && bytes <= capacity_ - offset;
  }
  void set_written(const void* start, std::size_t bytes, bool written);
  void clear_records(std::size_t first_word, std::size_t count);
  bool read_word(const GlobalAccessor& who, std::size_t word, unsigned bytes_mask, GlobalConflict& conflict);
  bool write_word(const GlobalAccessor& who, std::size_t word, unsigned bytes_mask, GlobalConflict& conflict);
  bool may_be_stale(const GlobalAccessor& who, std::size_t word, GlobalConflict& conflict) const;

  std::size_t capacity_;
  std::byte* data_ = nullptr;
  std::uint8_t* state_ = nullptr;                  // per 4 bytes: low half written, high half allocated
  Record* records_ = nullptr;                      // per 4 bytes; pages appear when a kernel touches them
  EarlyLine* early_ = nullptr;                     // per line, likewise
  std::map<std::size_t, Allocation> allocations_;  // by offset
};

}  // namespace fourfold::sim
