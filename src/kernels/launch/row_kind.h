// Which of a machine's tables a row is in.
#pragma once

#include <array>

namespace fourfold::kernels {

enum class RowKind {
  gemm,         // grouped GEMM over experts, or over a prompt's dense matrices: moe_stream and moe_gemm
  few_gate_up,  // the two kernels of the few-token path
  few_down,
  step,   // the rest of a model's step: dense matrices, norms, attention, DeltaNet, sampling, exchange
  basic,  // around the GEMMs: routing, tokens, combine, groups, packing. One form each, so nothing is chosen,
          // and no plan lists them.
};
inline constexpr int kRowKinds = 5;

// The kinds with forms to choose from: what plans, proofs and tuning walk.
inline constexpr std::array kChosenKinds = {RowKind::gemm, RowKind::few_gate_up, RowKind::few_down,
                                            RowKind::step};

}  // namespace fourfold::kernels
