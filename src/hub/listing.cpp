#include "hub/listing.h"

#include <algorithm>
#include <boost/json/value.hpp>
#include <set>

#include "base/error.h"
#include "checkpoint/hub_cache.h"
#include "checkpoint/shard_index.h"
#include "json/parse.h"

namespace fourfold::hub {
namespace {

constexpr json::Limits kListingLimits{.text_bytes_max = std::size_t{64} << 20, .depth_max = 32};
constexpr std::size_t kFilesMax = 100'000;
// Far beyond every known file; those that are read whole are smaller.
constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 58, kSmallBytesMax = std::uint64_t{256} << 20;
// What rooms checkpoint and text open beside the weights.
constexpr const char* kSmallFiles[] = {
    checkpoint::kShardIndexName, "generation_config.json", "hf_quant_config.json", "tokenizer.json",
    "tokenizer_config.json",     "chat_template.jinja",    "config.json"};

bool is_hex(std::string_view text, std::size_t size) {
  return text.size() == size && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// A file of the model's own folder. (Nothing else is ever asked for or written.)
bool is_plain(std::string_view name) {
  const auto unfit = [](unsigned char c) { return c < ' ' || c == 0x7f || c == '/' || c == '\\'; };
  return !name.empty() && name.size() <= 200 && name.front() != '.' &&
         std::none_of(name.begin(), name.end(), unfit);
}

bool is_small(std::string_view name) { return std::ranges::find(kSmallFiles, name) != std::end(kSmallFiles); }
bool is_read(std::string_view name) { return name.ends_with(".safetensors") || is_small(name); }

std::string text_of(const boost::json::object& from, std::string_view name) {
  const auto* value = from.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : "";
}

bool take_size(const boost::json::object& from, std::uint64_t& size) {
  const auto* value = from.if_contains("size");
  if (value == nullptr || !value->is_int64() || value->get_int64() < 0) return false;
  size = static_cast<std::uint64_t>(value->get_int64());
  return true;
}

// False when size or hash is missing or none.
bool take_file(const boost::json::object& from, RemoteFile& file) {
  const auto* entry = from.if_contains("lfs");
  const auto* large = entry == nullptr ? nullptr : entry->if_object();
  file.large = large != nullptr;
  file.etag = large != nullptr ? text_of(*large, "sha256") : text_of(from, "blobId");
  return take_size(large != nullptr ? *large : from, file.size) && is_hex(file.etag, file.large ? 64 : 40);
}

}  // namespace

const RemoteFile* Listing::find(std::string_view name) const {
  const auto found = std::ranges::find(files, name, &RemoteFile::name);
  return found == files.end() ? nullptr : &*found;
}

Listing parse_listing(std::string_view text, const std::string& model) {
  boost::json::value document;
  try {
    document = json::parse(text, "the hub's answer", kListingLimits);
  } catch (const Error& error) {
    fail(Code::io, "{}: {}", model, error.what());
  }
  const auto* root = document.if_object();
  const auto* entry = root == nullptr ? nullptr : root->if_contains("siblings");
  const auto* siblings = entry == nullptr ? nullptr : entry->if_array();
  Listing listing;
  if (root != nullptr) listing.commit = text_of(*root, "sha");
  if (siblings == nullptr || !checkpoint::is_commit(listing.commit))
    fail(Code::io, "{}: the hub's answer lists no files of a commit", model);
  if (siblings->size() > kFilesMax)
    fail(Code::io, "{}: {} files; at most {} are read", model, siblings->size(), kFilesMax);
  std::set<std::string> names;
  for (const boost::json::value& sibling : *siblings) {
    const auto* from = sibling.if_object();
    RemoteFile file;
    if (from != nullptr) file.name = text_of(*from, "rfilename");
    if (!is_plain(file.name)) continue;
    if (!take_file(*from, file) && is_read(file.name))
      fail(Code::io, "{}: the hub's answer has no size and hash of {}", model, file.name);
    if (file.size > kFileBytesMax || (file.size > kSmallBytesMax && is_small(file.name)))
      fail(Code::io, "{}: the hub says that {} has {} bytes", model, file.name, file.size);
    if (!names.insert(file.name).second) fail(Code::io, "{}: the hub lists {} twice", model, file.name);
    listing.files.push_back(std::move(file));
  }
  return listing;
}

std::vector<RemoteFile> small_files(const Listing& listing) {
  std::vector<RemoteFile> files;
  for (const char* name : kSmallFiles)
    if (const RemoteFile* file = listing.find(name)) files.push_back(*file);
  return files;
}

void require_weights(const Listing& listing, const std::string& model) {
  const char* missing = nullptr;
  if (listing.find("config.json") == nullptr) missing = "config.json";
  if (listing.find(checkpoint::kShardIndexName) == nullptr &&
      listing.find(checkpoint::kSingleShardName) == nullptr)
    missing = checkpoint::kSingleShardName;
  if (missing == nullptr) return;
  std::string there;
  for (const RemoteFile& file : listing.files) {
    if (there.size() > 200) {
      there += ", ...";
      break;
    }
    there += (there.empty() ? "" : ", ") + file.name;
  }
  fail_with_hint(Code::unsupported_model,
                 "Take one whose weights are safetensors (*.gguf and *.bin are not read).",
                 "{}: has no {}; there is {}", model, missing, there.empty() ? "nothing" : there);
}

}  // namespace fourfold::hub
