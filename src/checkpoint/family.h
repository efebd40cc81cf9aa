// What a family of models is to the reader of checkpoints: how its config.json is read, and what its tensors
// are called. What it computes follows from the ModelConfig and the ModelWeights that these give (model/).
// docs/adding-a-model.md adds one.
#pragma once

#include <span>
#include <string_view>

#include "checkpoint/binder.h"
#include "checkpoint/config_fields.h"
#include "checkpoint/hf_config.h"

namespace fourfold::checkpoint {

struct FamilyMaker;  // write/model_shape.h

struct Family {
  std::string_view name;                          // as people write it
  std::span<const std::string_view> model_types;  // in config.json
  // Everything but what all families have (hf_config.cpp): attention, layers, RoPE, and what is refused.
  void (*read_config)(ConfigFields& from, ModelConfig& config);
  // Tensors to weights, embedding to head.
  ModelWeights (*bind)(Binder& binder);
  const FamilyMaker* maker;  // of such models, for tests and benches
};

}  // namespace fourfold::checkpoint
