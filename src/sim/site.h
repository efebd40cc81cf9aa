// Call sites: every member of the device language knows the line of the kernel it was called from. Sites name
// parties in messages, group shared-memory traffic, and are the handle by which a test removes one
// synchronisation.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::sim {

struct Site {
  const char* file;
  int line;
};

// The last part of a path.
std::string_view base_name(std::string_view path);

// Operations that order something, and nothing else: each of them can be removed by a mutation.
enum class SyncOp : std::uint8_t {
  sync_block,
  sync_warp,
  barrier_sync,
  barrier_arrive,
  init,
  fence_barrier_init,
  arrive,
  arrive_expect,
  wait,
  fence_async_proxy,
  wait_predecessors,
  release_successors,
  copy_commit,
  copy_wait,
  copy_arrive,
  wgmma_fence,
  wgmma_commit,
  wgmma_wait,
  store_release,
  load_acquire,
};
std::string_view name_of(SyncOp op);

// One executed synchronisation: a line of a kernel and what it does there.
struct SyncSite {
  std::string file;  // last part of the path
  int line = 0;
  SyncOp op = SyncOp::sync_block;
  bool operator==(const SyncSite&) const = default;
};

enum class MutationKind : std::uint8_t {
  skip,       // the operation does nothing
  no_expect,  // arrive_expect only: arrives, expects no bytes
};

// Removes one synchronisation at one call site, in every thread that passes there.
struct Mutation {
  SyncSite site;
  MutationKind kind = MutationKind::skip;
};
std::string describe(const Mutation& mutation);
// Every way to damage this site.
std::vector<Mutation> mutations_of(const SyncSite& site);

// Numbers the sites a device has met. Two spellings of one file (a header seen from two translation units)
// get one number.
class SiteTable {
 public:
  using Id = std::uint16_t;

  SiteTable();
  Id intern(Site site) {
    Slot& slot = slots_[slot_of(site)];
    if (slot.file == site.file && slot.line == site.line) [[likely]]
      return slot.id;
    return intern_slow(site, slot);
  }
  // By the last part of the path; for sites named by a test rather than by the running kernel.
  Id find_or_add(std::string_view file_name, int line);
  // "moe_gemm.h:88"; site 0 is "the host".
  std::string text(Id id) const;
  std::string_view file(Id id) const { return entries_[id].file; }
  int line(Id id) const { return entries_[id].line; }
  std::size_t size() const { return entries_.size(); }

  void note(Id id, SyncOp op) { entries_[id].executed |= 1u << static_cast<unsigned>(op); }
  void forget_executed() {
    for (Entry& entry : entries_) entry.executed = 0;
  }
  std::vector<SyncSite> executed() const;

 private:
  struct Slot {
    const char* file = nullptr;
    int line = 0;
    Id id = 0;
  };
  struct Entry {
    std::string file;
    int line;
    std::uint32_t executed;
  };
  static std::size_t slot_of(Site site) {
    return ((reinterpret_cast<std::uintptr_t>(site.file) >> 3) * 31u + static_cast<unsigned>(site.line)) &
           1023u;
  }
  Id intern_slow(Site site, Slot& slot);

  std::array<Slot, 1024> slots_{};
  std::vector<Entry> entries_;
};

}  // namespace fourfold::sim
