// The tables of all instruction sets; which of them exist is the build's knowledge, and kernels.cpp's.
#pragma once

#include "kernels/cpu/kernels.h"

namespace fourfold::cpu {

extern const Kernels kPlainKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kAmxKernels;
extern const Kernels kNeonKernels;

}  // namespace fourfold::cpu
