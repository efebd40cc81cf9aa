// The MoE layer through the C ABI.
#include "base/format.h"
#include "kernels/c_api/door.h"
#include "kernels/moe_layer/moe_layer.h"

// The names of the rows are kept apart: a run copies the rest, and a copy without text needs no host memory.
struct fourfold_layer {
  fourfold_context* context;
  fourfold::moe_layer::Prepared prepared;
  fourfold_choice choice;
};

namespace fourfold::c_api {
namespace {

void require_device_memory(const fourfold_layer_weights& weights, const fourfold_layer_call& call) {
  require_aligned(weights.gate_up, 16, "the packed gate/up weights");
  require_aligned(weights.down, 16, "the packed down weights");
  require_aligned(weights.gate_scale, 4, "gate_scale");
  require_aligned(weights.up_scale, 4, "up_scale");
  require_aligned(weights.down_scale, 4, "down_scale");
  require_aligned(weights.gate_up_input_scale, 4, "gate_up_input_scale");
  require_aligned(weights.gate_up_input_inverse, 4, "gate_up_input_inverse");
  require_aligned(weights.down_input_scale, 4, "down_input_scale");
  require_aligned(weights.down_input_inverse, 4, "down_input_inverse");
  require_aligned(call.logits, 4, "the logits");
  require_aligned(call.choice_bias, 4, "choice_bias");
  require_aligned(call.input, 16, "the input");
  require_aligned(call.output, 16, "the output");
  if (call.input != nullptr && call.input == call.output)
    fail(Code::invalid_request, "input and output are the same memory; the layer does not work in place");
}

moe_layer::LayerWeights weights_of(const fourfold_layer_weights& weights) {
  return {static_cast<const unsigned char*>(weights.gate_up),
          static_cast<const unsigned char*>(weights.down),
          weights.gate_scale,
          weights.up_scale,
          weights.down_scale,
          weights.gate_up_input_scale,
          weights.gate_up_input_inverse,
          weights.down_input_scale,
          weights.down_input_inverse};
}

moe_route::RouteRule rule_of(const fourfold_layer_call& call) {
  if (call.score != FOURFOLD_SOFTMAX && call.score != FOURFOLD_SIGMOID)
    fail(Code::invalid_request, "score is {}; FOURFOLD_SOFTMAX is {}, FOURFOLD_SIGMOID is {}", call.score,
         int{FOURFOLD_SOFTMAX}, int{FOURFOLD_SIGMOID});
  moe_route::RouteRule rule{.renormalise = call.keep_softmax == 0, .sigmoid = call.score == FOURFOLD_SIGMOID};
  if (call.groups != 0) rule.groups = call.groups, rule.groups_kept = call.groups_kept;
  rule.choice_bias = call.choice_bias;
  if (call.weight_scale != 0.0f) rule.scale = call.weight_scale;
  return rule;
}

moe_layer::LayerCall call_of(const fourfold_layer_call& call) {
  return {call.logits,
          static_cast<const std::uint16_t*>(call.input),
          static_cast<std::uint16_t*>(call.output),
          call.workspace,
          call.workspace_bytes,
          rule_of(call)};
}

void run_layer(fourfold_layer& layer, const fourfold_layer_weights& weights,
               const fourfold_layer_call& call) {
  if (call.tokens < 0 || call.tokens > layer.prepared.request.tokens)
    fail(Code::invalid_request, "{} tokens; the layer was prepared for 0 to {}", call.tokens,
         layer.prepared.request.tokens);
  if (call.tokens == 0) return;
  require_device_memory(weights, call);
  if (call.workspace_bytes < layer.prepared.layout.total)
    fail(Code::invalid_request, "the workspace has {} bytes; a layer prepared for {} tokens needs {}",
         with_commas(static_cast<long long>(call.workspace_bytes)), layer.prepared.request.tokens,
         with_commas(static_cast<long long>(layer.prepared.layout.total)));
  // Fewer tokens than prepared: the same kernels and the same places in the workspace, all of them large
  // enough.
  moe_layer::Prepared now = layer.prepared;
  now.request.tokens = call.tokens;
  const OnDevice scope(*layer.context);
  moe_layer::run(*layer.context->machine, now, weights_of(weights), call_of(call));
}

}  // namespace
}  // namespace fourfold::c_api

using namespace fourfold;

extern "C" {

fourfold_status fourfold_layer_prepare(fourfold_context* context, const fourfold_layer_options* options,
                                       fourfold_layer** layer) {
  return c_api::enter([&] {
    fourfold_context& own = c_api::required(context, "the context");
    fourfold_layer*& out = c_api::required(layer, "the place for the layer");
    const auto asked = c_api::read_options(options, "fourfold_layer_options");
    moe_layer::Prepared prepared = moe_layer::prepare(*own.machine, c_api::request_of(asked));
    const std::string notice =
        c_api::require_native(own, prepared.choice, asked.activations, asked.allow_emulated);
    const fourfold_choice choice = c_api::answer_of(prepared.choice, notice);
    prepared.choice.gate_up_row = prepared.choice.down_row = std::string();
    out = new fourfold_layer{&own, std::move(prepared), choice};
  });
}

void fourfold_layer_release(fourfold_layer* layer) { delete layer; }

fourfold_status fourfold_layer_workspace_bytes(const fourfold_layer* layer, size_t* bytes) {
  return c_api::enter([&] {
    c_api::required(bytes, "the place for the size") =
        c_api::required(layer, "the layer").prepared.layout.total;
  });
}

fourfold_status fourfold_layer_choice(const fourfold_layer* layer, fourfold_choice* choice) {
  return c_api::enter([&] {
    c_api::write_answer(choice, c_api::required(layer, "the layer").choice, "fourfold_choice",
                        c_api::kFirstChoiceBytes);
  });
}

fourfold_status fourfold_layer_run(fourfold_layer* layer, const fourfold_layer_weights* weights,
                                   const fourfold_layer_call* call) {
  return c_api::enter([&] {
    c_api::run_layer(c_api::required(layer, "the layer"),
                     c_api::read_options(weights, "fourfold_layer_weights"),
                     c_api::read_options(call, "fourfold_layer_call", c_api::kFirstCallBytes));
  });
}

}  // extern "C"
