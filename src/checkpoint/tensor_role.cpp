#include "checkpoint/tensor_role.h"

namespace fourfold::checkpoint {

std::string_view role_name(TensorRole role) {
  switch (role) {
    case TensorRole::routed_expert: return "routed experts";
    case TensorRole::shared_expert: return "shared experts";
    case TensorRole::dense_mlp: return "dense MLPs";
    case TensorRole::attention: return "attention";
    case TensorRole::delta: return "DeltaNet";
    case TensorRole::head: return "head";
    case TensorRole::router: return "routers";
    case TensorRole::other: return "other";
  }
  return "unknown";
}

}  // namespace fourfold::checkpoint
