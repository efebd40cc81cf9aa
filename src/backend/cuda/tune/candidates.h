// What could answer a question of kernel_selector.h: every row of the kernels in question, those that cannot
// with the reason.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backend/cuda/tune/kernel_selector.h"

namespace fourfold::backend::cuda {

struct Candidate {
  TunedForm form;
  std::string refusal;  // empty: it can run the op
};

// The default comes first, then what can run. Rows for other weights or roles are not among them: each of
// those is a candidate of its own questions.
std::vector<Candidate> candidates_of(const kernels::Machine& machine, const Question& question,
                                     std::size_t workspace_bytes);

}  // namespace fourfold::backend::cuda
