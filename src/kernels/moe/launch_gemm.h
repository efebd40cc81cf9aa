// The launch of a grouped GEMM: its blocks stay and walk the work list.
#pragma once

#include "kernels/launch/machine.h"
#include "kernels/moe/gemm_params.h"

namespace fourfold::moe {

inline void launch_gemm(kernels::Machine& machine, kernels::RowHandle row, const GemmParams& params) {
  machine.launch(row, machine.walkers(row, machine.facts(row).blocks_per_sm), params);
}

}  // namespace fourfold::moe
