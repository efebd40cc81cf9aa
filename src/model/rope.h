// The frequencies of rotary position embedding, in double: plain RoPE over part of a head, and YaRN.
#pragma once

#include "backend/program.h"
#include "checkpoint/hf_config.h"

namespace fourfold::model {

// For text the three streams of MRoPE are equal, so its sections make no difference.
backend::Rope make_rope(const checkpoint::RopeConfig& config);

}  // namespace fourfold::model
