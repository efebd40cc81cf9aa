// Where records come from: a checkpoint, which is packed on the way, or its packed copy. A source fills the
// slots of a uploads; what it was given is in its place when the uploads has finished.
#pragma once

#include <array>
#include <cstdint>

#include "backend/cuda/load/record_plan.h"
#include "checkpoint/tensor_role.h"

namespace fourfold::backend::cuda {

// What --dense quantises.
inline constexpr std::array kDenseRoles{checkpoint::TensorRole::attention, checkpoint::TensorRole::delta,
                                        checkpoint::TensorRole::shared_expert,
                                        checkpoint::TensorRole::dense_mlp, checkpoint::TensorRole::head};
// What that cost, by role. Written to packed copies as it is.
struct RoleError {
  ErrorSums sums;
  double matrix_count = 0;
};
using RoleErrors = std::array<RoleError, kDenseRoles.size()>;
static_assert(sizeof(RoleErrors) == kDenseRoles.size() * 3 * sizeof(double), "no padding");

class RecordSource {
 public:
  virtual ~RecordSource() = default;

  // A matrix in a form it is not stored in.
  virtual HeldMatrix hold_anew(const checkpoint::Matrix& matrix, WeightFormat format) = 0;
  virtual void place(const RecordRun& run) = 0;
  // bf16 rows one behind another, as they are.
  virtual void place_rows(const HeldMatrix& held, std::uint16_t* to) = 0;
  // Nothing more will be asked for.
  virtual void finish() = 0;
  // After the uploads has finished.
  virtual RoleErrors errors() const = 0;

  std::uint64_t bytes_read() const { return bytes_read_; }
  std::uint64_t bytes_in_rows() const { return bytes_in_rows_; }

 protected:
  std::uint64_t bytes_read_ = 0;
  std::uint64_t bytes_in_rows_ = 0;  // of the file, for these; see LoadReport
};

}  // namespace fourfold::backend::cuda
