// The __global__ functions, as templates over the row: what a launch file instantiates for its chip.
#pragma once

#include "kernels/device/cuda/cta.h"
#include "kernels/launch/cuda_rows.h"
#include "kernels/moe_few/rows.h"
#include "kernels/moe_gemm/moe_gemm.h"
#include "kernels/moe_gemm/rows.h"
#include "kernels/moe_stream/moe_stream.h"
#include "kernels/moe_stream/rows.h"

namespace fourfold::kernels {

template <class Row>
FOURFOLD_KERNEL void __launch_bounds__(Row::threads, Row::blocks_per_sm)
    stream_kernel(const __grid_constant__ moe::GemmParams params) {
  moe_stream::stream_gemm<Row>(device::CudaCta<typename Row::Arch>{}, params);
}

template <class Row>
FOURFOLD_KERNEL void __launch_bounds__(Row::threads, Row::blocks_per_sm)
    tile_kernel(const __grid_constant__ moe::GemmParams params) {
  moe_gemm::tile_gemm<Row>(device::CudaCta<typename Row::Arch>{}, params);
}

template <class Row>
FOURFOLD_KERNEL void __launch_bounds__(Row::threads, Row::blocks_per_sm)
    few_gate_up_kernel(const __grid_constant__ moe_few::FewParams few,
                       const __grid_constant__ moe::GemmParams params) {
  moe_few::few_gate_up<Row>(device::CudaCta<typename Row::Arch>{}, few, params);
}

template <class Row>
FOURFOLD_KERNEL void __launch_bounds__(Row::threads, Row::blocks_per_sm)
    few_down_kernel(const __grid_constant__ moe_few::FewParams few,
                    const __grid_constant__ moe::GemmParams params) {
  moe_few::few_down<Row>(device::CudaCta<typename Row::Arch>{}, few, params);
}

template <class Row>
CudaGemmRow stream_row() {
  return {moe_stream::row_facts<Row>(),
          [] {
            return prepare_kernel("moe_stream", stream_kernel<Row>, Row::threads,
                                  sizeof(typename Row::Storage), true);
          },
          [](const CudaLaunch& launch, const moe::GemmParams& params) {
            launch_kernel("moe_stream", stream_kernel<Row>, launch, params);
          }};
}

template <class Row>
CudaGemmRow tile_row() {
  return {moe_gemm::row_facts<Row>(),
          [] {
            return prepare_kernel("moe_gemm", tile_kernel<Row>, Row::threads, sizeof(typename Row::Storage));
          },
          [](const CudaLaunch& launch, const moe::GemmParams& params) {
            launch_kernel("moe_gemm", tile_kernel<Row>, launch, params);
          }};
}

template <class Row>
CudaFewRow few_gate_up_row() {
  return {moe_few::gate_up_facts<Row>(),
          [] {
            return prepare_kernel("moe_few_gate_up", few_gate_up_kernel<Row>, Row::threads,
                                  sizeof(moe_few::GateUpStorage<Row>));
          },
          [](const CudaLaunch& launch, const moe_few::FewParams& few, const moe::GemmParams& params) {
            launch_kernel("moe_few_gate_up", few_gate_up_kernel<Row>, launch, few, params);
          }};
}

template <class Row>
CudaFewRow few_down_row() {
  return {moe_few::down_facts<Row>(),
          [] {
            return prepare_kernel("moe_few_down", few_down_kernel<Row>, Row::threads,
                                  sizeof(moe_few::DownStorage<Row>));
          },
          [](const CudaLaunch& launch, const moe_few::FewParams& few, const moe::GemmParams& params) {
            launch_kernel("moe_few_down", few_down_kernel<Row>, launch, few, params);
          }};
}

template <class List>
void add_stream_rows(std::vector<CudaGemmRow>& rows) {
  moe::for_each_row(List{}, [&]<class Row>() { rows.push_back(stream_row<Row>()); });
}
template <class List>
void add_tile_rows(std::vector<CudaGemmRow>& rows) {
  moe::for_each_row(List{}, [&]<class Row>() { rows.push_back(tile_row<Row>()); });
}

}  // namespace fourfold::kernels
