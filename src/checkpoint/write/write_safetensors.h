// Writes a checkpoint: safetensors files of bounded size and the index that names them. All names, types and
// shapes are known before the first byte, so headers come first, tensors are written in any order and by any
// thread, and a tensor that is not written is a hole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/tensor.h"
#include "checkpoint/write/output_file.h"

namespace fourfold::checkpoint {

struct TensorSpec {
  std::string name;
  DType dtype = DType::u8;
  Shape shape;

  std::uint64_t bytes() const;
};

struct ShardOptions {
  // A file is closed when the next tensor would take it beyond this; a larger tensor has a file of its own.
  std::uint64_t shard_bytes = 5'000'000'000;
  // Holes are meant: do not ask whether the disk has room for them.
  bool sparse = false;
};

class CheckpointWriter {
 public:
  // Writes the headers. Throws io, also when the disk has too little room for all of it; invalid_request for
  // two tensors of one name.
  CheckpointWriter(const std::filesystem::path& folder, std::vector<TensorSpec> tensors,
                   const ShardOptions& options = {});

  std::span<const TensorSpec> tensors() const { return tensors_; }
  std::uint64_t tensor_bytes() const { return tensor_bytes_; }

  // Part of tensor number `tensor` (in the order they were given), from byte `offset` of it.
  void write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes);

  // Files on the disk, and the index when there are several. Nothing may be written afterwards.
  void finish();

 private:
  struct Place {
    std::size_t shard = 0;
    std::uint64_t offset = 0;  // in the file
  };

  std::vector<std::vector<std::size_t>> plan_shards(std::uint64_t shard_bytes) const;
  void start_shard(std::size_t shard, std::vector<std::size_t> members, const std::string& name);
  void write_index() const;

  std::filesystem::path folder_;
  std::vector<TensorSpec> tensors_;
  std::vector<Place> places_;  // by tensor
  std::vector<OutputFile> shards_;
  std::uint64_t tensor_bytes_ = 0;
};

}  // namespace fourfold::checkpoint
