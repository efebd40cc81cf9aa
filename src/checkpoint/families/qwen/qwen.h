// Qwen3.5, Qwen3-Next and Qwen3-MoE: one reader, since each is the one before with parts left out.
#pragma once

#include "checkpoint/binder.h"
#include "checkpoint/config_fields.h"
#include "checkpoint/family.h"

namespace fourfold::checkpoint {

extern const Family kQwen35, kQwen3Next, kQwen3Moe;                      // tensors.cpp
extern const FamilyMaker kQwen35Maker, kQwen3NextMaker, kQwen3MoeMaker;  // make.cpp

namespace qwen {

void read_config(ConfigFields& from, ModelConfig& config);
ModelWeights bind(Binder& binder);

}  // namespace qwen
}  // namespace fourfold::checkpoint
