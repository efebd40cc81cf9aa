// --experts auto: whether ranks have a part of every routed expert or some of them whole, by what the busiest
// of them would read.
#pragma once

#include <string>

#include "checkpoint/hf_config.h"
#include "checkpoint/weights.h"
#include "model/shard.h"

namespace fourfold::library {

struct ExpertChoice {
  model::ExpertSharding sharding = model::ExpertSharding::columns;
  std::string why;  // with its numbers; empty: there is nothing to choose
};

ExpertChoice choose_expert_sharding(const checkpoint::ModelConfig& config,
                                    const checkpoint::ModelWeights& weights, int ranks);

}  // namespace fourfold::library
