#include "kernels/moe_group/grouped_gemm.h"

#include "base/error.h"
#include "base/format.h"
#include "kernels/moe/launch_gemm.h"
#include "kernels/record/record.h"

namespace fourfold::moe_group {
namespace {

using moe_layer::Activations;
using moe_layer::Role;

constexpr std::size_t kAlignment = 256;
// Place of a token row in 16-byte chunks is a 32-bit number in the streaming kernel.
constexpr long long kChunksMax = 1ll << 32;

bool half_tokens(const GemmRequest& request) { return request.activations == Activations::w4a16; }
bool stages_tokens(const GemmRequest& request) {
  return half_tokens(request) && request.role == Role::prefill;
}

void require_request(const GemmRequest& request) {
  if (request.columns <= 0 || request.columns % record::kColumns != 0 || request.out_columns <= 0 ||
      request.out_columns % record::kColumns != 0)
    fail(Code::invalid_request, "K = {} and N = {} must be positive multiples of 64", request.columns,
         request.out_columns);
  if (request.out_columns > 1 << 20)
    fail(Code::invalid_request, "N = {} must be at most 1,048,576", request.out_columns);
  if (request.rows < 0) fail(Code::invalid_request, "{} rows", request.rows);
  if (static_cast<long long>(request.rows) * (request.columns / 8) > kChunksMax)
    fail(Code::invalid_request, "{} rows of K = {} exceed {} bytes; split the batch", request.rows,
         request.columns, with_commas(16 * kChunksMax));
}

moe_layer::Request as_layer(const GemmRequest& request) {
  return {{request.columns, request.columns, request.experts, 1},
          request.activations,
          request.format,
          request.role,
          request.rows};
}

GemmLayout layout_of(const GemmRequest& request, int tile_tokens) {
  std::size_t at = 0;
  const auto take = [&](std::size_t bytes) {
    const std::size_t start = at;
    at += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return start;
  };
  const bool half = half_tokens(request);
  const auto rows = static_cast<std::size_t>(request.rows),
             columns = static_cast<std::size_t>(request.columns);
  const auto slots = static_cast<std::size_t>(moe::slot_limit(request.rows, 1, request.experts));
  GemmLayout layout{};
  layout.tiles = take(sizeof(moe::TokenTile) * static_cast<std::size_t>(moe::tile_limit(
                                                   request.rows, 1, request.experts, tile_tokens)));
  layout.tile_count = take(4);
  layout.slot_token = take(half ? 0 : slots * 4);
  layout.tokens =
      take(!half ? slots / record::kTokens * (columns / record::kColumns) * record::kTokenRecordBytes
           : stages_tokens(request) ? rows * columns * 2
                                    : 0);
  layout.results = take(half ? 0 : slots * static_cast<std::size_t>(request.out_columns) * 2);
  layout.total = at;
  return layout;
}

// What is wrong with a call that has rows.
void require_call(const PreparedGemm& gemm, const GemmCall& call) {
  const auto need = [](const void* pointer, const char* what) {
    if (pointer == nullptr) fail(Code::invalid_request, "{} is a null pointer", what);
  };
  need(call.weights, "the packed weights");
  need(call.tokens, "the tokens");
  need(call.offsets, "the offsets");
  need(call.out, "the output");
  need(call.workspace, "the workspace");
  if (!half_tokens(gemm.request)) {
    need(call.input_scale, "the input scales");
    need(call.input_inverse, "the reciprocal input scales");
  }
  if (call.workspace_bytes < gemm.layout.total)
    fail(Code::invalid_request, "the workspace has {} bytes; {} rows need {}",
         with_commas(static_cast<long long>(call.workspace_bytes)), gemm.request.rows,
         with_commas(static_cast<long long>(gemm.layout.total)));
  if (reinterpret_cast<std::uintptr_t>(call.workspace) % kAlignment != 0)
    fail(Code::invalid_request, "the workspace must be aligned to {} bytes", kAlignment);
}

}  // namespace

PreparedGemm prepare_gemm(const kernels::Machine& machine, const GemmRequest& request) {
  require_request(request);
  PreparedGemm gemm{.request = request, .choice = moe_layer::choose_gemm(machine.arch(), as_layer(request))};
  if (!gemm.choice.ok()) throw Error(Code::unsupported_op, gemm.choice.refusal);
  if (request.f32_out && (request.role != Role::decode || !half_tokens(request)))
    fail(Code::unsupported_op,
         "f32 results exist for w4a16 in the decode role; the tiled kernels store bf16");
  gemm.row = machine.required(kernels::RowKind::gemm, gemm.choice.gate_up_row);
  gemm.groups = find_group_rows(machine);
  gemm.tokens = moe_tokens::find_token_rows(machine);
  // Work items are counted in 32 bits.
  const long long tiles = moe::tile_limit(request.rows, 1, request.experts, gemm.choice.tile_tokens);
  const long long items = tiles * (request.out_columns / record::kRows);
  if (items > INT32_MAX)
    fail(Code::invalid_request, "{} rows of N = {} make up to {} work items, at most {} fit; split the batch",
         request.rows, request.out_columns, with_commas(items), with_commas(INT32_MAX));
  gemm.layout = layout_of(request, gemm.choice.tile_tokens);
  return gemm;
}

void run_gemm(kernels::Machine& machine, const PreparedGemm& gemm, const GemmCall& call) {
  if (call.rows < 0 || call.rows > gemm.request.rows)
    fail(Code::invalid_request, "{} rows; the GEMM was prepared for 0 to {}", call.rows, gemm.request.rows);
  if (call.rows == 0) return;
  require_call(gemm, call);
  const GemmRequest& request = gemm.request;
  const bool half = half_tokens(request);
  auto* const base = static_cast<unsigned char*>(call.workspace);
  auto* const tiles = reinterpret_cast<moe::TokenTile*>(base + gemm.layout.tiles);
  auto* const tile_count = reinterpret_cast<std::int32_t*>(base + gemm.layout.tile_count);
  auto* const slot_token = half ? nullptr : reinterpret_cast<std::int32_t*>(base + gemm.layout.slot_token);
  unsigned char* const own_tokens = base + gemm.layout.tokens;

  launch_tiles(
      machine, gemm.groups,
      {call.offsets, tiles, tile_count, slot_token, request.experts, call.rows, gemm.choice.tile_tokens});
  if (stages_tokens(request))
    moe_tokens::launch_stage(machine, gemm.tokens,
                             {call.tokens, reinterpret_cast<std::uint16_t*>(own_tokens),
                              static_cast<std::int64_t>(call.rows) * request.columns / 32});
  if (!half)
    moe_tokens::launch_quantize(machine, gemm.tokens,
                                {call.tokens, tiles, tile_count, slot_token, call.input_inverse, own_tokens,
                                 request.columns / record::kColumns});

  moe::GemmParams params{};
  params.weights = call.weights;
  params.tokens =
      half && !stages_tokens(request) ? reinterpret_cast<const unsigned char*>(call.tokens) : own_tokens;
  params.tiles = tiles;
  params.tile_count = tile_count;
  params.scale = call.scale;
  params.token_scale = half ? nullptr : call.input_scale;
  params.out = half ? call.out : static_cast<void*>(base + gemm.layout.results);
  // The down form of the streaming rows keeps f32; without slot weights it is the plain product.
  params.op = request.f32_out ? moe::Op::down : moe::Op::plain;
  params.strips = request.out_columns / record::kRows;
  params.records = request.columns / record::kColumns;
  params.out_columns = request.out_columns;
  moe::launch_gemm(machine, gemm.row, params);
  if (!half)
    launch_scatter(machine, gemm.groups,
                   {base + gemm.layout.results, static_cast<unsigned char*>(call.out), tiles, tile_count,
                    slot_token, 2 * request.out_columns});
}

}  // namespace fourfold::moe_group
