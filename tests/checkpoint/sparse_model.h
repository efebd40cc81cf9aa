// A checkpoint of true size made of holes: real headers, the few scalars that must not be zero, and no data.
#pragma once

#include <algorithm>

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {

class SparseShards {
 public:
  SparseShards(const TempFolder& folder, int shard_count)
      : folder_(folder), shards_(static_cast<std::size_t>(shard_count)) {}

  void add(int shard, const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape) {
    shards_[static_cast<std::size_t>(shard)].push_back({name, dtype, std::move(shape)});
  }

  // ModelOpt NVFP4: codes, block scales and the matrix's scale.
  void add_nvfp4(int shard, const std::string& module, std::int64_t rows, std::int64_t columns) {
    add(shard, module + ".weight_scale_2", "F32", {});
    add(shard, module + ".input_scale", "F32", {});
    add(shard, module + ".weight", "U8", {rows, columns / 2});
    add(shard, module + ".weight_scale", "F8_E4M3", {rows, columns / 16});
  }

  // Gives the bytes of all tensors.
  std::uint64_t write() {
    std::uint64_t total = 0;
    JsonWriter index;
    index.begin_object().key("weight_map").begin_object();
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      const std::string name = format("model-{}.safetensors", i);
      total += write_shard(name, shards_[i]);
      for (const Entry& entry : shards_[i]) index.member(entry.name, name);
    }
    folder_.write("model.safetensors.index.json", index.end_object().end_object().finish());
    return total;
  }

 private:
  struct Entry {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;

    std::uint64_t bytes() const {
      std::uint64_t count = dtype == "F32" ? 4 : dtype == "BF16" ? 2 : 1;
      for (const std::int64_t size : shape) count *= static_cast<std::uint64_t>(size);
      return count;
    }
  };

  // Scalars first: they are written, everything after them is a hole.
  std::uint64_t write_shard(const std::string& name, std::vector<Entry>& entries) const {
    std::partition(entries.begin(), entries.end(), [](const Entry& entry) { return entry.shape.empty(); });
    JsonWriter json;
    json.begin_object();
    std::uint64_t offset = 0;
    std::size_t scalars = 0;
    for (const Entry& entry : entries) {
      json.key(entry.name).begin_object().member("dtype", entry.dtype).key("shape").begin_array();
      for (const std::int64_t size : entry.shape) json.value(size);
      json.end_array().key("data_offsets").begin_array().value(offset).value(offset + entry.bytes());
      json.end_array().end_object();
      offset += entry.bytes();
      if (entry.shape.empty()) ++scalars;
    }
    std::string header = json.end_object().finish();
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const auto path =
        folder_.write(name, safetensors_file(header, bytes_of(std::vector<float>(scalars, 0.01f))));
    std::filesystem::resize_file(path, 8 + header.size() + offset);
    return offset;
  }

  const TempFolder& folder_;
  std::vector<std::vector<Entry>> shards_;
};

}  // namespace fourfold::checkpoint
