// The launch of the combine kernel.
#pragma once

#include "kernels/launch/machine.h"
#include "kernels/moe_combine/combine_params.h"

namespace fourfold::moe_combine {

inline kernels::RowHandle find_combine(const kernels::Machine& machine, bool rows_are_f32) {
  return machine.required(kernels::RowKind::basic, rows_are_f32 ? kF32Row : kBf16Row);
}
inline void launch_combine(kernels::Machine& machine, kernels::RowHandle row, const CombineParams& params) {
  machine.launch(row, params.tokens * blocks_per_token(params.columns), params);
}

inline kernels::RowHandle find_combine_norm(const kernels::Machine& machine) {
  return machine.required(kernels::RowKind::step, kNormRow);
}
inline void launch_combine_norm(kernels::Machine& machine, kernels::RowHandle row,
                                const CombineNormParams& params) {
  machine.launch(row, params.combine.tokens, params);
}

}  // namespace fourfold::moe_combine
