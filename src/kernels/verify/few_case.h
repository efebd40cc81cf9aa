// The proof of the few-token rows, each kernel alone: GEMM1 against the neurons it must leave in its slots,
// GEMM2 against the finished sum over experts, from intermediate tokens of its own.
#pragma once

#include <cstdint>

#include "kernels/launch/machine.h"
#include "kernels/verify/result.h"

namespace fourfold::verify {

struct FewCase {
  plan::RowFacts row;
  kernels::RowKind kind = kernels::RowKind::few_gate_up;
  std::int64_t rows = 0;     // neurons (GEMM1) or output columns (GEMM2)
  std::int64_t columns = 0;  // K
  int experts = 0;
  int top_k = 0;
  int tokens = 0;
  std::uint64_t seed = 1;
};

Result run_few_case(kernels::Machine& machine, const FewCase& test, bool bits_exact);

}  // namespace fourfold::verify
