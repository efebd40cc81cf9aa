// The MoE layer: from router logits and tokens to the weighted sum of the chosen experts. Composes the
// kernels; owns the workspace layout; allocates nothing and can be captured in a graph.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/launch/machine.h"
#include "kernels/moe_combine/combine_params.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/moe_layer/choose.h"
#include "kernels/moe_route/launch_route.h"
#include "kernels/moe_tokens/launch_tokens.h"

namespace fourfold::moe_layer {

// Packed experts and their global scales, on the machine. Input scales are for W4A4.
struct LayerWeights {
  const unsigned char* gate_up = nullptr;        // records [E][2I/32][H/64], gate_up row order
  const unsigned char* down = nullptr;           // records [E][H/32][I/64], plain row order
  const float* gate_scale = nullptr;             // [E]; null: 1
  const float* up_scale = nullptr;               // [E]
  const float* down_scale = nullptr;             // [E]
  const float* gate_up_input_scale = nullptr;    // [E]
  const float* gate_up_input_inverse = nullptr;  // [E]
  const float* down_input_scale = nullptr;       // [E]
  const float* down_input_inverse = nullptr;     // [E]
  const float* gate_up_row_scale = nullptr;      // bf16, fp8: [E][I gate rows, I up rows]; null: 1
  const float* down_row_scale = nullptr;         // bf16, fp8: [E][H]
  // Request::clamped alone: biases, null: none; and the numbers of the clamped SwiGLU.
  const float* gate_up_bias = nullptr;  // [E][I gate rows, I up rows]
  const float* down_bias = nullptr;     // [E][H]
  float glu_alpha = 0;
  float glu_limit = 0;
};

struct LayerCall {
  const float* logits = nullptr;          // [tokens, E] f32
  const std::uint16_t* tokens = nullptr;  // [tokens, H] bf16
  std::uint16_t* out = nullptr;           // [tokens, H] bf16
  void* workspace = nullptr;              // workspace_bytes, 256-byte aligned
  std::size_t workspace_bytes = 0;
  moe_route::RouteRule rule = {};
  // [tokens, H] f32, the residual stream: the result is added to it, unrounded, and out is not used.
  float* residual = nullptr;
  int logits_stride = 0;  // from one token's logits to the next's; 0: E
  // The few-token path alone (Choice::few): the shared expert's second matrix goes along.
  moe_few::SharedDown shared = {};
  // Prompts: the tokens in staged order, where the caller has them; the tiled 16-bit kernels read these then.
  const std::uint16_t* staged = nullptr;
  // W4A4 prompts: token records of the tokens' rows, [tokens / 8][H / 64], where all experts have the input
  // scale that the caller quantised them with; GEMM1 gathers them, and `tokens` is not read.
  const unsigned char* records = nullptr;
  moe_combine::JoinedRows joined = {};  // prompts with a residual
  bool is_routed = false;               // the tables are there: another kernel made them by routing()
  // Generated rows of the general path, with a residual: its rows behind the sum, normed for the next layer.
  // May be `tokens`, which GEMM1 alone reads.
  moe_combine::CombineNorm next_norm = {};
};

// Byte offsets into the workspace; what a path does not need has size zero.
struct WorkspaceLayout {
  std::size_t pair_expert, pair_weight, pair_slot, slot_token, slot_weight, tiles, tile_count, chunk_counts,
      expert_counts;
  std::size_t tokens;        // staged rows, or token records of slots
  std::size_t intermediate;  // bf16 slots, or token records
  std::size_t rows;          // results per slot
  std::size_t total;
};

// A layer ready to run with a fixed token count on a machine.
struct Prepared {
  Request request;
  Choice choice;
  kernels::RowHandle gate_up = {}, down = {};
  kernels::RowHandle any_rule_gate_up = {}, any_rule_down = {};  // of the few-token path: needs_any_rule()
  // Of the general path.
  moe_route::RouteRows route = {};
  moe_tokens::TokenRows tokens = {};
  kernels::RowHandle combine = {}, combine_norm = {};  // the second of generated rows alone
  WorkspaceLayout layout{};
};

// Throws unsupported_op with the reason when there is no row.
Prepared prepare(const kernels::Machine& machine, const Request& request);
// The same with rows of the caller's choosing (benches, tuning, proofs). Both rows must share N and role.
Prepared prepare_with(const kernels::Machine& machine, const Request& request, const Choice& choice);
WorkspaceLayout workspace_layout(const Request& request, const Choice& choice);

// What makes the tables of a call in its workspace.
moe_route::RouteParams routing(const Prepared& layer, const LayerCall& call);
void run(kernels::Machine& machine, const Prepared& layer, const LayerWeights& weights,
         const LayerCall& call);

}  // namespace fourfold::moe_layer
