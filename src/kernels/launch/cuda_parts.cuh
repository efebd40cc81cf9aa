// What each part of a chip's rows consists of; part.cu.in makes a translation unit of each.
#pragma once

#include <vector>

#include "kernels/launch/cuda_kernels.cuh"
#include "kernels/moe/chips.h"

namespace fourfold::kernels {

template <class Arch, class Format>
void add_half_stream(CudaRows& rows) {
  add_stream_rows<moe_stream::HalfRows<Arch, Format>>(rows.gemm);
  moe::for_each_row(moe_few::GateUpRows<Arch, Format>{},
                    [&]<class Row>() { rows.few_gate_up.push_back(few_gate_up_row<Row>()); });
  moe::for_each_row(moe_few::DownRows<Arch, Format>{},
                    [&]<class Row>() { rows.few_down.push_back(few_down_row<Row>()); });
}

template <class Chip, Part part>
void define_part(CudaRows& rows) {
  using Shared = typename Chip::Shared;
  if constexpr (part == Part::stream_nvfp4) add_half_stream<Shared, record::Nvfp4>(rows);
  if constexpr (part == Part::stream_mxfp4) add_half_stream<Shared, record::Mxfp4>(rows);
  if constexpr (part == Part::stream_fp4) add_stream_rows<moe_stream::Fp4Rows<Shared>>(rows.gemm);
  if constexpr (part == Part::tile_mma_nvfp4)
    add_tile_rows<moe_gemm::MmaTiles<Shared, record::Nvfp4>>(rows.gemm);
  if constexpr (part == Part::tile_mma_mxfp4)
    add_tile_rows<moe_gemm::MmaTiles<Shared, record::Mxfp4>>(rows.gemm);
  if constexpr (part == Part::tile_fp4) {
    add_tile_rows<moe_gemm::Fp4Tiles<Shared>>(rows.gemm);
    add_tile_rows<moe_gemm::Mxfp4Tiles<Shared>>(rows.gemm);
  }
  if constexpr (part == Part::tile_wgmma_nvfp4) add_tile_rows<moe_gemm::WgmmaTiles<record::Nvfp4>>(rows.gemm);
  if constexpr (part == Part::tile_wgmma_mxfp4) add_tile_rows<moe_gemm::WgmmaTiles<record::Mxfp4>>(rows.gemm);
  if constexpr (part == Part::stream_bf16) add_stream_rows<moe_stream::Bf16Rows<Shared>>(rows.gemm);
  if constexpr (part == Part::stream_fp8) add_stream_rows<moe_stream::Fp8Rows<Shared>>(rows.gemm);
  if constexpr (part == Part::tile_mma_bf16) add_tile_rows<moe_gemm::Bf16MmaTiles<Shared>>(rows.gemm);
  if constexpr (part == Part::tile_mma_fp8) add_tile_rows<moe_gemm::Fp8MmaTiles<Shared>>(rows.gemm);
  if constexpr (part == Part::tile_wgmma_bf16)
    add_tile_rows<moe_gemm::PlainWgmmaTiles<record::Bf16Format>>(rows.gemm);
  if constexpr (part == Part::tile_wgmma_fp8)
    add_tile_rows<moe_gemm::PlainWgmmaTiles<record::Fp8Format>>(rows.gemm);
}

}  // namespace fourfold::kernels
