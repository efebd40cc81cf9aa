// What four warps do together: wgmma and the hand-over of registers. Warps of a group need not stand at the
// same line at the same time, but they must pass the same lines in the same order; a log per group checks
// that.
//
// A wgmma is computed when its warp issues it, from what shared memory holds then (its reads are checked
// then, and a later write collides with them until a wait covers the group). The kernel's accumulators are
// poisoned at issue and get their values at the wait.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "sim/clock.h"
#include "sim/site.h"
#include "sim/thread.h"

namespace fourfold::sim {

class Block;

// bf16_columns: the operand in shared memory lies N-major.
enum class WgmmaNumbers : std::uint8_t { bf16, bf16_columns, e4m3 };

// One lane's arguments of wgmma.m64nNk16 (bf16) or m64nNk32 (E4M3): 32 bytes of K either way.
struct WgmmaLane {
  WgmmaNumbers numbers;
  bool adds;  // to what d holds; else d is only written
  int n;
  float* d;                // [n / 2]
  const std::uint32_t* a;  // [4]
  std::uint64_t descriptor;
};

class Warpgroups {
 public:
  // A signalling NaN: what a kernel finds in an accumulator it may not look at yet.
  static constexpr std::uint32_t kPoison = 0x7FBADBADu;

  explicit Warpgroups(Block& block) : block_(block) {}
  void reset();

  void fence(Warp& warp, SiteTable::Id site);
  void issue(Warp& warp, const WgmmaLane* const (&lanes)[32], SiteTable::Id site);
  void commit(Warp& warp, SiteTable::Id site);
  // True when the warp may go on now; otherwise it sleeps until the other warps have committed as much.
  bool wait(Warp& warp, int pending, SiteTable::Id site);

  bool raise_registers(Warp& warp, int count, SiteTable::Id site);
  void drop_registers(Warp& warp, int count, SiteTable::Id site);

  void check_end();
  std::string describe_wait(const Warp& warp) const;

 private:
  struct Step {
    Collective op;
    SiteTable::Id site;
    std::uint64_t argument;
  };
  struct Log {
    std::deque<Step> steps;        // those not yet passed by all four warps
    std::uint64_t dropped = 0;     // steps all four have passed
    std::uint64_t passed[4] = {};  // by each warp
  };

  struct Panel;
  struct Readers;

  static bool is_poisoned(const float* d, int floats);
  void pass(Warp& warp, Collective op, SiteTable::Id site, std::uint64_t argument);
  bool group_committed(const Warp& warp) const;
  void deliver(Warp& warp);
  void check_operands(Warp& warp, const IssuedWgmma& issued);
  void check_registers(Warp& warp, int count, SiteTable::Id site);
  Panel check_issue(Warp& warp, const WgmmaLane* const (&lanes)[32], SiteTable::Id site);
  // 32 bytes of K of eight columns.
  void read_columns(const Panel& panel, int first_column, const Readers& readers, SiteTable::Id site,
                    unsigned char (&bytes)[8][32]);
  void read_rows(const Panel& panel, int first_column, const Readers& readers, SiteTable::Id site,
                 unsigned char (&bytes)[8][32]);
  void read_chunk(std::uint32_t offset, const Readers& readers, SiteTable::Id site, unsigned char* bytes);
  Accumulator& accumulator(Warp& warp, const WgmmaLane* const (&lanes)[32], SiteTable::Id site);

  Block& block_;
  std::vector<Log> logs_;
  int registers_free_ = 0;  // of the block's pool, in registers of a whole warp
};

}  // namespace fourfold::sim
