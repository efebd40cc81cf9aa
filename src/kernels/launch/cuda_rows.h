// The tables of compiled rows and kernels: what the launch files of a chip provide and the machine uses.
// Host-only.
#pragma once

#include <vector>

#include "kernels/launch/cuda_launch.h"
#include "kernels/moe/chips.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_combine/combine_params.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/moe_group/group_params.h"
#include "kernels/moe_route/route_params.h"
#include "kernels/moe_tokens/token_params.h"
#include "kernels/record/pack.h"
#include "kernels/record/pack_dense.h"
#include "plan/row_facts.h"

namespace fourfold::kernels {

// A row compiled for a chip.
template <class... Params>
struct CudaRow {
  plan::RowFacts facts;
  KernelFacts (*prepare)();
  void (*launch)(const CudaLaunch&, const Params&...);
};
using CudaGemmRow = CudaRow<moe::GemmParams>;
using CudaFewRow = CudaRow<moe_few::FewParams, moe::GemmParams>;

// A step kernel's row; params are those of the row, checked by size.
struct CudaStepRow {
  plan::RowFacts facts;
  std::size_t params_bytes;
  KernelFacts (*prepare)();
  void (*launch)(const CudaLaunch&, const void* params);
};

struct CudaRows {
  std::vector<CudaGemmRow> gemm;
  std::vector<CudaFewRow> few_gate_up;
  std::vector<CudaFewRow> few_down;
  std::vector<CudaStepRow> step;
};

// The rows of a chip come in parts, one translation unit each, so that builds are parallel and short.
enum class Part {
  stream_nvfp4,
  stream_mxfp4,
  stream_fp4,
  tile_mma_nvfp4,
  tile_mma_mxfp4,
  tile_fp4,
  tile_wgmma_nvfp4,  // Hopper
  tile_wgmma_mxfp4,
  stream_bf16,
  stream_fp8,
  tile_mma_bf16,
  tile_mma_fp8,
  tile_wgmma_bf16,  // Hopper
  tile_wgmma_fp8,
  step_dense,
  step_delta,
  step_attention,
  step_sampling,
  step_all_reduce,
  step_hopper,
};
template <class Chip, Part part>
void add_part(CudaRows& rows);

// The kernels without rows.
template <class Params>
using LaunchBasic = void (*)(const CudaLaunch&, const Params&);
struct BasicKernels {
  LaunchBasic<moe_route::RouteParams> route_table, route_choose, route_scan, route_place;
  LaunchBasic<moe_tokens::StageParams> stage;
  LaunchBasic<moe_tokens::QuantizeParams> quantize;
  LaunchBasic<moe_combine::CombineParams> combine_f32, combine_bf16;
  LaunchBasic<moe_group::TileParams> group_tiles;
  LaunchBasic<moe_group::ScatterParams> group_scatter;
  LaunchBasic<record::PackJob> pack_nvfp4, pack_mxfp4;
  LaunchBasic<record::DenseJob> pack_dense;
  void (*prepare)();
};
template <class Chip>
BasicKernels basic_kernels();

}  // namespace fourfold::kernels
