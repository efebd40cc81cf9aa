// A 16-bit checkpoint to NVFP4 (and FP8 for what the scheme says), one matrix piece at a time: memory stays
// at a few megabytes a thread whatever the model's size. What it cost is measured afterwards from the files
// themselves, by the code every loader uses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/hf_config.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/stream.h"
#include "checkpoint/write/output_folder.h"
#include "checkpoint/write/storage_scheme.h"

namespace fourfold::checkpoint {

struct MatrixError {
  std::string name;  // as stored in the new checkpoint
  TensorRole role = TensorRole::other;
  MatrixFormat format = MatrixFormat::nvfp4;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  double relative_rms = 0;  // of the differences, over that of the weights
  double largest = 0;       // difference, over the largest weight
};

struct QuantizeReport {
  std::vector<MatrixError> matrices;  // that were quantised, in the order a token meets them
  std::vector<std::string> unsuited;  // whose columns are no multiple of 16: kept as they are
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes_after = 0;
};

// Writes tensors, config.json, hf_quant_config.json where ModelOpt has one, and copies tokenizer and other
// text files. Throws unsupported_model when `in` is quantised already, bad_checkpoint with tensor and place
// for a weight that is NaN or infinite, io. `report` may throw to stop the work; it counts the bytes of `in`
// twice, as they are read again to measure the error.
//
// Activations are not calibrated, so no input scales are written: the result is W4A16.
QuantizeReport quantize_checkpoint(const Checkpoint& in, const ModelConfig& config,
                                   const StorageScheme& scheme, const OutputFolder& out,
                                   const LoadProgress::Report& report = {});

}  // namespace fourfold::checkpoint
