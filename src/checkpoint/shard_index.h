// A model folder's tensors: one model.safetensors, or the shards that model.safetensors.index.json names,
// opened, checked against the index and found by name. Nothing in the folder is ever executed, and the index
// can name only files that lie in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace fourfold::checkpoint {

// What a model folder's weights are in: the second, or the shards that the first names.
inline constexpr const char* kShardIndexName = "model.safetensors.index.json";
inline constexpr const char* kSingleShardName = "model.safetensors";

// The files that an index names, each once. Throws bad_checkpoint, for names that lead out of the folder too.
std::vector<std::string> shard_names(const std::filesystem::path& index);

class Checkpoint {
 public:
  // Throws io or bad_checkpoint; what the index and the shards disagree on is one error.
  explicit Checkpoint(const std::filesystem::path& folder);
  // Of tensors that nobody has written: they are bound as others are, which tells what each is in the model,
  // and read as zeros. `what` stands for the folder in messages.
  Checkpoint(const std::string& what, std::vector<TensorEntry> unwritten);
  // Matrices point at it (Matrix::source).
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  std::span<const SafetensorsFile> shards() const { return shards_; }
  std::span<const TensorView> tensors() const { return tensors_; }  // by name
  const TensorView* find(std::string_view name) const;              // null when there is none
  std::uint64_t tensor_bytes() const { return tensor_bytes_; }

  // The range must be (part of) a tensor of this checkpoint. Safe to call from several threads. Throws io
  // when its file has become shorter.
  void read(std::span<const std::byte> range, std::span<std::byte> out) const;

 private:
  void sort_tensors();

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> shards_;
  std::vector<TensorEntry> unwritten_;
  std::optional<FileAddresses> unwritten_addresses_;
  std::vector<TensorView> tensors_;
  std::uint64_t tensor_bytes_ = 0;
};

}  // namespace fourfold::checkpoint
