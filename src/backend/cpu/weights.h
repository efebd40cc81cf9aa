// Matrices in the CPU's packed form, with how each takes its input.
#pragma once

#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/program.h"
#include "kernels/cpu/input_rows.h"
#include "kernels/cpu/jobs.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/packed_matrix.h"

namespace fourfold::backend::cpu {

namespace kernel = fourfold::cpu;

// What a matrix makes of its input. Matrices with equal needs read one and the same rows.
struct InputNeed {
  kernel::InputForm form = kernel::InputForm::floats;
  Nvfp4InputScale scale{1, 1};  // one_plane alone
  friend bool operator==(const InputNeed& a, const InputNeed& b) {
    return a.form == b.form && a.scale.scale == b.scale.scale && a.scale.inverse == b.scale.inverse;
  }
};

struct Weight {
  kernel::PackedMatrix matrix;
  InputNeed need;

  // All of the matrix; the caller adds tokens, results and the panels it wants.
  kernel::MultiplyJob job() const;
  void multiply(const kernel::Kernels& kernels, const kernel::MultiplyJob& job) const;
};

// Packs the matrices that are multiplied with; those only looked up in (embeddings) stay where they are, and
// their place in the answer is empty. Throws bad_checkpoint and out_of_memory.
std::vector<Weight> pack_weights(const Program& program, const CpuOptions& options,
                                 const kernel::Kernels& kernels);

}  // namespace fourfold::backend::cpu
