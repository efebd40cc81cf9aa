// What becomes of each tensor of a checkpoint that is quantised: copied, or cut into matrices that are stored
// anew. Used by quantize.cpp alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/shard_index.h"
#include "checkpoint/weights.h"
#include "checkpoint/write/storage_scheme.h"

namespace fourfold::checkpoint {

struct CopiedTensor {
  const TensorView* source;
  std::size_t output;
};

// A tensor, or one of the experts that it stacks, that becomes one stored matrix.
struct QuantizedPiece {
  const TensorView* source;
  const Matrix* expert;  // null: all of the tensor
  std::int64_t rows;
  std::int64_t columns;
  StoredAs stored;
  std::size_t first_output;  // of tensors_of()
};

struct QuantizePlan {
  std::vector<TensorSpec> outputs;
  std::vector<CopiedTensor> copies;
  // Pieces that share one scale (for_each_group() in weights.h).
  std::vector<std::vector<QuantizedPiece>> groups;
  std::vector<StoredModule> modules;
  std::vector<std::string> unsuited;
};

// `weights` are the checkpoint's, and must outlive the plan.
QuantizePlan plan_quantization(const Checkpoint& in, const StorageScheme& scheme,
                               const ModelWeights& weights);

}  // namespace fourfold::checkpoint
