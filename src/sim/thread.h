// The state of one simulated thread and of one warp. Owned by Block; Lane is the handle a kernel sees.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/bank_counter.h"
#include "sim/clock.h"
#include "sim/fiber.h"
#include "sim/site.h"

namespace fourfold::sim {

class Block;
struct Warp;

// A copy of 4 or 16 bytes that its thread has not waited for.
struct PendingCopy {
  std::uint32_t to;  // offset in shared memory
  std::uint32_t bytes;
  const void* from;
  bool landed;
};

struct Thread {
  Block* block = nullptr;
  Warp* warp = nullptr;
  std::uint32_t id = 0;
  unsigned lane = 0;

  // What this thread knows (clock.h), and its own, private components.
  ClockRef known;
  std::uint32_t clock = 1;
  std::uint32_t fenced = 0;
  std::uint32_t settled = 0;
  std::uint32_t visible = 0;

  Fiber fiber;
  bool started = false;
  bool finished = false;

  // Outside of collectives a thread waits for mbarriers only.
  int waiting_barrier = -1;
  std::uint32_t waiting_parity = 0;
  SiteTable::Id waiting_site = 0;

  // In give_way, after its last look at a flag (null: at its predecessors).
  bool gave_way = false;
  const void* looked_at = nullptr;
  SiteTable::Id looked_site = 0;

  std::uint32_t access_index = 0;  // guess of BankCounter

  std::vector<PendingCopy> copies;       // oldest first
  std::vector<std::size_t> copy_groups;  // for each committed group, the end of its copies in `copies`
  std::vector<int> unfenced_barriers;    // initialised here, fence_barrier_init not yet called

  std::uint32_t bit() const { return 1u << lane; }
  Epoch epoch() const { return make_epoch(id, clock); }
};

enum class Collective : std::uint8_t {
  none,
  sync_warp,
  sync_block,
  barrier_sync,
  barrier_arrive,
  load_matrix_x4,
  mma_bf16,
  mma_e4m3,
  mma_nvfp4,
  mma_mxfp4,
  shuffle,
  shuffle_xor,
  ballot,
  max_all,
  match,
  wgmma_fence,
  wgmma_bf16,
  wgmma_bf16_columns,
  wgmma_e4m3,
  wgmma_commit,
  wgmma_wait,
  raise_registers,
  drop_registers,
};
std::string_view name_of(Collective op);

// An accumulator of a wgmma in flight: the kernel's own floats are poisoned until a wait delivers the values.
struct Accumulator {
  float* d[32];
  int floats;                 // per lane
  std::uint32_t last_group;   // of the wgmmas on it
  SiteTable::Id site;         // of the last one
  std::vector<float> values;  // [32][floats]
};

struct IssuedWgmma {
  std::uint32_t group;
  SiteTable::Id site;
  const std::uint32_t* a[32];
  std::uint32_t a_values[32][4];
};

struct Warp {
  int index = 0;
  Thread* threads = nullptr;  // 32 of them

  std::uint32_t runnable = 0;  // masks of lanes
  std::uint32_t turn = 0;      // still to run in this turn
  std::uint32_t finished = 0;

  // The collective the lanes are gathering at.
  Collective op = Collective::none;
  SiteTable::Id site = 0;
  std::uint32_t arrived = 0;
  void* args[32] = {};

  // The last results of clock operations: lanes of a warp mostly ask the same question.
  struct {
    ClockRef before, other, after;
  } joined;
  struct {
    ClockRef before, after;
  } fenced;

  BankCounter banks;

  std::vector<Accumulator> accumulators;
  std::vector<IssuedWgmma> issued;
  bool wgmma_fenced = false;
  std::uint32_t wgmma_committed = 0;  // groups
  std::uint32_t wgmma_target = 0;     // groups the warp waits for

  int registers = 0;         // per thread
  int registers_wanted = 0;  // while it waits for more
};

}  // namespace fourfold::sim
