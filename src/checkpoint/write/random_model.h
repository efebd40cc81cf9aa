// Checkpoints of random numbers: valid in every respect, meaning nothing. For tests, and for benches at true
// sizes. The numbers are a pure function of shape, format and seed, in integer arithmetic and single
// roundings, so every machine writes the same bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "checkpoint/stream.h"
#include "checkpoint/write/model_shape.h"
#include "checkpoint/write/output_folder.h"

namespace fourfold::checkpoint {

// How releases store such models: bf16; modelopt (routed experts NVFP4 with input scales); modelopt-mixed
// (experts and head NVFP4 for 16-bit activations, the rest FP8); compressed-tensors (experts and attention
// NVFP4 with input scales); nvfp4 (every large matrix, ModelOpt's names); mxfp4 (routed experts,
// compressed-tensors' names, gpt-oss's its own). Throws invalid_request.
StorageScheme scheme_named(std::string_view name);

struct RandomModelOptions {
  ModelShape shape;
  StorageScheme scheme;
  std::uint64_t seed = 0;
  // Matrices are holes: the files have their true size and take next to no disk. Vectors and scales are
  // there, so that the checkpoint loads; every matrix is zero.
  bool sparse = false;
  std::uint64_t shard_bytes = ShardOptions{}.shard_bytes;
};

struct RandomModelSummary {
  std::uint64_t tensor_count = 0;
  std::uint64_t tensor_bytes = 0;
};

// Tensors, config.json and what describes the quantisation. Throws io. report may throw to stop the work.
RandomModelSummary write_random_model(const OutputFolder& folder, const RandomModelOptions& options,
                                      const TokenIds& ids, const LoadProgress::Report& report = {});

}  // namespace fourfold::checkpoint
