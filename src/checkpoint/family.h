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

// A line each: all that is known of a folder of families/ outside of it.
#define FOURFOLD_FAMILIES(FAMILY)       \
  FAMILY(kQwen35, kQwen35Maker)         \
  FAMILY(kQwen3Next, kQwen3NextMaker)   \
  FAMILY(kQwen3Moe, kQwen3MoeMaker)     \
  FAMILY(kGlm4Moe, kGlm4MoeMaker)       \
  FAMILY(kMiniMaxM2, kMiniMaxM2Maker)   \
  FAMILY(kGptOss, kGptOssMaker)         \
  FAMILY(kDeepseekV3, kDeepseekV3Maker) \
  FAMILY(kMistral4, kMistral4Maker)

#define FOURFOLD_DECLARE(family, maker) \
  extern const Family family;           \
  extern const FamilyMaker maker;
FOURFOLD_FAMILIES(FOURFOLD_DECLARE)
#undef FOURFOLD_DECLARE

}  // namespace fourfold::checkpoint
