// Qwen3.5, Qwen3-Next and Qwen3-MoE: one reader, since each is the one before with parts left out.
#pragma once

#include "checkpoint/binder.h"
#include "checkpoint/config_fields.h"

namespace fourfold::checkpoint::qwen {

void read_config(ConfigFields& from, ModelConfig& config);
ModelWeights bind(Binder& binder);

}  // namespace fourfold::checkpoint::qwen
