// What one of N GPUs holds of a model, by size alone: matrices have their rows and columns, and no rank's
// data. For plans; nothing can be computed with it.
#pragma once

#include <string>

#include "checkpoint/hf_config.h"
#include "checkpoint/weights.h"

namespace fourfold::cli {

struct RankModel {
  checkpoint::ModelConfig config;
  checkpoint::ModelWeights weights;
};

enum class ExpertCut { columns, experts };
ExpertCut parse_expert_cut(const std::string& text);  // tp or ep

// Heads, key and value heads, vocabulary and MLP widths are cut; embedding, router, norms and the MTP layer's
// combining matrix are whole; a KV head is on several ranks where there are more ranks than KV heads. Throws
// invalid_request with every size that cannot be cut so.
RankModel rank_sizes(const checkpoint::ModelConfig& config, const checkpoint::ModelWeights& weights,
                     int ranks, ExpertCut experts);

}  // namespace fourfold::cli
