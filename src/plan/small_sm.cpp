#include "plan/small_sm.h"

#include <algorithm>

#include "plan/budget.h"

namespace fourfold::plan {

int boundaries_apart(const ArchFacts& arch, std::span<const int> shared_memory_bytes) {
  const auto taken = [](const ArchFacts& chip, int bytes) {
    return round_up(bytes + chip.smem_reserved_bytes_per_block, chip.smem_allocation_unit_bytes);
  };
  const auto fit_together = [&](const ArchFacts& chip, int first, int second) {
    return taken(chip, first) + taken(chip, second) <= chip.smem_bytes_per_sm;
  };
  int apart = 0;
  for (std::size_t i = 1; i < shared_memory_bytes.size(); ++i) {
    const int first = shared_memory_bytes[i - 1], second = shared_memory_bytes[i];
    apart += fit_together(kSm90, first, second) && !fit_together(arch, first, second);
  }
  return apart;
}

double small_sm_share(int rows, double context) {
  // The next more that was measured; losses grow with both, but for noise.
  int next_rows = kSmallSmLoss.back().rows, next_context = kSmallSmContextMost;
  for (const SmallSmLoss& point : kSmallSmLoss) {
    if (point.rows >= rows) next_rows = std::min(next_rows, point.rows);
    if (point.context >= context) next_context = std::min(next_context, point.context);
  }
  double share = 0;
  for (const SmallSmLoss& point : kSmallSmLoss)
    if (point.rows <= next_rows && point.context <= next_context) share = std::max(share, point.share);
  return share;
}

}  // namespace fourfold::plan
