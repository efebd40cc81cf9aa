// What each part of the simulator's rows consists of. The rows that SM120 and Hopper share run under SM120's
// limits, the wgmma rows under Hopper's.
#pragma once

#include "kernels/device/sim/cta.h"
#include "kernels/launch/sim_rows.h"
#include "kernels/moe_few/rows.h"
#include "kernels/moe_gemm/moe_gemm.h"
#include "kernels/moe_gemm/rows.h"
#include "kernels/moe_stream/moe_stream.h"
#include "kernels/moe_stream/rows.h"

namespace fourfold::kernels {

inline sim::LaunchConfig config_of(const SimQueue& queue, const char* name, int blocks, int threads,
                                   std::size_t bytes, int limit_bytes, int registers) {
  sim::LaunchConfig config;
  config.blocks = blocks;
  config.threads = threads;
  config.shared_bytes = static_cast<int>(bytes);
  config.shared_limit_bytes = limit_bytes;
  config.registers_per_thread = registers;
  config.pdl = queue.dependent;
  config.chip = queue.chip;
  config.sms = queue.sms;
  config.name = name;
  return config;
}

template <class Row>
SimGemmRow sim_stream_row() {
  return {moe_stream::row_facts<Row>(), [](SimQueue& queue, int blocks, const moe::GemmParams& params) {
            queue.last = queue.device->launch(
                config_of(queue, "moe_stream", blocks, Row::threads, sizeof(typename Row::Storage),
                          Row::Arch::smem_bytes_per_block, 0),
                [params](sim::Lane& lane) { moe_stream::stream_gemm<Row>(device::SimCta(lane), params); });
          }};
}

template <class Row>
SimGemmRow sim_tile_row() {
  return {moe_gemm::row_facts<Row>(), [](SimQueue& queue, int blocks, const moe::GemmParams& params) {
            queue.last = queue.device->launch(
                config_of(queue, "moe_gemm", blocks, Row::threads, sizeof(typename Row::Storage),
                          Row::smem_limit, Row::launch_registers),
                [params](sim::Lane& lane) { moe_gemm::tile_gemm<Row>(device::SimCta(lane), params); });
          }};
}

template <class Row>
SimFewRow sim_gate_up_row() {
  return {
      moe_few::gate_up_facts<Row>(),
      [](SimQueue& queue, int blocks, const moe_few::FewParams& few, const moe::GemmParams& params) {
        queue.last = queue.device->launch(
            config_of(queue, "moe_few_gate_up", blocks, Row::threads, sizeof(moe_few::GateUpStorage<Row>),
                      Row::Arch::smem_bytes_per_block, 0),
            [few, params](sim::Lane& lane) { moe_few::few_gate_up<Row>(device::SimCta(lane), few, params); });
      }};
}

template <class Row>
SimFewRow sim_down_row() {
  return {
      moe_few::down_facts<Row>(),
      [](SimQueue& queue, int blocks, const moe_few::FewParams& few, const moe::GemmParams& params) {
        queue.last = queue.device->launch(
            config_of(queue, "moe_few_down", blocks, Row::threads, sizeof(moe_few::DownStorage<Row>),
                      Row::Arch::smem_bytes_per_block, 0),
            [few, params](sim::Lane& lane) { moe_few::few_down<Row>(device::SimCta(lane), few, params); });
      }};
}

template <class List>
void add_sim_tiles(SimRows& rows) {
  moe::for_each_row(List{}, [&]<class Row>() { rows.gemm.push_back(sim_tile_row<Row>()); });
}
template <class List>
void add_sim_streams(SimRows& rows) {
  moe::for_each_row(List{}, [&]<class Row>() { rows.gemm.push_back(sim_stream_row<Row>()); });
}
template <class Format>
void add_sim_half_streams(SimRows& rows) {
  add_sim_streams<moe_stream::HalfRows<plan::Sm120, Format>>(rows);
  moe::for_each_row(moe_few::GateUpRows<plan::Sm120, Format>{},
                    [&]<class Row>() { rows.few_gate_up.push_back(sim_gate_up_row<Row>()); });
  moe::for_each_row(moe_few::DownRows<plan::Sm120, Format>{},
                    [&]<class Row>() { rows.few_down.push_back(sim_down_row<Row>()); });
}

template <SimPart part>
void define_sim_part(SimRows& rows) {
  using plan::Sm120;
  if constexpr (part == SimPart::stream_nvfp4) add_sim_half_streams<record::Nvfp4>(rows);
  if constexpr (part == SimPart::stream_mxfp4) add_sim_half_streams<record::Mxfp4>(rows);
  if constexpr (part == SimPart::stream_fp4) add_sim_streams<moe_stream::Fp4Rows<Sm120>>(rows);
  if constexpr (part == SimPart::tile_mma_nvfp4)
    add_sim_tiles<moe_gemm::MmaTiles<Sm120, record::Nvfp4>>(rows);
  if constexpr (part == SimPart::tile_mma_mxfp4)
    add_sim_tiles<moe_gemm::MmaTiles<Sm120, record::Mxfp4>>(rows);
  if constexpr (part == SimPart::tile_fp4) {
    add_sim_tiles<moe_gemm::Fp4Tiles<Sm120>>(rows);
    add_sim_tiles<moe_gemm::Mxfp4Tiles<Sm120>>(rows);
  }
  if constexpr (part == SimPart::tile_wgmma_nvfp4) add_sim_tiles<moe_gemm::WgmmaTiles<record::Nvfp4>>(rows);
  if constexpr (part == SimPart::tile_wgmma_mxfp4) add_sim_tiles<moe_gemm::WgmmaTiles<record::Mxfp4>>(rows);
  if constexpr (part == SimPart::stream_bf16) add_sim_streams<moe_stream::Bf16Rows<Sm120>>(rows);
  if constexpr (part == SimPart::stream_fp8) add_sim_streams<moe_stream::Fp8Rows<Sm120>>(rows);
  if constexpr (part == SimPart::tile_mma_bf16) add_sim_tiles<moe_gemm::Bf16MmaTiles<Sm120>>(rows);
  if constexpr (part == SimPart::tile_mma_fp8) add_sim_tiles<moe_gemm::Fp8MmaTiles<Sm120>>(rows);
  if constexpr (part == SimPart::tile_wgmma_bf16)
    add_sim_tiles<moe_gemm::PlainWgmmaTiles<record::Bf16Format>>(rows);
  if constexpr (part == SimPart::tile_wgmma_fp8)
    add_sim_tiles<moe_gemm::PlainWgmmaTiles<record::Fp8Format>>(rows);
}

}  // namespace fourfold::kernels
