// A family that nobody released, as docs/adding-a-model.md adds one: dense layers, attention with biases and
// without norms, RoPE on half of each head, and names of its own.
#pragma once

#include "checkpoint/family.h"

namespace fourfold::checkpoint {

extern const Family kPebble;

}  // namespace fourfold::checkpoint
