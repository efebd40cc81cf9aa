// The proof of one GEMM row: random experts, ragged token counts, every operation, against the scalar
// reference.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/launch/machine.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/verify/result.h"

namespace fourfold::verify {

// How the checkpoint stores its global scales: as factors, or as their reciprocals.
enum class Convention { model_opt, compressed_tensors };

struct GemmCase {
  plan::RowFacts row;
  moe::Op op = moe::Op::plain;
  std::int64_t rows = 0;     // of the matrix; gate_up: gate and up together
  std::int64_t columns = 0;  // K
  std::vector<int> tokens_per_expert;
  std::uint64_t seed = 1;
  Convention convention = Convention::model_opt;
  bool large = false;  // a sample of the output is compared
  // W4A4, tiled: experts have one input scale, and token records hold rows, which the kernel gathers.
  bool by_row = false;
};

std::string_view op_name(moe::Op op);  // "gate_up"
std::string op_of(const GemmCase& test);

// bits_exact: whether this machine's arithmetic is known exactly (simulator, Hopper).
Result run_gemm_case(kernels::Machine& machine, const GemmCase& test, bool bits_exact);

// What the row writes for this case, zeros where a slot has no token: for the comparison of two machines.
// Throws.
std::vector<std::uint8_t> gemm_output(kernels::Machine& machine, const GemmCase& test);

}  // namespace fourfold::verify
