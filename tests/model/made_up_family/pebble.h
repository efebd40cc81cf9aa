// A family that nobody released, as docs/adding-a-model.md adds one: attention with biases and without norms,
// RoPE on half of each head, the first layers dense, then experts behind a router of sigmoids beside a shared
// one. It computes what GLM-4 MoE does, under names of its own.
#pragma once

#include "checkpoint/family.h"

namespace fourfold::checkpoint {

extern const Family kPebble;

}  // namespace fourfold::checkpoint
