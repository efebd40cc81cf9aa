// The least time of one launch on a chip that were all it was sold as: its bytes, each once, at the memory's
// published rate, or its products at the tensor cores' published peak, whichever takes longer. No latency, no
// start, no wave: what a kernel's time is held against, never what it is predicted to take (kernel_time.h).
#pragma once

#include <algorithm>

#include "plan/chip_rates.h"
#include "plan/kernel_work.h"

namespace fourfold::plan {

struct KernelFloor {
  double memory_us = 0;
  double tensor_us = 0;
  double us() const { return std::max(memory_us, tensor_us); }
};
KernelFloor kernel_floor(const KernelWork& work, const ChipRange& chip);

}  // namespace fourfold::plan
