// Rows made up for the tests of this room; the real ones come from the kernels.
#pragma once

#include "plan/arch.h"
#include "plan/row_facts.h"

namespace fourfold::plan {

inline RowFacts sample_prefill_row() {
  return {.kernel = "moe_gemm",
          .row = "prefill_256x128x128",
          .arch = "sm120",
          .path = "w4a4",
          .format = "nvfp4",
          .role = "prefill",
          .m = 256,
          .n = 128,
          .k = 128,
          .threads = 288,
          .math_warps = 8,
          .producer_warps = 1,
          .stages = 3,
          .parts = {{"weight records", 55'296}, {"token records", 27'648}, {"barriers", 48}, {"padding", 80}},
          .total_bytes = 83'072,
          .limit_bytes = Sm120::smem_bytes_per_block,
          .registers = 168,
          .blocks_per_sm = 1,
          .epilogue_aliases_stages = true};
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
