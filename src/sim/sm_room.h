// Which blocks share an SM: their shared memory with the driver's reserve, their warps, their registers where
// the launch names them, and their number (plan/arch.h, plan/budget.h). Without a chip every block has room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/arch.h"
#include "sim/launch.h"

namespace fourfold::sim {

// What one block of a launch takes of an SM.
struct BlockNeeds {
  int shared_bytes = 0;  // with the reserve, in whole units
  int warps = 0;
  int registers = 0;      // 0 where the launch does not say
  int most_an_sm = 1024;  // blocks of this launch alone
};
BlockNeeds needs_of(const LaunchConfig& config);

class SmRoom {
 public:
  SmRoom(const plan::ArchFacts* chip, int sms);

  // An SM with room for a block of this grid, which is taken; -1 when there is none. The emptiest first, as
  // blocks are spread.
  int take(std::uint32_t grid, const BlockNeeds& needs);
  void give_back(int sm, std::uint32_t grid);
  // Why take() answered -1.
  std::string refusal(const BlockNeeds& needs) const;

 private:
  struct Resident {
    std::uint32_t grid;
    BlockNeeds needs;
  };
  bool fits(const std::vector<Resident>& sm, std::uint32_t grid, const BlockNeeds& needs) const;

  const plan::ArchFacts* chip_;
  std::vector<std::vector<Resident>> sms_;
};

// Refuses a launch whose blocks wait for each other and can never all be there.
void require_all_resident(const LaunchConfig& config);

}  // namespace fourfold::sim
