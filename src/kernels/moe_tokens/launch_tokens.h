// Launches of the token kernels.
#pragma once

#include "kernels/launch/machine.h"
#include "kernels/moe_tokens/token_params.h"

namespace fourfold::moe_tokens {

struct TokenRows {
  kernels::RowHandle stage, quantize;
};
inline TokenRows find_token_rows(const kernels::Machine& machine) {
  return {machine.required(kernels::RowKind::basic, kStageRow),
          machine.required(kernels::RowKind::basic, kQuantizeRow)};
}

inline void launch_stage(kernels::Machine& machine, const TokenRows& rows, const StageParams& params) {
  machine.launch(rows.stage, stage_blocks(params, machine.walkers(rows.stage, 16)), params);
}
inline void launch_quantize(kernels::Machine& machine, const TokenRows& rows, const QuantizeParams& params) {
  machine.launch(rows.quantize, machine.walkers(rows.quantize, 4), params);
}

}  // namespace fourfold::moe_tokens
