// The proof of one GEMM row: random experts, ragged token counts, every operation, against the scalar reference.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/launch/machine.h"
#include "kernels/verify/result.h"

namespace fourfold::verify {

struct GemmCase {
  plan::RowFacts row;
  moe::Op op = moe::Op::plain;
  std::int64_t rows = 0;     // of the matrix; gate_up: gate and up together
  std::int64_t columns = 0;  // K
  std::vector<int> tokens_per_expert;
  std::uint64_t seed = 1;
};

// bits_exact: whether this machine's arithmetic is known exactly (simulator, Hopper).
Result run_gemm_case(kernels::Machine& machine, const GemmCase& test, bool bits_exact);

}  // namespace fourfold::verify
