#include "kernels/moe_layer/options.h"

#include <algorithm>

#include "base/format.h"
#include "kernels/moe/loop_columns.h"
#include "kernels/moe/paths.h"
#include "kernels/moe_few/few_params.h"

namespace fourfold::moe_layer {
namespace {

using kernels::Machine;
using kernels::RowKind;
using plan::RowFacts;

const RowFacts* find_facts(const Machine& machine, RowKind kind, std::string_view row) {
  const kernels::RowHandle handle = machine.find(kind, row);
  return handle.found() ? &machine.rows(kind)[static_cast<std::size_t>(handle.index)] : nullptr;
}

// Why a row would not give this request's bits, or not run at all; empty: it would.
std::string refusal(const RowFacts& row, const Request& request, int columns) {
  if (moe_route::is_any_rule_row(row.row))
    return "the router's rule decides on it, in place of the row without it";
  if (row.format != format_name(request.format))
    return format("for {} weights; these are {}", row.format, format_name(request.format));
  if (row.clamps != request.clamped)
    return row.clamps ? "for experts with biases and a clamped SwiGLU"
                      : "without biases and a clamped SwiGLU";
  const bool fp4_tokens = row.path == moe::W4a4::name;
  const bool fp8_tokens = moe::takes_fp8(row.path);
  if (fp4_tokens != (request.activations == Activations::w4a4) ||
      fp8_tokens != (request.activations == Activations::w8a8))
    return format("other bits: multiplies {} tokens", fp4_tokens ? "FP4" : fp8_tokens ? "FP8" : "16-bit");
  if (const record::BitOrder order = moe::order_of_path(row.path); order != request.order())
    return format("for weights packed for {}; these are not",
                  order == record::BitOrder::fp4 ? "w4a4" : "w4a16");
  const char* role = request.role == Role::decode ? "decode" : "prefill";
  if (row.role != role) return format("other bits: sums as {} does, this is {}", row.role, role);
  if (row.kernel == "moe_stream" && !moe::loop_takes(columns, row))
    return format("{} columns are no multiple of its {}{}", columns, row.k,
                  moe::is_ragged(row.clamps, row.k)
                      ? format(", and the rest is less than {}", moe::kRaggedColumns)
                      : "");
  return {};
}

Choice refused(std::string_view gate_up_row, std::string_view down_row, std::string why) {
  Choice choice;
  choice.gate_up_row = gate_up_row;
  choice.down_row = down_row;
  choice.refusal = std::move(why);
  return choice;
}

Choice few_of(const Request& request, const RowFacts& gate_up, const RowFacts& down) {
  Choice choice = few_choice(request);
  choice.gate_up_row = gate_up.row;
  choice.down_row = down.row;
  // few_choice() looked at the GEMM1 that it would take.
  if (const std::string why = gate_up_refusal(gate_up.kernel, request); choice.ok() && !why.empty())
    choice.refusal = why;
  for (const RowFacts* row : {&gate_up, &down})
    if (const std::string why = refusal(*row, request, 0); choice.ok() && !why.empty()) choice.refusal = why;
  return choice;
}

Choice tiled_of(const Request& request, const RowFacts& gate_up, const RowFacts& down, int down_columns) {
  if (gate_up.n != down.n)
    return refused(gate_up.row, down.row, format("tiles of {} and of {} tokens", gate_up.n, down.n));
  std::string why = refusal(gate_up, request, request.shape.hidden);
  if (why.empty()) why = refusal(down, request, down_columns);
  Choice choice = refused(gate_up.row, down.row, std::move(why));
  choice.tile_tokens = gate_up.n;
  return choice;
}

}  // namespace

Choice choice_of(const Machine& machine, const Request& request, std::string_view gate_up_row,
                 std::string_view down_row) {
  if (down_row.empty()) down_row = gate_up_row;
  const RowFacts* gate_up = find_facts(machine, RowKind::few_gate_up, gate_up_row);
  const RowFacts* down = find_facts(machine, RowKind::few_down, down_row);
  if (gate_up != nullptr && down != nullptr) return few_of(request, *gate_up, *down);
  gate_up = find_facts(machine, RowKind::gemm, gate_up_row);
  down = find_facts(machine, RowKind::gemm, down_row);
  if (gate_up == nullptr || down == nullptr)
    return refused(
        gate_up_row, down_row,
        format("{} has no such {}", machine.description(), gate_up_row == down_row ? "row" : "pair of rows"));
  return tiled_of(request, *gate_up, *down, request.shape.intermediate);
}

Choice gemm_choice_of(const Machine& machine, const Request& request, std::string_view row) {
  const RowFacts* facts = find_facts(machine, RowKind::gemm, row);
  if (facts == nullptr) return refused(row, row, format("{} has no such row", machine.description()));
  return tiled_of(request, *facts, *facts, request.shape.hidden);
}

std::vector<Choice> all_choices(const Machine& machine, const Request& request) {
  std::vector<Choice> choices;
  if (request.role == Role::decode)
    for (const RowFacts& gate_up : machine.rows(RowKind::few_gate_up))
      for (const RowFacts& down : machine.rows(RowKind::few_down))
        if (refusal(gate_up, request, 0).empty() && down.path == gate_up.path &&
            down.format == gate_up.format && down.clamps == gate_up.clamps &&
            !moe_route::is_any_rule_row(down.row))
          choices.push_back(few_of(request, gate_up, down));
  for (const RowFacts& row : machine.rows(RowKind::gemm)) {
    if (!refusal(row, request, row.k).empty()) continue;  // for other weights, tokens or roles
    // The second GEMM has its own K: of the rows as wide, the longest loop that divides it.
    const RowFacts* down = &row;
    if (row.kernel == "moe_stream")
      for (const RowFacts& other : machine.rows(RowKind::gemm))
        if (other.n == row.n && other.kernel == row.kernel && refusal(other, request, other.k).empty() &&
            !moe::loop_takes(request.shape.intermediate, *down) &&
            moe::loop_takes(request.shape.intermediate, other))
          down = &other;
    choices.push_back(tiled_of(request, row, *down, request.shape.intermediate));
  }
  return choices;
}

std::vector<Choice> all_gemm_choices(const Machine& machine, const Request& request) {
  std::vector<Choice> choices;
  for (const RowFacts& row : machine.rows(RowKind::gemm))
    if (refusal(row, request, row.k).empty())
      choices.push_back(tiled_of(request, row, row, request.shape.hidden));
  return choices;
}

}  // namespace fourfold::moe_layer
