// The proof of a whole layer: from router logits to the weighted sum, tables included, against the scalar
// reference.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/launch/machine.h"
#include "kernels/moe_layer/moe_layer.h"
#include "kernels/verify/inputs.h"
#include "kernels/verify/result.h"

namespace fourfold::verify {

enum class LogitKind { random, ties, one_expert_set, with_nan };

// Weights of one shape, format and role that several large cases share; made by the first that needs them,
// from a seed of their own, so that they do not depend on which one that is.
class LayerWeightsOnce;
std::shared_ptr<LayerWeightsOnce> share_weights(std::uint64_t seed);

struct LayerCase {
  moe_layer::Request request;
  LogitKind logits = LogitKind::random;
  bool renormalise = true;
  bool few = false;  // by the two-kernel path, whatever choose() says
  std::uint64_t seed = 1;
  Routing routing = Routing::softmax;
  std::shared_ptr<LayerWeightsOnce> weights = nullptr;  // none: of its own
  int checked_tokens = 0;                               // how many rows of the output are compared; 0: all
};
moe_layer::Choice choice_of(const plan::ArchFacts& arch, const LayerCase& test);

// "moe_few_gate_up ... + moe_few_down ...", or the one row both GEMMs use.
std::string rows_of(const moe_layer::Choice& choice);
// "few w4a16 nvfp4 ties": what the layer is asked for, on any chip.
std::string op_of(const LayerCase& test, const moe_layer::Choice& choice);

Result run_layer_case(kernels::Machine& machine, const LayerCase& test, bool bits_exact);

}  // namespace fourfold::verify
