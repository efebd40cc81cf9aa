// The simulator as a Machine.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "kernels/launch/machine.h"
#include "sim/device.h"

namespace fourfold::kernels {

struct SimMachineOptions {
  const plan::ArchFacts* arch = &plan::kSm120;  // sm120, or sm90, which also has the wgmma rows
  int persistent_blocks = 3;
  // That its blocks are spread over: what waits for each other must fit them. More than persistent_blocks,
  // which are few so that a simulation is quick: the smallest GPU we know has 48.
  int sms = 8;
  bool dependent_launch = true;
  std::int64_t memory_bytes = std::numeric_limits<std::int64_t>::max();  // what it says it has
  std::vector<Machine::RefusedRow> refused = {};  // rows it does not have, as a GPU that misses their plan
};

// Borrows the device: memory, seed and mutations are the caller's to set.
std::unique_ptr<Machine> make_sim_machine(sim::Device& device, const SimMachineOptions& options = {});

}  // namespace fourfold::kernels
