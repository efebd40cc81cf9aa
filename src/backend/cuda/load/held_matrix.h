// How the machine holds a matrix: as the checkpoint stores it, widened where that form has no records, or
// quantised anew (--dense). And its rows in that form, as the packing kernels read them.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/load/load_options.h"
#include "base/weight_format.h"
#include "checkpoint/matrix.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/tensor_role.h"

namespace fourfold::backend::cuda {

// Bytes of a record of 32 rows and 64 columns. This and the others below are of bf16, fp8, nvfp4 and mxfp4;
// there are no records of the backend's in other formats, and asking for them is our mistake.
std::int64_t record_bytes(WeightFormat format);

// What a matrix is multiplied as. --dense asks for the matrices `fourfold quantize --dense` would quantise,
// and changes those that are stored in 16 or 32 bits; what is quantised already stays.
WeightFormat record_format(const checkpoint::Matrix& matrix, DenseWeights dense = std::nullopt);
// Whether --dense asks for it, stored as it may be.
bool is_dense(const checkpoint::Matrix& matrix);

// Stored in a form that has no records of its own and does not fit bf16 exactly.
bool is_widened(const checkpoint::Matrix& matrix);

// Bytes of a row as the packing kernels read it.
std::size_t code_row_bytes(WeightFormat format, std::int64_t columns);
std::size_t scale_row_bytes(WeightFormat format, std::int64_t columns);

struct HeldMatrix {
  const checkpoint::Matrix* matrix = nullptr;
  WeightFormat format = WeightFormat::bf16;
  bool is_anew = false;
  std::vector<float>
      scales;  // anew: FP8 one a row; NVFP4 the global one and the largest weight it comes from

  // What a row's dot product is still to be multiplied with.
  float factor(std::int64_t row) const;
  // As held: the matrix's own, and zeros up to a whole record. A rank's part may be narrow.
  std::int64_t columns() const;
};

// In this form; anew when that is not how it is stored. Reads all of the matrix when it is.
HeldMatrix hold(const checkpoint::Matrix& matrix, WeightFormat format);

// What quantising cost: squares of the weights and of the differences.
struct ErrorSums {
  double squares = 0;
  double off_squares = 0;
};

struct FillTarget {
  std::byte* codes = nullptr;   // [count, code_row_bytes]
  std::byte* scales = nullptr;  // [count, scale_row_bytes]
};
// Rows first..first + count, held.columns() wide; rows past the matrix's end are zeros. Throws
// bad_checkpoint, naming the matrix and the place, for a weight or scale that is no number, and io for a file
// that has become shorter.
void fill_rows(const HeldMatrix& held, std::int64_t first, std::int64_t count, const FillTarget& to,
               ErrorSums* error = nullptr);

}  // namespace fourfold::backend::cuda
