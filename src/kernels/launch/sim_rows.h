// The tables of rows as the simulator runs them: the same lists as on the chips, the same source.
#pragma once

#include <vector>

#include "kernels/moe/gemm_params.h"
#include "kernels/moe_few/few_params.h"
#include "plan/row_facts.h"
#include "sim/device.h"

namespace fourfold::kernels {

// Where a launch goes and what is remembered of it.
struct SimQueue {
  sim::Device* device = nullptr;
  int persistent_blocks = 3;  // grid of the kernels that walk a work list
  bool dependent = true;
  const plan::ArchFacts* chip = nullptr;  // whose SMs they are; null: every block has room
  int sms = 0;
  sim::LaunchStats last;  // of the newest launch
};

template <class... Params>
struct SimRow {
  plan::RowFacts facts;
  void (*launch)(SimQueue&, int blocks, const Params&...);
};
using SimGemmRow = SimRow<moe::GemmParams>;
using SimFewRow = SimRow<moe_few::FewParams, moe::GemmParams>;

// A step kernel's row; params are those of the row, checked by size.
struct SimStepRow {
  plan::RowFacts facts;
  std::size_t params_bytes;
  void (*launch)(SimQueue&, int blocks, const void* params);
};

struct SimRows {
  std::vector<SimGemmRow> gemm;
  std::vector<SimFewRow> few_gate_up;
  std::vector<SimFewRow> few_down;
  std::vector<SimStepRow> step;
};

// One translation unit each (sim_part.cpp.in); names as in cuda_rows.h.
enum class SimPart {
  stream_nvfp4,
  stream_mxfp4,
  stream_fp4,
  tile_mma_nvfp4,
  tile_mma_mxfp4,
  tile_fp4,
  tile_wgmma_nvfp4,
  tile_wgmma_mxfp4,
  stream_bf16,
  stream_fp8,
  tile_mma_bf16,
  tile_mma_fp8,
  tile_wgmma_bf16,
  tile_wgmma_fp8,
  step_dense,
  step_delta,
  step_attention,
  step_sampling,
  step_all_reduce,
  step_hopper,
};
template <SimPart part>
void add_sim_part(SimRows& rows);

}  // namespace fourfold::kernels
