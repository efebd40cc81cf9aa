// What a matrix is in the model: from its place in ModelWeights, which bind_model() notes in Matrix::role.
#pragma once

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

}  // namespace fourfold::checkpoint
