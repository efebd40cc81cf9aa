// A dense matrix of generated rows in the proofs of its kernels: drawn, uploaded, and checked.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bf16.h"
#include "kernels/dense/dense_params.h"
#include "kernels/record/pack_dense.h"
#include "kernels/verify/inputs.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {

inline constexpr float kDenseEpsilon = 1e-6f;
inline constexpr int kBesideColumns = 32;  // of the output that belong to others

// `plain` rows, then `neurons` gate rows, then `neurons` up rows, each a matrix of its own.
struct DenseSetup {
  int plain = 0, neurons = 0, columns = 0, tokens = 0;
  float decode_factor = 1.0f;
  reference::Weights parts[3];
  std::vector<std::uint8_t> records;
  std::vector<float> row_scale, before, gate, x, norm_weight;
  std::vector<float> bias;       // of the plain rows, or none
  std::vector<Bf16> token_rows;  // as the tensor cores meet them
  int rows_of(int part) const { return part == 0 ? plain : neurons; }
  int rows() const { return plain + 2 * neurons; }
  int out_stride() const { return plain + kBesideColumns; }
};

dense::PlainOp plain_op(const StepCase& test);
// The sizes of a case, of dense_few and the like, or of a model's true shapes.
void shape_dense(StepRun& run, DenseSetup& setup);
void shape_large(StepRun& run, DenseSetup& setup, int tokens);
// Weights, tokens and what stands in the output before, of the sizes that are there.
void fill_setup(StepRun& run, DenseSetup& setup);
void make_wide_weights(StepRun& run, DenseSetup& setup, record::DenseSource source);
// What add_f32 leaves of a plain row.
float added_sum(const DenseSetup& setup, int row, int token);
dense::DenseParams upload_case(StepRun& run, const DenseSetup& setup);
// The output as the scalar reference has it, and what lies beside it untouched.
void check_case(StepRun& run, const DenseSetup& setup, const dense::DenseParams& params);

}  // namespace fourfold::verify
