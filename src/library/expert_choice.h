// --experts auto in words: experts are cut by column wherever their width can be (model::ExpertSharding), and
// what the busiest rank would read of them so and given out whole.
#pragma once

#include <string>

#include "checkpoint/hf_config.h"
#include "checkpoint/weights.h"
#include "model/shard.h"

namespace fourfold::library {

// Empty: there is nothing to choose.
std::string expert_sharding_words(const checkpoint::ModelConfig& config,
                                  const checkpoint::ModelWeights& weights, int ranks);

}  // namespace fourfold::library
