// Rows on a GPU: the one __global__ function, and a row's entry in the machine's table.
#pragma once

#include <vector>

#include "base/macros.h"
#include "kernels/device/cuda/cta.h"
#include "kernels/launch/cuda_rows.h"
#include "kernels/launch/row.h"

namespace fourfold::kernels {

template <class Row>
FOURFOLD_KERNEL void __launch_bounds__(Row::threads, register_blocks<Row>())
    row_kernel(const __grid_constant__ typename Row::Params params) {
  static_assert(RowFits<Row>::value);
  Row::run(device::CudaCta<typename Row::Arch>{}, params);
}

template <class Row>
constexpr bool wants_cache() {
  if constexpr (requires { Row::wants_cache; })
    return Row::wants_cache;
  else
    return false;
}

template <class Row>
CudaRow cuda_row() {
  return {kind_of<Row>(), Row::facts(), sizeof(typename Row::Params),
          [](const char* name) {
            return prepare_kernel(name, row_kernel<Row>, Row::threads, kStorageBytes<Row>,
                                  wants_cache<Row>());
          },
          [](const char* name, CudaLaunch launch, const void* params) {
            const auto& own = *static_cast<const typename Row::Params*>(params);
            launch.threads = threads_of<Row>(own);
            launch_kernel(name, row_kernel<Row>, launch, own);
          }};
}

template <class List>
void add_rows(std::vector<CudaRow>& rows) {
  moe::for_each_row(List{}, [&]<class Row>() { rows.push_back(cuda_row<Row>()); });
}

}  // namespace fourfold::kernels
