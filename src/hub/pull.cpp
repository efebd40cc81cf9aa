#include "hub/pull.h"

#include <unistd.h>

#include <sys/statvfs.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "checkpoint/shard_index.h"
#include "hub/blob.h"
#include "hub/listing.h"
#include "hub/web.h"

namespace fourfold::hub {
namespace {

namespace fs = std::filesystem;
using checkpoint::HubName;

std::string gigabytes(std::uint64_t bytes) {
  const auto tenths = [](std::uint64_t value, std::uint64_t unit) {
    const std::uint64_t rounded = (value * 10 + unit / 2) / unit;
    return fourfold::format("{}.{}", rounded / 10, rounded % 10);
  };
  return bytes >= 1'000'000'000 ? tenths(bytes, 1'000'000'000) + " GB" : tenths(bytes, 1'000'000) + " MB";
}

// Every byte that has a meaning in a path of a URL written as %XX.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.')
      out += c;
    else
      out += std::string("%") + "0123456789ABCDEF"[byte >> 4] + "0123456789ABCDEF"[byte & 15];
  }
  return out;
}

void make_folder(const fs::path& folder) {
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem)
    fail_with_hint(Code::io, "HF_HUB_CACHE (or HF_HOME) names another place for the cache.",
                   "cannot make the folder {}: {}", folder.string(), problem.message());
}

void require_space(const fs::path& folder, std::uint64_t needed) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0)
    fail(Code::io, "{}: cannot ask for its free space: {}", folder.string(), std::strerror(errno));
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  if (needed > free)
    fail_with_hint(Code::io,
                   "`fourfold list` shows what is there, `fourfold rm` removes; or set HF_HUB_CACHE.",
                   "{} are still to be fetched, and {} are free in {}", gigabytes(needed), gigabytes(free),
                   folder.string());
}

class Pull {
 public:
  Pull(const HubName& hub, const Settings& settings, const PullListener& listener)
      : hub_(hub),
        settings_(settings),
        listener_(listener),
        entry_(settings.cache / hub.folder_name()),
        place_{.blobs = entry_ / "blobs", .locks = settings.cache / ".locks" / hub.folder_name()} {}

  Pulled run() {
    const Listing listing = ask_for_listing();
    require_weights(listing, hub_.text());
    snapshot_ = entry_ / "snapshots" / listing.commit;
    for (const fs::path& folder : {place_.blobs, place_.locks, snapshot_}) make_folder(folder);
    std::vector<RemoteFile> files = small_files(listing);
    const RemoteFile config = files.back();
    files.pop_back();
    // The index says which shards there are, so it comes before anything is counted.
    if (!files.empty() && files.front().name == checkpoint::kShardIndexName) {
      total_ = files.front().size;
      require_space(entry_, total_);
      fetch(files.front(), listing.commit);
      for (const std::string& name : checkpoint::shard_names(snapshot_ / checkpoint::kShardIndexName))
        files.push_back(shard(listing, name));
    } else {
      files.push_back(*listing.find(checkpoint::kSingleShardName));
    }
    files.push_back(config);
    announce(files, listing.commit);
    here_ = done_ = 0;
    for (const RemoteFile& file : files) {
      if (&file == &files.back()) write_reference(listing.commit);
      fetch(file, listing.commit);
    }
    return {.snapshot = snapshot_,
            .commit = listing.commit,
            .files = static_cast<int>(files.size()),
            .bytes = total_,
            .fetched = fetched_};
  }

 private:
  Listing ask_for_listing() {
    std::string text;
    Web web(settings_, listener_.on_notice);
    web.get({.path = fourfold::format("/api/models/{}/{}/revision/{}?blobs=true", hub_.organisation,
                                      hub_.name, escaped(hub_.revision)),
             .what = hub_.text() + (hub_.revision == "main" ? "" : "@" + hub_.revision),
             .attempts = 3},
            [&](std::string_view part) { text += part; });
    return parse_listing(text, hub_.text());
  }

  RemoteFile shard(const Listing& listing, const std::string& name) const {
    if (const RemoteFile* file = listing.find(name)) return *file;
    fail(Code::bad_checkpoint, "{}: its index names {}, which the hub does not have", hub_.text(), name);
  }

  void announce(const std::vector<RemoteFile>& files, const std::string& commit) {
    std::uint64_t here = 0;
    total_ = 0;
    for (const RemoteFile& file : files) {
      total_ = std::min(total_ + file.size, std::uint64_t{1} << 60);  // whatever a listing says
      here += bytes_here(place_, file);
    }
    require_space(entry_, total_ - here);
    if (here == total_) return;
    listener_.on_fact(fourfold::format(
        "fetching {} at {} from {}: {} files, {}{}; Ctrl-C stops it, the same command goes on", hub_.text(),
        commit.substr(0, 12), settings_.endpoint, files.size(), gigabytes(total_),
        here == 0 ? "" : fourfold::format(", of which {} are here", gigabytes(here))));
  }

  void fetch(const RemoteFile& file, const std::string& commit) {
    const BlobJob job{.path = fourfold::format("/{}/{}/resolve/{}/{}", hub_.organisation, hub_.name, commit,
                                               escaped(file.name)),
                      .what = hub_.text() + ": " + file.name,
                      .file = file};
    fetch_blob(
        settings_, job, place_,
        [this](std::uint64_t bytes, bool were_here) {
          done_ += bytes;
          (were_here ? here_ : fetched_) += bytes;
          listener_.on_progress(here_, std::min(done_, total_), total_);
        },
        listener_.on_notice);
    link(file);
  }

  // Made beside its place and renamed, so that a link is never missing where one was; another process may be
  // doing the same.
  void link(const RemoteFile& file) const {
    const fs::path target = fs::path("..") / ".." / "blobs" / file.etag;
    const fs::path path = snapshot_ / file.name;
    std::error_code problem;
    if (fs::read_symlink(path, problem) == target) return;
    const fs::path beside = snapshot_ / fourfold::format(".{}.{}.new", file.name, ::getpid());
    fs::remove(beside, problem);
    fs::create_symlink(target, beside, problem);
    if (!problem) fs::rename(beside, path, problem);
    if (problem)
      fail_with_hint(Code::io,
                     "The cache needs a file system with symbolic links; HF_HUB_CACHE names another place.",
                     "cannot link {} to {}: {}", path.string(), target.string(), problem.message());
  }

  // As the hub's tools do: for a branch or tag, not for a commit.
  void write_reference(const std::string& commit) const {
    if (hub_.revision == commit) return;
    const fs::path path = entry_ / "refs" / hub_.revision;
    make_folder(path.parent_path());
    // Not in refs/, where every file is the name of a revision.
    const fs::path beside = entry_ / fourfold::format(".reference.{}.new", ::getpid());
    std::ofstream out(beside, std::ios::binary | std::ios::trunc);
    out << commit;
    out.close();
    std::error_code problem;
    if (out) fs::rename(beside, path, problem);
    if (!out || problem) fail(Code::io, "cannot write {}", path.string());
  }

  const HubName& hub_;
  const Settings& settings_;
  const PullListener& listener_;
  fs::path entry_;
  BlobPlace place_;
  fs::path snapshot_;
  std::uint64_t here_ = 0, done_ = 0, total_ = 0, fetched_ = 0;
};

}  // namespace

Pulled pull(const HubName& hub, const Settings& settings, const PullListener& listener) {
  if (settings.offline)
    fail_with_hint(Code::invalid_request, "Unset HF_HUB_OFFLINE to fetch it.",
                   "{} is to be fetched, and HF_HUB_OFFLINE says that the hub may not be asked", hub.text());
  return Pull(hub, settings, listener).run();
}

bool can_pull() { return true; }

}  // namespace fourfold::hub
