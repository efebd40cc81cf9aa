// The kernels that have no rows: routing, token forms, combine, packing.
#pragma once

#include "kernels/device/cuda/cta.h"
#include "kernels/launch/cuda_rows.h"
#include "kernels/moe_combine/moe_combine.h"
#include "kernels/moe_group/moe_group.h"
#include "kernels/moe_route/moe_route.h"
#include "kernels/moe_tokens/moe_tokens.h"
#include "kernels/record/pack_dense_kernel.h"
#include "kernels/record/pack_kernel.h"

namespace fourfold::kernels {

template <class Arch>
FOURFOLD_KERNEL void __launch_bounds__(moe_route::kSmallThreads)
    route_table_kernel(const __grid_constant__ moe_route::RouteParams params) {
  moe_route::route_table(device::CudaCta<Arch>{}, params);
}
template <class Arch>
FOURFOLD_KERNEL void __launch_bounds__(moe_route::kChunkThreads)
    route_choose_kernel(const __grid_constant__ moe_route::RouteParams params) {
  moe_route::route_choose(device::CudaCta<Arch>{}, params);
}
template <class Arch>
FOURFOLD_KERNEL void __launch_bounds__(moe_route::kSmallThreads)
    route_scan_kernel(const __grid_constant__ moe_route::RouteParams params) {
  moe_route::route_scan(device::CudaCta<Arch>{}, params);
}
template <class Arch>
FOURFOLD_KERNEL void __launch_bounds__(moe_route::kChunkThreads)
    route_place_kernel(const __grid_constant__ moe_route::RouteParams params) {
  moe_route::route_place(device::CudaCta<Arch>{}, params);
}
template <class Arch>
FOURFOLD_KERNEL void __launch_bounds__(moe_tokens::kThreads)
    stage_kernel(const __grid_constant__ moe_tokens::StageParams params) {
  moe_tokens::stage_tokens(device::CudaCta<Arch>{}, params);
}
template <class Arch>
FOURFOLD_KERNEL void __launch_bounds__(moe_tokens::kThreads)
    quantize_kernel(const __grid_constant__ moe_tokens::QuantizeParams params) {
  moe_tokens::quantize_tokens(device::CudaCta<Arch>{}, params);
}
template <class Element, class Arch>
FOURFOLD_KERNEL void __launch_bounds__(moe_combine::kThreads)
    combine_kernel(const __grid_constant__ moe_combine::CombineParams params) {
  moe_combine::combine<Element>(device::CudaCta<Arch>{}, params);
}
template <class Arch>
FOURFOLD_KERNEL void __launch_bounds__(moe_group::kTileThreads)
    group_tiles_kernel(const __grid_constant__ moe_group::TileParams params) {
  moe_group::group_tiles(device::CudaCta<Arch>{}, params);
}
template <class Arch>
FOURFOLD_KERNEL void __launch_bounds__(moe_group::kScatterThreads)
    group_scatter_kernel(const __grid_constant__ moe_group::ScatterParams params) {
  moe_group::group_scatter(device::CudaCta<Arch>{}, params);
}
template <class Format, class Arch>
FOURFOLD_KERNEL void __launch_bounds__(record::kPackThreads)
    pack_records_kernel(const __grid_constant__ record::PackJob job) {
  record::pack_kernel<Format>(device::CudaCta<Arch>{}, job);
}

template <class Arch>
FOURFOLD_KERNEL void __launch_bounds__(record::kPackDenseThreads)
    pack_dense_records_kernel(const __grid_constant__ record::DenseJob job) {
  record::pack_dense_kernel(device::CudaCta<Arch>{}, job);
}

// Kernel as a template argument: the launch function is then a plain pointer, and the machine needs no nvcc.
template <class Params, void (*Kernel)(Params)>
void launch_basic(const CudaLaunch& launch, const Params& params) {
  launch_kernel("fourfold kernel", Kernel, launch, params);
}

template <class Chip>
BasicKernels define_basic_kernels() {
  using Arch = typename Chip::Own;
  using moe_combine::CombineParams;
  using moe_route::RouteParams;
  return {.route_table = launch_basic<RouteParams, route_table_kernel<Arch>>,
          .route_choose = launch_basic<RouteParams, route_choose_kernel<Arch>>,
          .route_scan = launch_basic<RouteParams, route_scan_kernel<Arch>>,
          .route_place = launch_basic<RouteParams, route_place_kernel<Arch>>,
          .stage = launch_basic<moe_tokens::StageParams, stage_kernel<Arch>>,
          .quantize = launch_basic<moe_tokens::QuantizeParams, quantize_kernel<Arch>>,
          .combine_f32 = launch_basic<CombineParams, combine_kernel<float, Arch>>,
          .combine_bf16 = launch_basic<CombineParams, combine_kernel<std::uint16_t, Arch>>,
          .group_tiles = launch_basic<moe_group::TileParams, group_tiles_kernel<Arch>>,
          .group_scatter = launch_basic<moe_group::ScatterParams, group_scatter_kernel<Arch>>,
          .pack_nvfp4 = launch_basic<record::PackJob, pack_records_kernel<record::Nvfp4, Arch>>,
          .pack_mxfp4 = launch_basic<record::PackJob, pack_records_kernel<record::Mxfp4, Arch>>,
          .pack_dense = launch_basic<record::DenseJob, pack_dense_records_kernel<Arch>>,
          .prepare = [] {
            constexpr std::size_t bytes = sizeof(moe_route::ChunkStorage);
            prepare_kernel("route_table", route_table_kernel<Arch>, moe_route::kSmallThreads,
                           sizeof(moe_route::TableStorage));
            prepare_kernel("route_choose", route_choose_kernel<Arch>, moe_route::kChunkThreads, bytes);
            prepare_kernel("route_scan", route_scan_kernel<Arch>, moe_route::kSmallThreads,
                           sizeof(moe_route::ScanStorage));
            prepare_kernel("route_place", route_place_kernel<Arch>, moe_route::kChunkThreads, bytes);
            prepare_kernel("stage_tokens", stage_kernel<Arch>, moe_tokens::kThreads, 0);
            prepare_kernel("quantize_tokens", quantize_kernel<Arch>, moe_tokens::kThreads, 0);
            prepare_kernel("combine", combine_kernel<float, Arch>, moe_combine::kThreads, 0);
            prepare_kernel("combine", combine_kernel<std::uint16_t, Arch>, moe_combine::kThreads, 0);
          }};
}

}  // namespace fourfold::kernels
