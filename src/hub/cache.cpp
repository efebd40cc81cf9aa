#include "hub/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "checkpoint/shard_index.h"
#include "json/parse.h"

namespace fourfold::hub {
namespace {

namespace fs = std::filesystem;

std::uint64_t size_of(const fs::path& path) {
  std::error_code problem;
  const auto size = fs::file_size(path, problem);
  return problem ? 0 : size;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

// Every name below refs/, with its commit.
std::vector<std::pair<fs::path, std::string>> references(const fs::path& entry) {
  std::vector<std::pair<fs::path, std::string>> found;
  std::error_code ignored;
  for (const auto& file : fs::recursive_directory_iterator(entry / "refs", ignored)) {
    if (!file.is_regular_file(ignored) || size_of(file.path()) > 256) continue;
    std::string commit = json::read_text_file(file.path(), 256);
    commit.erase(commit.find_last_not_of(" \t\r\n") + 1);
    found.emplace_back(file.path(), commit);
  }
  std::ranges::sort(found);
  return found;
}

// The files a snapshot's links lead to: blobs, and what people put there themselves.
std::set<fs::path> linked(const fs::path& snapshot) {
  std::set<fs::path> blobs;
  std::error_code ignored;
  for (const auto& file : fs::recursive_directory_iterator(snapshot, ignored))
    if (const fs::path target = fs::canonical(file.path(), ignored); fs::is_regular_file(target, ignored))
      blobs.insert(target);
  return blobs;
}

CachedSnapshot snapshot_of(const fs::path& entry, const fs::path& folder) {
  CachedSnapshot snapshot{.commit = folder.filename().string(), .revisions = {}, .folder = folder};
  for (const auto& [path, commit] : references(entry))
    if (commit == snapshot.commit) snapshot.revisions.push_back(fs::relative(path, entry / "refs").string());
  for (const fs::path& blob : linked(folder)) snapshot.bytes += size_of(blob);
  std::error_code ignored;
  snapshot.whole = fs::exists(folder / "config.json", ignored) && has_weights(folder);
  return snapshot;
}

// "org/name" of models--org--name; empty for another folder.
std::string model_name(const fs::path& folder) {
  constexpr std::string_view prefix = "models--";
  const std::string name = folder.filename().string();
  const std::size_t part = name.find("--", prefix.size());
  if (!name.starts_with(prefix) || part == std::string::npos) return {};
  return name.substr(prefix.size(), part - prefix.size()) + "/" + name.substr(part + 2);
}

// Throws io while somebody fetches a file of it.
void require_unused(const fs::path& locks, const std::string& model) {
  for (const fs::path& path : entries(locks)) {
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) continue;
    const bool taken = ::flock(file, LOCK_EX | LOCK_NB) != 0;
    ::close(file);
    if (taken) fail(Code::io, "{} is being fetched by another process", model);
  }
}

void remove_tree(const fs::path& path) {
  std::error_code problem;
  fs::remove_all(path, problem);
  if (problem) fail(Code::io, "cannot remove {}: {}", path.string(), problem.message());
}

std::uint64_t remove_snapshot(const fs::path& entry, const checkpoint::HubName& hub) {
  const std::string commit = checkpoint::cached_commit(entry, hub);
  std::error_code ignored;
  const fs::path snapshot = entry / "snapshots" / commit;
  if (commit.empty() || !fs::is_directory(snapshot, ignored))
    fail_with_hint(Code::invalid_request, "fourfold list shows what is there.",
                   "{}: revision {} is not in the hub cache", hub.text(), hub.revision);
  std::set<fs::path> blobs = linked(snapshot);
  for (const fs::path& other : entries(entry / "snapshots"))
    if (other != snapshot)
      for (const fs::path& kept : linked(other)) blobs.erase(kept);
  for (const auto& [path, named] : references(entry))
    if (named == commit) remove_tree(path);
  remove_tree(snapshot);
  std::uint64_t freed = 0;
  const fs::path own = fs::canonical(entry / "blobs", ignored);
  for (const fs::path& blob : blobs) {
    if (blob.parent_path() != own) continue;  // a link to somebody's own file
    freed += size_of(blob);
    remove_tree(blob);
  }
  return freed;
}

}  // namespace

bool has_weights(const fs::path& snapshot) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(snapshot / checkpoint::kShardIndexName, ignored)))
    return fs::exists(snapshot / checkpoint::kSingleShardName, ignored);
  try {
    return std::ranges::all_of(checkpoint::shard_names(snapshot / checkpoint::kShardIndexName),
                               [&](const std::string& name) { return fs::exists(snapshot / name, ignored); });
  } catch (const Error&) {
    return false;  // an index that cannot be read, or is none
  }
}

std::vector<CachedModel> cached_models(const fs::path& cache) {
  std::vector<CachedModel> models;
  std::error_code ignored;
  for (const fs::path& entry : entries(cache)) {
    CachedModel model{.name = model_name(entry), .snapshots = {}};
    if (model.name.empty() || !fs::is_directory(entry, ignored)) continue;
    for (const fs::path& folder : entries(entry / "snapshots"))
      if (fs::is_directory(folder, ignored)) model.snapshots.push_back(snapshot_of(entry, folder));
    for (const fs::path& blob : entries(entry / "blobs")) {
      model.bytes += size_of(blob);
      if (blob.extension() == ".incomplete") model.unfinished += size_of(blob);
    }
    models.push_back(std::move(model));
  }
  return models;
}

std::uint64_t remove_model(const fs::path& cache, const checkpoint::HubName& hub, bool all) {
  const fs::path entry = cache / hub.folder_name();
  const fs::path locks = cache / ".locks" / hub.folder_name();
  std::error_code ignored;
  if (!fs::is_directory(entry, ignored))
    fail_with_hint(Code::invalid_request, "fourfold list shows what is there.",
                   "{} is not in the hub cache ({})", hub.text(), cache.string());
  require_unused(locks, hub.text());
  if (!all) return remove_snapshot(entry, hub);
  std::uint64_t freed = 0;
  for (const fs::path& blob : entries(entry / "blobs")) freed += size_of(blob);
  remove_tree(entry);
  remove_tree(locks);
  return freed;
}

}  // namespace fourfold::hub
