// One decoder layer as ops: a mixer (attention, latent attention or gated DeltaNet) and an MLP (experts or
// dense), each behind a norm and in front of an all-reduce. Used by forward.cpp for the main layers and the
// MTP layer alike.
#pragma once

#include <string>

#include "model/builder.h"

namespace fourfold::model {

class LayerBuilder {
 public:
  using ValueId = backend::ValueId;

  // first_expert: number of the first expert that the weights have, of config's expert_count.
  LayerBuilder(Builder& builder, const checkpoint::ModelConfig& config, backend::RopeId rope,
               std::int64_t first_expert)
      : b_(builder), config_(config), rope_(rope), first_expert_(first_expert) {}

  // x -> x + mixer(norm(x)) -> that + mlp(norm(that)). `prefix` ends in a dot; `window` is of attention.
  ValueId layer(const std::string& prefix, ValueId x, const checkpoint::LayerWeights& weights,
                std::int64_t window = 0);

 private:
  ValueId attention(const std::string& prefix, ValueId x, const checkpoint::AttentionWeights& weights,
                    std::int64_t window);
  ValueId latent(const std::string& prefix, ValueId x, const checkpoint::LatentWeights& weights);
  ValueId delta(const std::string& prefix, ValueId x, const checkpoint::DeltaWeights& weights);
  ValueId experts(const std::string& prefix, ValueId x, const checkpoint::MoeWeights& weights);
  ValueId head_norm_rope(const std::string& name, ValueId x, const checkpoint::Vector& norm,
                         std::int64_t head_count, std::int64_t head_stride);
  ValueId norm_all_heads(const std::string& name, ValueId x, const checkpoint::Vector& norm);

  Builder& b_;
  const checkpoint::ModelConfig& config_;
  backend::RopeId rope_;
  std::int64_t first_expert_;
};

}  // namespace fourfold::model
