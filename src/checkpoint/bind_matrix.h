// One module's tensors -> one Matrix: the rule that tells formats apart, and the one place where the scale
// conventions of ModelOpt and compressed-tensors are told apart, by the names of their tensors. Used by the
// binder alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/matrix.h"
#include "checkpoint/tensor_pool.h"

namespace fourfold::checkpoint {

struct MatrixShape {
  std::int64_t rows;
  std::int64_t columns;
};

// `module` is the name before ".weight". Problems go to the pool, and the result then means nothing.
Matrix bind_matrix(TensorPool& pool, const std::string& module, MatrixShape shape);

// A tensor [count, rows, columns] of 16- or 32-bit numbers under its own name, as one matrix of count * rows
// rows.
Matrix bind_stacked(TensorPool& pool, const std::string& name, std::int64_t count, MatrixShape shape);

// The matrices of such a tensor one by one, `parts` of this shape for each expert: gate and up, or down. It
// may also be FP8 as transformers stacks it, and Mistral's releases: NAME_scale_inv, which multiplies in
// spite of its name, has a number for each expert or each part, and NAME_activation_scale, if it is there,
// one for inputs. Empty after a problem.
std::vector<Matrix> bind_experts(TensorPool& pool, const std::string& name, std::int64_t count,
                                 std::int64_t parts, MatrixShape shape);

// MXFP4 as gpt-oss is released: NAME_blocks, U8 [count, rows, columns / 32, 16], and NAME_scales, U8
// [count, rows, columns / 32], as one matrix of count * rows rows.
Matrix bind_mxfp4_blocks(TensorPool& pool, const std::string& name, std::int64_t count, MatrixShape shape);

// A small tensor of exactly this shape, widened to f32. NaN and infinities are noted.
std::vector<float> bind_vector(TensorPool& pool, const std::string& name, const Shape& shape);

// One number, shape [] or [1]; empty when the tensor is not there.
std::optional<float> bind_optional_scalar(TensorPool& pool, const std::string& name);

}  // namespace fourfold::checkpoint
