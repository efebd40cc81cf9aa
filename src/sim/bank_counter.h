// Counts shared-memory wavefronts per call site. Lanes run one after another here, so the accesses of a warp
// instruction are put together again: every lane's n-th access from one line since the warp's last
// collective.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/site.h"

namespace fourfold::sim {

struct BankTraffic {
  std::uint64_t accesses = 0;    // warp instructions
  std::uint64_t wavefronts = 0;  // 128-byte passes they took
  std::uint64_t ideal = 0;       // passes without a bank conflict
};

// Passes that `lanes` (a mask) need for accesses of `bytes` each: 16-byte accesses go by quarter warps,
// 8-byte ones by half warps; lanes that read the same word share a pass.
BankTraffic count_wavefronts(const std::uint32_t (&offset)[32], std::uint32_t lanes, std::uint32_t bytes);

class BankCounter {
 public:
  // One access of a lane. `next` is the lane's guess which group it belongs to: right as long as lanes do not
  // diverge.
  void record(unsigned lane, std::uint32_t& next, SiteTable::Id site, std::uint32_t offset,
              std::uint32_t bytes) {
    if (next < used_ && groups_[next].takes(lane, site, bytes)) [[likely]]
      groups_[next++].add(lane, offset);
    else
      record_elsewhere(lane, next, site, offset, bytes);
  }
  // A collective of the warp ends the step: adds the groups to `traffic`, indexed by site.
  void flush(std::vector<BankTraffic>& traffic);
  std::uint64_t uncounted() const { return uncounted_; }
  void reset() { used_ = 0; }

 private:
  static constexpr std::uint32_t kGroupsMax = 512;
  struct Group {
    std::uint32_t lanes;
    SiteTable::Id site;
    std::uint16_t bytes;
    std::uint32_t offset[32];

    bool takes(unsigned lane, SiteTable::Id from, std::uint32_t size) const {
      return site == from && bytes == size && !(lanes >> lane & 1u);
    }
    void add(unsigned lane, std::uint32_t at) {
      lanes |= 1u << lane;
      offset[lane] = at;
    }
  };
  void record_elsewhere(unsigned lane, std::uint32_t& next, SiteTable::Id site, std::uint32_t offset,
                        std::uint32_t bytes);

  std::vector<Group> groups_;
  std::uint32_t used_ = 0;
  std::uint64_t uncounted_ = 0;
};

}  // namespace fourfold::sim
