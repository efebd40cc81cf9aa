// Launches of the few-token kernels.
#pragma once

#include <algorithm>

#include "kernels/launch/machine.h"
#include "kernels/moe_few/few_params.h"

namespace fourfold::moe_few {

// One block an SM, so that one of GEMM2 fits beside it.
inline void launch_gate_up(kernels::Machine& machine, kernels::RowHandle row, const FewCall& call) {
  machine.launch(row, std::min(machine.sm_count(), call.few.tokens * call.few.top_k * call.gemm.strips),
                 call);
}
inline void launch_down(kernels::Machine& machine, kernels::RowHandle row, const FewCall& call) {
  machine.launch(row, call.gemm.out_columns / machine.facts(row).m, call);
}

}  // namespace fourfold::moe_few
