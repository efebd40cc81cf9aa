// The inputs of a grouped GEMM's case, host side: what the kernel is given and what the reference computes
// with.
#pragma once

#include <vector>

#include "base/bf16.h"
#include "base/e4m3.h"
#include "base/tensor_core.h"
#include "kernels/reference/dot.h"
#include "kernels/verify/inputs.h"
#include "kernels/verify/scaled.h"

namespace fourfold::verify {

struct GemmExpert {
  CheckpointMatrix matrix;  // FP4: plain, or gate
  CheckpointMatrix up;
  DenseMatrix dense;  // bf16 and fp8, likewise
  DenseMatrix dense_up;
  reference::Weights weights;
  reference::Weights up_weights;
};

// Everything of a case, host side.
struct GemmSetup {
  bool mxfp4, half_tokens, fp8_tokens, gate_up, decode, dense;
  std::vector<GemmExpert> experts;
  std::vector<GlobalScale> scale, scale_up, token_scale;
  std::vector<float> token_inverse, next_scale, next_inverse;
  std::vector<float> row_scale;  // fp8: [experts][rows]
  std::vector<float> bias;       // rows that add one: [experts][rows]
  std::vector<float> before;     // add_f32: what `out` holds
  std::vector<Bf16> tokens;
  Assignment assignment;
  // W8A8: [tokens, columns], and the factor of each token; with an input scale, which every second case has,
  // no factors.
  std::vector<E4m3> codes;
  std::vector<float> token_factor;
  int fp8_bits = tensor_core::kWgmmaFp8Bits;  // of the row's sums
  CheckpointMatrix slots;                     // W4A4: quantised tokens
  CheckpointMatrix rows;                      // by_row: the same once, by token
  reference::Weights slot_weights;
};

}  // namespace fourfold::verify
