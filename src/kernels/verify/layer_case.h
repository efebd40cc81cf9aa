// The proof of a whole layer: from router logits to the weighted sum, tables included, against the scalar reference.
#pragma once

#include <cstdint>

#include "kernels/launch/machine.h"
#include "kernels/moe_layer/moe_layer.h"
#include "kernels/verify/result.h"

namespace fourfold::verify {

enum class LogitKind { random, ties, one_expert_set, with_nan };

struct LayerCase {
  moe_layer::Request request;
  LogitKind logits = LogitKind::random;
  bool renormalise = true;
  std::uint64_t seed = 1;
};

Result run_layer_case(kernels::Machine& machine, const LayerCase& test, bool bits_exact);

}  // namespace fourfold::verify
