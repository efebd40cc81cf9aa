// Which launches keep their blocks apart, one on an SM. A kernel may start before the one in front of it has
// ended. It then finds that one's blocks on some SMs and none on others, and where two of its own blocks have
// room the driver may put two: the kernel takes as long as they do, with SMs idle beside them. Asking for
// more than half of an SM's shared memory keeps them apart (apart_bytes() in cuda_launch.h). Two such kernels
// have no room together, so of two in a row only one may, but for the experts' first. Measured on an H200
// (docs/decisions/0034); on SM12x, with 100 KB an SM, blocks of most of our kernels are alone.
#pragma once

#include <string_view>

#include "kernels/moe_few/few_params.h"
#include "plan/row_facts.h"

namespace fourfold::kernels {

class Spread {
 public:
  // Of the next launch in the stream.
  bool keeps_apart(const plan::RowFacts& row, int blocks, int sm_count) {
    return before_ = wants(row, blocks, sm_count);
  }

 private:
  bool wants(const plan::RowFacts& row, int blocks, int sm_count) const {
    const std::string_view kernel = row.kernel;
    // The experts' first kernel, whatever is in front of it: its blocks have equal shares of the weights.
    if (kernel == "moe_few_gate_up" || kernel == moe_few::kStreamKernel) return true;
    if (before_ || blocks > sm_count) return false;
    // One to eight rows: those that norm them, if they fill the GPU; the router, of fewer blocks, is in front
    // of the experts.
    if (kernel == "dense_few" || kernel == "dense_near" || kernel == "dense_pair")
      return 4 * blocks >= 3 * sm_count && row.row.find(" rows ") == std::string::npos;
    return 20 * blocks >= 9 * sm_count &&
           (kernel.starts_with("dense_") || kernel.starts_with("attend") || kernel.starts_with("moe_"));
  }

  bool before_ = false;  // the launch in front keeps its blocks apart
};

}  // namespace fourfold::kernels
