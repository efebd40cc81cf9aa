// Binds the tensors of a checkpoint to the weights of a model. The format of each matrix is decided by the
// tensors present. Whatever is missing, misshapen or left over is one error that lists it.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/hf_config.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/tensor_pool.h"
#include "checkpoint/weights.h"

namespace fourfold::checkpoint {

struct BoundModel {
  ModelWeights weights;
  std::vector<std::string> skipped;        // tensors that are known and not used, by pattern and count
  std::vector<TensorPool::Folded> folded;  // what was stored as a product (NVFP4_AWQ), multiplied out
};

// Reads scalar and vector tensors, and of the matrices those with factors for their columns alone. Throws
// bad_checkpoint. MTP is bound when its tensors are there, whatever the config announces.
BoundModel bind_model(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace fourfold::checkpoint
