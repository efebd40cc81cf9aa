// Step kernels on a GPU: the __global__ function of a row.
#pragma once

#include "kernels/device/cuda/cta.h"
#include "kernels/launch/cuda_rows.h"
#include "kernels/launch/step_kernel.h"

namespace fourfold::kernels {

template <class Row>
FOURFOLD_KERNEL void __launch_bounds__(Row::threads, register_blocks<Row>())
    step_kernel(const __grid_constant__ typename Row::Params params) {
  static_assert(StepFits<Row>::value);
  Row::run(device::CudaCta<typename Row::Arch>{}, params);
}

template <class Row>
CudaStepRow step_row() {
  return {Row::facts(), sizeof(typename Row::Params),
          [] { return prepare_kernel("step kernel", step_kernel<Row>, Row::threads, kStorageBytes<Row>); },
          [](const CudaLaunch& launch, const void* params) {
            launch_kernel("step kernel", step_kernel<Row>, launch,
                          *static_cast<const typename Row::Params*>(params));
          }};
}

template <class List>
void add_step_rows(std::vector<CudaStepRow>& rows) {
  moe::for_each_row(List{}, [&]<class Row>() { rows.push_back(step_row<Row>()); });
}

}  // namespace fourfold::kernels
