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

// Rows of a tensor that become one stored matrix.
struct QuantizedPiece {
  const TensorView* source;
  std::int64_t first_row;
  std::int64_t rows;
  std::int64_t columns;
  StoredAs stored;
  std::size_t first_output;        // of tensors_of()
  const Matrix* turned = nullptr;  // what the rows are of where the tensor holds them transposed
};

struct QuantizePlan {
  std::vector<TensorSpec> outputs;
  std::vector<CopiedTensor> copies;
  // Pieces that share one scale: kernels that multiply by gate and up (or query, key and value, or DeltaNet's
  // qkv and z) at once have one scale for all of it.
  std::vector<std::vector<QuantizedPiece>> groups;
  std::vector<StoredModule> modules;
  std::vector<std::string> unsuited;
};

// `weights` are the checkpoint's, and must outlive the plan.
QuantizePlan plan_quantization(const Checkpoint& in, const StorageScheme& scheme, std::int64_t layer_count,
                               const ModelWeights& weights);

}  // namespace fourfold::checkpoint
