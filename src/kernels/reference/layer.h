// The meaning of the MoE layer in scalar loops, bit for bit: routing, both GEMMs, the activation between
// them, the sum over experts. The specification every kernel path is held against.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bf16.h"
#include "kernels/moe_route/route_rule.h"
#include "kernels/reference/dot.h"

namespace fourfold::reference {

struct Expert {
  Weights gate, up, down;
  float gate_scale = 1.0f, up_scale = 1.0f, down_scale = 1.0f;
  // W4A4 only.
  float gate_up_input_scale = 1.0f, gate_up_input_inverse = 1.0f, down_input_scale = 1.0f,
        down_input_inverse = 1.0f;
  std::vector<float> gate_bias, up_bias, down_bias;  // of each row; empty: none
};

struct LayerModel {
  std::int64_t hidden = 0, intermediate = 0;
  int top_k = 0;
  bool w4a4 = false;
  Order order = Order::decode;  // of the dot products; prefill also rounds each expert's result to bf16
  std::vector<Expert> experts;
  bool clamped = false;  // the activation is the clamped SwiGLU, with these numbers
  float glu_alpha = 0.0f, glu_limit = 0.0f;
};

struct Route {
  std::vector<int> experts;  // by rank
  std::vector<float> weights;
};

// The k largest (NaN last, ties to the lower index) and their weights, as the rule says; its bias on the
// host.
Route route(const float* logits, int experts, int top_k, const moe_route::RouteRule& rule);

// One output row: bits as the kernels must give them, and the value and error bound in double.
struct OutputRow {
  std::vector<Bf16> bits;
  std::vector<double> value;
  std::vector<double> bound;
};
OutputRow layer_row(const LayerModel& model, const moe_route::RouteRule& rule, const float* logits,
                    const Bf16* token);

}  // namespace fourfold::reference
