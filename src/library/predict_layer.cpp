#include "library/predict_layer.h"

#include "base/error.h"
#include "kernels/launch/work_machine.h"
#include "kernels/moe_layer/moe_layer.h"
#include "plan/kernel_time.h"

namespace fourfold::library {

std::vector<plan::KernelWork> layer_work(const kernels::Machine& machine, const moe_layer::Request& request,
                                         plan::Routing routing, const std::string& row) {
  kernels::WorkMachine counted(machine);
  moe_layer::Choice choice;
  if (!row.empty()) {
    choice.gate_up_row = choice.down_row = row;
    choice.tile_tokens = machine.facts(machine.required(kernels::RowKind::gemm, row)).n;
  }
  const moe_layer::Prepared layer =
      row.empty() ? moe_layer::prepare(counted, request) : moe_layer::prepare_with(counted, request, choice);
  // Addresses that nobody follows.
  alignas(256) static unsigned char anything[256];
  moe_layer::LayerWeights weights;
  weights.gate_up = weights.down = anything;
  const auto* scales = reinterpret_cast<const float*>(anything);
  weights.gate_up_input_scale = weights.gate_up_input_inverse = scales;
  weights.down_input_scale = weights.down_input_inverse = scales;
  moe_layer::LayerCall call;
  call.logits = reinterpret_cast<const float*>(anything);
  call.tokens = reinterpret_cast<const std::uint16_t*>(anything);
  call.out = reinterpret_cast<std::uint16_t*>(anything);
  call.workspace = reinterpret_cast<void*>(std::uintptr_t{1} << 20);
  call.workspace_bytes = layer.layout.total;
  counted.enter({.rows = request.tokens, .routing = routing});
  moe_layer::run(counted, layer, weights, call);
  return counted.work();
}

std::string why_no_layer_time(const plan::Product& product, const moe_layer::Request& request) {
  if (!plan::chip_range(product))
    return format("no clock is known for {}, and nothing of it was measured", product.name);
  if (request.activations == moe_layer::Activations::w4a4 && product.arch->cc_major != 12)
    return format("W4A4 is emulated on {}: a proof, not a way to serve", product.arch->name);
  if (request.activations == moe_layer::Activations::w4a4 && request.role == moe_layer::Role::decode)
    return "decode rows with W4A4 were never measured, and nothing of them was counted";
  return {};
}

plan::Range predict_layer_us(const plan::Product& product, const kernels::Machine& machine,
                             const moe_layer::Request& request, plan::Routing routing) {
  if (const std::string why = why_no_layer_time(product, request); !why.empty())
    fail(Code::unsupported_op, "{}", why);
  const plan::ChipRange chip = *plan::chip_range(product);
  plan::Range us;
  for (const plan::KernelWork& work : layer_work(machine, request, routing))
    us += chip.widened(plan::kernel_us(work, chip.fast), plan::kernel_us(work, chip.slow), work.weight_bytes);
  return us;
}

}  // namespace fourfold::library
