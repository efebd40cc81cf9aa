// What loading is asked for, and how it went.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/weight_format.h"
#include "checkpoint/stream.h"

namespace fourfold::backend {

// What becomes, at load, of the matrices that are no routed experts and are stored in 16 bits.
using DenseWeights = std::optional<WeightFormat>;  // fp8, nvfp4; none: they stay as they are

// What quantising at load cost, by kind of matrix.
struct DenseError {
  std::string kind;  // "attention"
  std::int64_t matrix_count = 0;
  double relative_rms = 0;  // of the differences, over that of the weights
};

// How loading went.
struct LoadReport {
  std::uint64_t bytes_read = 0;     // of the checkpoint's matrices, or of their packed copy
  std::uint64_t bytes_in_rows = 0;  // of the file, for these: rows are read whole where columns are cut
  double seconds = 0;               // from the first byte asked for until the last record was in its place
  bool from_cache = false;
  std::string cache_file;  // read or written; empty: none
  std::vector<DenseError> dense;
  std::int64_t kept_count = 0;  // --dense asked for these, too, but they were quantised already
};

struct LoadOptions {
  const checkpoint::Checkpoint* checkpoint = nullptr;
  checkpoint::LoadProgress* progress = nullptr;
  DenseWeights dense = std::nullopt;
  // A folder for packed copies; needs the checkpoint. The copy of this checkpoint is used if it is there, and
  // written otherwise. One that does not fit or is damaged is an error, unless it is to be made anew.
  std::string cache = {};
  bool rebuild_cache = false;
  LoadReport* report = nullptr;
  std::size_t slot_bytes = 0;  // of the page-locked buffers; 0: what is fast. Small ones for tests
};

}  // namespace fourfold::backend
