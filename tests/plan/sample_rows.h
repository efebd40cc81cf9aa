// Rows made up for the tests of this room; the real ones come from the kernels.
#pragma once

#include "plan/arch.h"
#include "plan/row_facts.h"

namespace fourfold::plan {

inline RowFacts sample_prefill_row() {
  RowFacts row("moe_gemm", "prefill_256x128x128", "sm120", "w4a4", "nvfp4", "prefill");
  row.m = 256;
  row.n = 128;
  row.k = 128;
  row.threads = 288;
  row.math_warps = 8;
  row.producer_warps = 1;
  row.stages = 3;
  row.parts = {{"weight records", 55'296}, {"token records", 27'648}, {"barriers", 48}, {"padding", 80}};
  row.total_bytes = 83'072;
  row.limit_bytes = Sm120::smem_bytes_per_block;
  row.registers = 168;
  row.blocks_per_sm = 1;
  row.epilogue_aliases_stages = true;
  return row;
}

inline RowFacts sample_decode_row() {
  RowFacts row = sample_prefill_row();
  row.row = "decode_128x8x256";
  row.role = "decode";
  row.m = 128;
  row.n = 8;
  row.k = 256;
  row.threads = 160;
  row.math_warps = 4;
  row.stages = 2;
  row.parts = {{"weight records", 36'864},
               {"token records", 2'304},
               {"epilogue", 2'048},
               {"barriers", 32},
               {"padding", 96}};
  row.total_bytes = 41'344;
  row.limit_bytes = 50'176;
  row.blocks_per_sm = 2;
  row.epilogue_aliases_stages = false;
  return row;
}

inline RefusedShape sample_refused_shape() {
  return {.kernel = "moe_gemm",
          .m = 256,
          .n = 256,
          .k = 512,
          .path = "w4a4",
          .format = "nvfp4",
          .arch = "sm120",
          .needs_bytes = 147'584,
          .limit_bytes = Sm120::smem_bytes_per_block,
          .reason = "two stages do not fit"};
}

}  // namespace fourfold::plan
