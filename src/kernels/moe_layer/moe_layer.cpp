#include "kernels/moe_layer/moe_layer.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "kernels/moe/launch_gemm.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_combine/launch_combine.h"
#include "kernels/moe_few/launch_few.h"
#include "kernels/record/record.h"

namespace fourfold::moe_layer {
namespace {

using kernels::Machine;
using kernels::RowKind;

constexpr std::size_t kAlignment = 256;

bool half_tokens(const Request& request) { return request.activations == Activations::w4a16; }
// The tiled 16-bit kernels read staged rows; the streaming one reads tokens as they are.
bool stages_tokens(const Request& request) { return half_tokens(request) && request.role == Role::prefill; }
// Where choosing experts is a kernel of its own, its launch has room for the tokens.
bool stages_while_routing(const Request& request) {
  return stages_tokens(request) && !moe_route::in_one_block(request.tokens, request.shape.experts);
}

std::size_t token_record_bytes(std::size_t slots, int columns) {
  return slots / record::kTokens * static_cast<std::size_t>(columns / record::kColumns) *
         record::kTokenRecordBytes;
}

struct Cursor {
  std::size_t at = 0;
  std::size_t take(std::size_t bytes) {
    const std::size_t start = at;
    at += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return start;
  }
};

template <class T>
T* place(const LayerCall& call, std::size_t offset) {
  return reinterpret_cast<T*>(static_cast<unsigned char*>(call.workspace) + offset);
}

moe::RouteTables tables_of(const WorkspaceLayout& layout, const LayerCall& call) {
  return {place<std::int32_t>(call, layout.pair_expert), place<float>(call, layout.pair_weight),
          place<std::int32_t>(call, layout.pair_slot),   place<std::int32_t>(call, layout.slot_token),
          place<float>(call, layout.slot_weight),        place<moe::TokenTile>(call, layout.tiles),
          place<std::int32_t>(call, layout.tile_count)};
}

void require_call(const Prepared& layer, const LayerWeights& weights, const LayerCall& call) {
  const auto need = [](const void* pointer, const char* what) {
    if (pointer == nullptr) fail(Code::invalid_request, "{} is a null pointer", what);
  };
  need(weights.gate_up, "the packed gate/up weights");
  need(weights.down, "the packed down weights");
  need(call.logits, "the router logits");
  need(call.records != nullptr ? static_cast<const void*>(call.records) : call.tokens, "the tokens");
  need(call.residual != nullptr ? static_cast<const void*>(call.residual) : call.out, "the output");
  need(call.workspace, "the workspace");
  const Shape& shape = layer.request.shape;
  if (const std::string refused = moe_route::refusal_of(call.rule, shape.experts, shape.top_k);
      !refused.empty())
    throw Error(Code::invalid_request, refused);
  if (layer.request.clamped ? !(weights.glu_limit > 0)
                            : weights.gate_up_bias != nullptr || weights.down_bias != nullptr)
    fail(Code::invalid_request,
         layer.request.clamped
             ? "the limit of the clamped SwiGLU must be above 0"
             : "biases of experts are for layers that were prepared for them (Request::clamped)");
  if (call.shared.weights != nullptr && (!layer.choice.few || call.residual == nullptr))
    fail(Code::invalid_request, "a shared expert goes along with the few-token path and a residual only");
  if (!half_tokens(layer.request)) {
    need(weights.gate_up_input_scale, "the gate/up input scales");
    need(weights.gate_up_input_inverse, "the reciprocal gate/up input scales");
    need(weights.down_input_scale, "the down input scales");
    need(weights.down_input_inverse, "the reciprocal down input scales");
  }
  if (call.records != nullptr && (half_tokens(layer.request) || layer.request.role != Role::prefill))
    fail(Code::invalid_request, "token records are for prompts in w4a4; other rows read 16-bit tokens");
  if (call.joined.rows != nullptr && (layer.request.role != Role::prefill || call.residual == nullptr))
    fail(Code::invalid_request, "rows are joined to prompts and a residual only");
  if (call.next_norm.weight != nullptr &&
      (layer.choice.few || !layer.combine_norm.found() || call.residual == nullptr))
    fail(Code::invalid_request, "the next norm goes along with generated rows of the general path only");
  if (call.workspace_bytes < layer.layout.total)
    fail(Code::invalid_request, "the workspace has {} bytes; {} tokens need {}",
         with_commas(static_cast<long long>(call.workspace_bytes)), layer.request.tokens,
         with_commas(static_cast<long long>(layer.layout.total)));
  if (reinterpret_cast<std::uintptr_t>(call.workspace) % kAlignment != 0)
    fail(Code::invalid_request, "the workspace must be aligned to {} bytes", kAlignment);
}

moe_tokens::StageParams stage_params(const Prepared& layer, const LayerCall& call) {
  return {call.tokens, place<std::uint16_t>(call, layer.layout.tokens),
          static_cast<std::int64_t>(layer.request.tokens) * layer.request.shape.hidden / 32};
}

moe::GemmParams gate_up_params(const Prepared& layer, const LayerWeights& weights, const LayerCall& call) {
  const Shape& shape = layer.request.shape;
  const moe::RouteTables tables = tables_of(layer.layout, call);
  moe::GemmParams params{};
  params.weights = weights.gate_up;
  const bool own_tokens = stages_tokens(layer.request) || !half_tokens(layer.request);
  const bool is_given = stages_tokens(layer.request) && call.staged != nullptr;
  params.tokens = call.records != nullptr ? call.records
                  : is_given              ? reinterpret_cast<const unsigned char*>(call.staged)
                  : own_tokens            ? place<unsigned char>(call, layer.layout.tokens)
                                          : reinterpret_cast<const unsigned char*>(call.tokens);
  params.tiles = tables.tiles;
  params.tile_count = tables.tile_count;
  params.slot_token = half_tokens(layer.request) || call.records != nullptr ? tables.slot_token : nullptr;
  params.scale = weights.gate_scale;
  params.scale_up = weights.up_scale;
  params.row_scale = weights.gate_up_row_scale;
  params.bias = weights.gate_up_bias;
  params.glu_alpha = weights.glu_alpha;
  params.glu_limit = weights.glu_limit;
  params.token_scale = half_tokens(layer.request) ? nullptr : weights.gate_up_input_scale;
  params.next_inverse_scale = weights.down_input_inverse;
  params.out = place<void>(call, layer.layout.intermediate);
  params.op = moe::Op::gate_up;
  params.strips = 2 * shape.intermediate / record::kRows;
  params.records = shape.hidden / record::kColumns;
  params.out_columns = shape.intermediate;
  return params;
}

moe::GemmParams down_params(const Prepared& layer, const LayerWeights& weights, const LayerCall& call) {
  const Shape& shape = layer.request.shape;
  const moe::RouteTables tables = tables_of(layer.layout, call);
  moe::GemmParams params{};
  params.weights = weights.down;
  params.tokens = place<unsigned char>(call, layer.layout.intermediate);
  params.tiles = tables.tiles;
  params.tile_count = tables.tile_count;
  params.slot_weight = tables.slot_weight;
  params.scale = weights.down_scale;
  params.row_scale = weights.down_row_scale;
  params.bias = weights.down_bias;
  params.token_scale = half_tokens(layer.request) ? nullptr : weights.down_input_scale;
  params.out = layer.choice.few ? static_cast<void*>(call.out) : place<void>(call, layer.layout.rows);
  params.op = moe::Op::down;
  params.strips = shape.hidden / record::kRows;
  params.records = shape.intermediate / record::kColumns;
  params.out_columns = shape.hidden;
  params.tables_are_older = true;
  return params;
}

void run_few(Machine& machine, const Prepared& layer, const LayerWeights& weights, const LayerCall& call) {
  const moe_few::FewParams few{
      call.logits, layer.request.tokens, layer.request.shape.experts, layer.request.shape.top_k,
      call.rule,   call.residual,        call.logits_stride,          call.shared};
  const bool any_rule = moe_route::needs_any_rule(call.rule);
  moe_few::launch_gate_up(machine, any_rule ? layer.any_rule_gate_up : layer.gate_up,
                          {few, gate_up_params(layer, weights, call)});
  moe_few::launch_down(machine, any_rule ? layer.any_rule_down : layer.down,
                       {few, down_params(layer, weights, call)});
}

void prepare_tokens(Machine& machine, const Prepared& layer, const LayerWeights& weights,
                    const LayerCall& call) {
  const Shape& shape = layer.request.shape;
  if (stages_tokens(layer.request)) {
    if (!stages_while_routing(layer.request) && call.staged == nullptr)
      moe_tokens::launch_stage(machine, layer.tokens, stage_params(layer, call));
  } else if (!half_tokens(layer.request) && call.records == nullptr) {
    const moe::RouteTables tables = tables_of(layer.layout, call);
    moe_tokens::launch_quantize(
        machine, layer.tokens,
        {call.tokens, tables.tiles, tables.tile_count, tables.slot_token, weights.gate_up_input_inverse,
         place<unsigned char>(call, layer.layout.tokens), shape.hidden / record::kColumns});
  }
}

}  // namespace

WorkspaceLayout workspace_layout(const Request& request, const Choice& choice) {
  const Shape& shape = request.shape;
  const auto pairs = static_cast<std::size_t>(request.tokens) * static_cast<std::size_t>(shape.top_k);
  const auto slots =
      choice.few ? pairs * moe::kSlotGroup
                 : static_cast<std::size_t>(moe::slot_limit(request.tokens, shape.top_k, shape.experts));
  const bool half = half_tokens(request);
  const auto hidden = static_cast<std::size_t>(shape.hidden),
             inner = static_cast<std::size_t>(shape.intermediate);
  Cursor cursor;
  WorkspaceLayout layout{};
  if (!choice.few) {
    const bool small = request.tokens <= moe_route::kSmallTokens;
    const auto experts = static_cast<std::size_t>(shape.experts);
    const auto chunks = static_cast<std::size_t>(moe_route::chunk_count(request.tokens));
    layout.pair_expert = cursor.take(pairs * 4);
    layout.pair_weight = cursor.take(pairs * 4);
    layout.pair_slot = cursor.take(pairs * 4);
    layout.slot_token = cursor.take(slots * 4);
    layout.slot_weight = cursor.take(slots * 4);
    layout.tiles = cursor.take(sizeof(moe::TokenTile) *
                               static_cast<std::size_t>(moe::tile_limit(request.tokens, shape.top_k,
                                                                        shape.experts, choice.tile_tokens)));
    layout.tile_count = cursor.take(4);
    layout.chunk_counts = cursor.take(small ? 0 : chunks * experts * 4);
    layout.expert_counts = cursor.take(small ? 0 : experts * 4);
    layout.tokens =
        cursor.take(!half                    ? token_record_bytes(slots, shape.hidden)
                    : stages_tokens(request) ? static_cast<std::size_t>(request.tokens) * hidden * 2
                                             : 0);
    layout.rows = cursor.take(slots * hidden * (request.role == Role::decode ? 4 : 2));
  }
  layout.intermediate = cursor.take(half ? slots * inner * 2 : token_record_bytes(slots, shape.intermediate));
  layout.total = cursor.at;
  return layout;
}

Prepared prepare(const Machine& machine, const Request& request) {
  const Choice choice = choose(machine.arch(), request);
  if (!choice.ok()) throw Error(Code::unsupported_op, choice.refusal);
  return prepare_with(machine, request, choice);
}

Prepared prepare_with(const Machine& machine, const Request& request, const Choice& choice) {
  require_shape(request);
  Prepared layer{.request = request, .choice = choice};
  layer.gate_up = machine.required(choice.few ? RowKind::few_gate_up : RowKind::gemm, choice.gate_up_row);
  layer.down = machine.required(choice.few ? RowKind::few_down : RowKind::gemm, choice.down_row);
  if (choice.few) {
    layer.any_rule_gate_up =
        machine.required(RowKind::few_gate_up, moe_route::any_rule_name(choice.gate_up_row));
    layer.any_rule_down = machine.required(RowKind::few_down, moe_route::any_rule_name(choice.down_row));
  } else {
    layer.route = moe_route::find_route_rows(machine);
    layer.tokens = moe_tokens::find_token_rows(machine);
    layer.combine = moe_combine::find_combine(machine, request.role == Role::decode);
    if (request.role == Role::decode) layer.combine_norm = moe_combine::find_combine_norm(machine);
  }
  layer.layout = workspace_layout(request, choice);
  return layer;
}

moe_route::RouteParams routing(const Prepared& layer, const LayerCall& call) {
  moe_route::RouteParams params{};
  params.logits = call.logits;
  params.tables = tables_of(layer.layout, call);
  const bool small = layer.request.tokens <= moe_route::kSmallTokens;
  params.chunk_counts = small ? nullptr : place<std::int32_t>(call, layer.layout.chunk_counts);
  params.expert_counts = small ? nullptr : place<std::int32_t>(call, layer.layout.expert_counts);
  params.tokens = layer.request.tokens;
  params.experts = layer.request.shape.experts;
  params.top_k = layer.request.shape.top_k;
  params.tile_tokens = layer.choice.tile_tokens;
  params.rule = call.rule;
  params.logits_stride = call.logits_stride;
  if (stages_while_routing(layer.request) && call.staged == nullptr) params.stage = stage_params(layer, call);
  return params;
}

void run(Machine& machine, const Prepared& layer, const LayerWeights& weights, const LayerCall& call) {
  if (layer.request.tokens == 0) return;
  require_call(layer, weights, call);
  if (layer.choice.few) return run_few(machine, layer, weights, call);
  if (!call.is_routed) moe_route::launch_route(machine, layer.route, routing(layer, call));
  prepare_tokens(machine, layer, weights, call);
  moe::launch_gemm(machine, layer.gate_up, gate_up_params(layer, weights, call));
  moe::launch_gemm(machine, layer.down, down_params(layer, weights, call));
  const moe_combine::CombineParams combine{place<void>(call, layer.layout.rows),
                                           tables_of(layer.layout, call).pair_slot,
                                           call.out,
                                           layer.request.tokens,
                                           layer.request.shape.top_k,
                                           layer.request.shape.hidden,
                                           call.residual,
                                           call.joined};
  if (call.next_norm.weight != nullptr)
    moe_combine::launch_combine_norm(machine, layer.combine_norm, {combine, call.next_norm});
  else
    moe_combine::launch_combine(machine, layer.combine, combine);
}

}  // namespace fourfold::moe_layer
