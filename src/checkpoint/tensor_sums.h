// A checksum of every tensor, over all of its bytes: whether two machines have the same weights. Reading them
// takes as long as the disk does, so what a file's tensors sum to can be kept, for as long as the file is the
// same one by its place on the disk, its size and its times.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/shard_index.h"

namespace fourfold::checkpoint {

struct SumOptions {
  std::filesystem::path kept = {};  // a folder for sums; empty: nothing is kept
  // A file that changed so short a time before it was opened may change again within one tick of its clock,
  // or have been replaced since: its sums are not kept.
  std::chrono::seconds still = std::chrono::seconds(60);
};

// XDG_CACHE_HOME/fourfold/sums, or ~/.cache/fourfold/sums; empty where there is neither.
std::filesystem::path kept_sums_folder();

class TensorSummer {
 public:
  // To be made when the checkpoint has just been opened; the checkpoint outlives it. Throws io.
  TensorSummer(const Checkpoint& checkpoint, SumOptions options);

  struct Sums {
    std::vector<std::uint64_t> tensors;  // in the order of the shards, and of the bytes in each
    std::uint64_t bytes_read = 0;        // 0: all were kept
    double seconds = 0;
    std::string not_kept;  // why new ones could not be
  };
  // On all cores. Throws io, and cancelled soon after stops() is true.
  Sums sum(const std::function<bool()>& stops) const;
  // Of one of them: "lm_head.weight in model-00002-of-00003.safetensors".
  std::string name_of(std::size_t tensor) const;

 private:
  // Device, inode, size, times of the last change of bytes and of anything; in nanoseconds.
  using Stamp = std::array<std::uint64_t, 5>;
  static Stamp stamp_of(const SafetensorsFile& shard);
  bool is_still(const Stamp& stamp) const;

  const Checkpoint& checkpoint_;
  const SumOptions options_;
  const std::chrono::system_clock::time_point opened_;
  std::vector<Stamp> stamps_;  // of each shard
};

}  // namespace fourfold::checkpoint
