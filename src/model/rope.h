// The frequencies of rotary position embedding, in double: plain RoPE over part of a head, and YaRN.
#pragma once

#include "backend/program.h"
#include "checkpoint/hf_config.h"

namespace fourfold::model {

// For text the three streams of MRoPE are equal, so its sections make no difference.
backend::Rope make_rope(const checkpoint::RopeConfig& config);

// What latent attention multiplies the scale of its scores with: the square of YaRN's factor for
// mscale_all_dim. 1 without one.
double latent_scale_factor(const checkpoint::RopeConfig& config);

}  // namespace fourfold::model
