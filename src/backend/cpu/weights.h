// Matrices in the CPU's packed form, with how each takes its input.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/program.h"
#include "checkpoint/load_matrix.h"
#include "kernels/cpu/input_rows.h"
#include "kernels/cpu/jobs.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/packed_matrix.h"

namespace fourfold::backend::cpu {

namespace kernel = fourfold::cpu;

// What a matrix makes of its input. Matrices with equal needs read one and the same rows.
struct InputNeed {
  kernel::InputForm form = kernel::InputForm::floats;
  Nvfp4InputScale scale{1, 1};  // one plane alone
  friend bool operator==(const InputNeed&, const InputNeed&) = default;
};

struct Weight {
  kernel::PackedMatrix matrix;  // empty when nothing is multiplied with it
  InputNeed need;
  checkpoint::LoadedMatrix table;  // as it was stored; empty when nothing is looked up in it (embeddings)
  std::vector<Weight> heads;       // a matrix [out, in] each, in bf16 or f32; empty unless for HeadLinear

  // All of the matrix; the caller adds tokens, results and the panels it wants.
  kernel::MultiplyJob job() const;
  void multiply(const kernel::Kernels& kernels, const kernel::MultiplyJob& job) const;
};

// Packs the matrices that are multiplied with and keeps those that are looked up in, and adds to the notices
// which matrices take more memory than in the file. Throws bad_checkpoint and out_of_memory.
std::vector<Weight> pack_weights(const Program& program, const CpuOptions& options,
                                 const kernel::Kernels& kernels, std::vector<std::string>& notices);

}  // namespace fourfold::backend::cpu
