// The plain grouped GEMM offered to other engines: rows sorted by expert times that expert's packed matrix.
// Composes the kernels as moe_layer does; owns its workspace layout; allocates nothing and can be captured in
// a graph. Which rows belong to which expert is read on the device only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/launch/machine.h"
#include "kernels/moe_group/launch_group.h"
#include "kernels/moe_layer/choose.h"
#include "kernels/moe_tokens/launch_tokens.h"

namespace fourfold::moe_group {

struct GemmRequest {
  int columns = 0;      // K
  int out_columns = 0;  // N: rows of each expert's matrix
  int experts = 0;
  moe_layer::Activations activations = moe_layer::Activations::w4a16;
  WeightFormat format = WeightFormat::nvfp4;
  moe_layer::Role role = moe_layer::Role::decode;
  int rows = 0;          // the most a run may bring
  bool f32_out = false;  // decode, w4a16 only
};

struct GemmLayout {
  std::size_t tiles, tile_count, slot_token;
  std::size_t tokens;   // staged rows, or token records
  std::size_t results;  // W4A4: slots, before they go to their rows
  std::size_t total;
};

struct PreparedGemm {
  GemmRequest request;
  moe_layer::Choice choice;
  kernels::RowHandle row = {};
  GroupRows groups = {};
  moe_tokens::TokenRows tokens = {};
  GemmLayout layout{};
};

struct GemmCall {
  const unsigned char* weights = nullptr;  // records [E][N/32][K/64], plain row order
  const float* scale = nullptr;            // [E]; null: 1
  const float* input_scale = nullptr;      // [E] W4A4
  const float* input_inverse = nullptr;    // [E] W4A4
  const std::uint16_t* tokens = nullptr;   // [rows, K] bf16
  const std::int32_t* offsets = nullptr;   // [E + 1]
  void* out = nullptr;                     // [rows, N] bf16 or f32
  void* workspace = nullptr;               // 256-byte aligned
  std::size_t workspace_bytes = 0;
  int rows = 0;  // of tokens and out; 0..request.rows
};

// Throws invalid_request for a shape no GEMM has, unsupported_op with the reason when there is no row.
PreparedGemm prepare_gemm(const kernels::Machine& machine, const GemmRequest& request);
void run_gemm(kernels::Machine& machine, const PreparedGemm& gemm, const GemmCall& call);

}  // namespace fourfold::moe_group
