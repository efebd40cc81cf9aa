// What the CPU's kernels can run, asked before anything is loaded.
#pragma once

#include "backend/program.h"

namespace fourfold::backend::cpu {

// Throws unsupported_op, naming what they cannot.
void require_known(const Program& program);

}  // namespace fourfold::backend::cpu
