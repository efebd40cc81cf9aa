// Opens the shards of a model folder and holds the index against them.
#include "checkpoint/shard_index.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/problem_list.h"
#include "json/parse.h"

namespace fourfold::checkpoint {
namespace {

namespace fs = std::filesystem;

// 397B per expert: 370,000 names of 130 bytes.
constexpr json::Limits kIndexLimits{.text_bytes_max = std::size_t{256} << 20, .depth_max = 8};
constexpr std::size_t kShardsMax = 10'000;

// A shard is a file of the folder itself. Anything else (a path upwards, an absolute one) would let a
// downloaded index point at files that are none of its business.
void require_plain_name(std::string_view name, const fs::path& index) {
  constexpr std::string_view suffix = ".safetensors";
  const bool plain = name.size() > suffix.size() && name.ends_with(suffix) && name.front() != '.' &&
                     name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
  if (!plain)
    fail(Code::bad_checkpoint,
         "{}: names the shard \"{}\"; a shard is a *.safetensors file in the same folder", index.string(),
         name.substr(0, 200));
}

// Shard file name -> tensor names.
using WeightMap = std::map<std::string, std::vector<std::string>>;

WeightMap read_weight_map(const fs::path& index) {
  const boost::json::value document = json::parse_file(index, kIndexLimits);
  const auto* root = document.if_object();
  const auto* entry = root == nullptr ? nullptr : root->if_contains("weight_map");
  const auto* weights = entry == nullptr ? nullptr : entry->if_object();
  if (weights == nullptr) fail(Code::bad_checkpoint, "{}: there is no object \"weight_map\"", index.string());
  WeightMap shards;
  for (const auto& [name, file] : *weights) {
    if (!file.is_string())
      fail(Code::bad_checkpoint, "{}: the shard of tensor {} is not a string", index.string(),
           std::string_view(name));
    const std::string shard(std::string_view(file.get_string()));
    require_plain_name(shard, index);
    shards[shard].emplace_back(std::string_view(name));
    if (shards.size() > kShardsMax)
      fail(Code::bad_checkpoint, "{}: names more than {} shards", index.string(), kShardsMax);
  }
  if (shards.empty()) fail(Code::bad_checkpoint, "{}: \"weight_map\" names no tensor", index.string());
  return shards;
}

// What people point at by mistake, so that the message can name it.
std::string what_is_there(const fs::path& folder) {
  constexpr std::string_view others[] = {".gguf", ".bin", ".pt", ".pth", ".safetensors", ".npz"};
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string extension = entry.path().extension().string();
    if (std::find(std::begin(others), std::end(others), extension) != std::end(others))
      return "the folder holds " + entry.path().filename().string() +
             "; only Hugging Face safetensors folders are read";
  }
  return "Give the folder that holds config.json and the *.safetensors files.";
}

void compare_with_index(const WeightMap& index, std::span<const SafetensorsFile> shards,
                        const fs::path& folder) {
  ProblemList problems;
  std::size_t shard_index = 0;
  for (const auto& [file, names] : index) {
    std::vector<std::string_view> stored;
    for (const TensorEntry& entry : shards[shard_index].entries()) stored.push_back(entry.name);
    std::sort(stored.begin(), stored.end());
    std::vector<std::string_view> promised(names.begin(), names.end());
    std::sort(promised.begin(), promised.end());
    std::vector<std::string_view> only;
    std::set_difference(promised.begin(), promised.end(), stored.begin(), stored.end(),
                        std::back_inserter(only));
    for (const auto name : only)
      problems.add("promised by the index but missing", fourfold::format("{} in {}", name, file));
    only.clear();
    std::set_difference(stored.begin(), stored.end(), promised.begin(), promised.end(),
                        std::back_inserter(only));
    for (const auto name : only)
      problems.add("stored but not in the index", fourfold::format("{} in {}", name, file));
    ++shard_index;
  }
  problems.fail_if_any(folder.string(),
                       "the shards are of different releases, or one is damaged; download them again");
}

}  // namespace

std::vector<std::string> shard_names(const fs::path& index) {
  std::vector<std::string> names;
  for (const auto& [file, tensors] : read_weight_map(index)) names.push_back(file);
  return names;
}

Checkpoint::Checkpoint(const fs::path& folder) : folder_(folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) fail(Code::io, "{}: there is no such folder", folder.string());
  const fs::path index_path = folder / kShardIndexName;
  // symlink_status: a dangling index is a broken download, not an unsharded model.
  if (fs::exists(fs::symlink_status(index_path, ignored))) {
    const WeightMap index = read_weight_map(index_path);
    ProblemList absent;
    for (const auto& [file, names] : index)
      if (!fs::exists(folder / file, ignored)) absent.add("shards missing", file);
    absent.fail_if_any(folder.string(), "the download is incomplete; run it again");
    shards_.reserve(index.size());
    for (const auto& [file, names] : index) shards_.emplace_back(folder / file);
    compare_with_index(index, shards_, folder);
  } else if (fs::exists(fs::symlink_status(folder / kSingleShardName, ignored))) {
    shards_.emplace_back(folder / kSingleShardName);
  } else {
    fail_with_hint(Code::bad_checkpoint, what_is_there(folder), "{}: holds neither {} nor {}",
                   folder.string(), kShardIndexName, kSingleShardName);
  }
  for (const SafetensorsFile& shard : shards_)
    for (const TensorEntry& entry : shard.entries()) tensors_.push_back(shard.view(entry));
  sort_tensors();
}

Checkpoint::Checkpoint(const std::string& what, std::vector<TensorEntry> unwritten)
    : folder_(what), unwritten_(std::move(unwritten)) {
  std::uint64_t end = 0;
  for (const TensorEntry& entry : unwritten_) end = std::max(end, entry.end);
  unwritten_addresses_.emplace(end, folder_);
  for (const TensorEntry& entry : unwritten_)
    tensors_.push_back({entry.name, entry.dtype, entry.shape,
                        unwritten_addresses_->all().subspan(entry.begin, entry.end - entry.begin)});
  sort_tensors();
}

void Checkpoint::sort_tensors() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  for (const TensorView& tensor : tensors_) tensor_bytes_ += tensor.bytes.size();
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const TensorView& tensor, std::string_view n) { return tensor.name < n; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

void Checkpoint::read(std::span<const std::byte> range, std::span<std::byte> out) const {
  if (unwritten_addresses_ && unwritten_addresses_->contain(range)) {
    std::ranges::fill(out, std::byte{0});
    return;
  }
  const auto shard =
      std::ranges::find_if(shards_, [&](const SafetensorsFile& file) { return file.contains(range); });
  check(shard != shards_.end(), "the range belongs to a shard", range.size());
  shard->read(range, out);
}

}  // namespace fourfold::checkpoint
