// What a matrix is in the model. bind_model() notes it in Matrix::role, from the matrix's place in
// ModelWeights.
#pragma once

#include <cstdint>
#include <string_view>

namespace fourfold::checkpoint {

enum class TensorRole {
  routed_expert,
  shared_expert,
  dense_mlp,
  attention,
  delta,  // qkv, z and out of DeltaNet; its small a and b projections are `other`
  head,
  router,
  other  // embedding, gates, what joins MTP's inputs: as they are in every known release
};
std::string_view role_name(TensorRole role);
// Told from a name alone, for those who write checkpoints. `name` as in the file:
// "model.layers.0.mlp.experts.7.up_proj.weight", or "...experts.gate_up_proj".
TensorRole role_of(std::string_view name);
// Of a model of so many layers: one behind the last is GLM's MTP layer, and `other`.
TensorRole role_of(std::string_view name, std::int64_t layer_count);

}  // namespace fourfold::checkpoint
