#include "checkpoint/write/write_safetensors.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>

#include "base/check.h"
#include "base/error.h"
#include "base/json_writer.h"

namespace fourfold::checkpoint {
namespace {

// Tensors up to this size go to the front of their file, one behind the other: the scalars of a checkpoint
// whose matrices are holes then share a few pages instead of taking one each.
constexpr std::uint64_t kSmallBytes = 4096;

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  const auto padded = [](std::size_t number) {
    const std::string digits = std::to_string(number);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  return "model-" + padded(index + 1) + "-of-" + padded(count) + ".safetensors";
}

std::string header_of(std::span<const TensorSpec> tensors, std::span<const std::size_t> members) {
  JsonWriter json;
  json.begin_object().key("__metadata__").begin_object().member("format", "pt").end_object();
  std::uint64_t offset = 0;
  for (const std::size_t member : members) {
    const TensorSpec& tensor = tensors[member];
    json.key(tensor.name).begin_object().member("dtype", dtype_name(tensor.dtype)).key("shape").begin_array();
    for (const std::int64_t size : tensor.shape.sizes()) json.value(size);
    json.end_array().key("data_offsets").begin_array().value(offset).value(offset + tensor.bytes());
    json.end_array().end_object();
    offset += tensor.bytes();
  }
  std::string text = json.end_object().finish();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data begin at a multiple of eight
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i));
  return length + text;
}

void require_room(const std::filesystem::path& folder, std::uint64_t bytes) {
  std::error_code unknown;
  const auto room = std::filesystem::space(folder, unknown);
  if (unknown || room.available >= bytes) return;
  fail_with_hint(Code::io, "free space there, or write to another disk",
                 "{}: the checkpoint takes {} bytes; the disk has {} left", folder.string(),
                 with_commas(static_cast<long long>(bytes)),
                 with_commas(static_cast<long long>(room.available)));
}

}  // namespace

std::uint64_t TensorSpec::bytes() const {
  std::uint64_t count = 1;
  for (const std::int64_t size : shape.sizes()) count *= static_cast<std::uint64_t>(size);
  return count * static_cast<std::uint64_t>(dtype_bits(dtype)) / 8;
}

CheckpointWriter::CheckpointWriter(const std::filesystem::path& folder, std::vector<TensorSpec> tensors,
                                   const ShardOptions& options)
    : folder_(folder), tensors_(std::move(tensors)), places_(tensors_.size()) {
  std::unordered_set<std::string_view> names;
  for (const TensorSpec& tensor : tensors_) {
    tensor_bytes_ += tensor.bytes();
    if (!names.insert(tensor.name).second)
      fail(Code::invalid_request, "two tensors are named {}", tensor.name);
  }
  if (!options.sparse) require_room(folder, tensor_bytes_);
  auto shards = plan_shards(options.shard_bytes);
  for (std::size_t i = 0; i < shards.size(); ++i)
    start_shard(i, std::move(shards[i]), shard_name(i, shards.size()));
}

std::vector<std::vector<std::size_t>> CheckpointWriter::plan_shards(std::uint64_t shard_bytes) const {
  std::vector<std::vector<std::size_t>> shards(1);
  std::uint64_t filled = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::uint64_t bytes = tensors_[i].bytes();
    if (filled > 0 && filled + bytes > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(i);
    filled += bytes;
  }
  return shards;
}

void CheckpointWriter::start_shard(std::size_t shard, std::vector<std::size_t> members,
                                   const std::string& name) {
  // Wide elements first, so that every tensor lies at a multiple of its element's size.
  std::sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
    const auto rank = [&](std::size_t i) {
      return std::tuple(tensors_[i].bytes() > kSmallBytes, -dtype_bits(tensors_[i].dtype), i);
    };
    return rank(a) < rank(b);
  });
  const std::string header = header_of(tensors_, members);
  std::uint64_t offset = header.size();
  for (const std::size_t member : members) {
    places_[member] = {shard, offset};
    offset += tensors_[member].bytes();
  }
  OutputFile& file = shards_.emplace_back(folder_ / name);
  file.resize(offset);
  file.write(0, {reinterpret_cast<const std::byte*>(header.data()), header.size()}, "the header");
}

void CheckpointWriter::write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes) {
  const TensorSpec& spec = tensors_[tensor];
  check(offset + bytes.size() <= spec.bytes(), "the bytes lie in the tensor", offset, bytes.size(),
        spec.bytes());
  const Place& place = places_[tensor];
  shards_[place.shard].write(place.offset + offset, bytes, spec.name);
}

void CheckpointWriter::finish() {
  for (OutputFile& shard : shards_) shard.close();
  if (shards_.size() > 1) write_index();
}

void CheckpointWriter::write_index() const {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().key("metadata").begin_object().member("total_size", tensor_bytes_).end_object();
  json.key("weight_map").begin_object();
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    json.member(tensors_[i].name, shards_[places_[i].shard].path().filename().string());
  const std::string text = json.end_object().end_object().finish();
  OutputFile file(folder_ / "model.safetensors.index.json");
  file.write(0, {reinterpret_cast<const std::byte*>(text.data()), text.size()}, "the index");
  file.close();
}

}  // namespace fourfold::checkpoint
