// The table of rows compiled for a chip: what its generated translation units provide (cmake/kernels.cmake)
// and the machine uses. Host-only.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/launch/cuda_launch.h"
#include "kernels/launch/row_kind.h"
#include "plan/row_facts.h"

namespace fourfold::kernels {

// params are those of the row, checked by size. `name` is for messages.
struct CudaRow {
  RowKind kind;
  plan::RowFacts facts;
  std::size_t params_bytes;
  KernelFacts (*prepare)(const char* name);
  void (*launch)(const char* name, CudaLaunch launch, const void* params);
};

template <class Chip>
std::vector<CudaRow> cuda_rows();

}  // namespace fourfold::kernels
