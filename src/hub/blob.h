// One file of the hub into the cache's blobs: several ranges at once, resumed, checked, and there only when
// it is whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "hub/listing.h"
#include "hub/web.h"

namespace fourfold::hub {

struct BlobPlace {
  std::filesystem::path blobs;  // folder
  std::filesystem::path locks;  // folder; the hub's own tools take the same locks
};

// Bytes that have arrived, or were here already.
using Arrived = std::function<void(std::uint64_t bytes, bool were_here)>;

struct BlobJob {
  std::string path;  // behind the endpoint
  std::string what;  // for messages
  RemoteFile file;
};

// How many bytes of it are here: all, or what an earlier download left.
std::uint64_t bytes_here(const BlobPlace& place, const RemoteFile& file);

// Afterwards blobs/ETAG has the file's bytes, and its hash is right. What has arrived is always the beginning
// of the file, in blobs/ETAG.incomplete, so whoever ends this process, whenever, leaves something to go on
// from. `arrived` is called by one thread at a time. Throws as Web::get, and io.
void fetch_blob(const Settings& settings, const BlobJob& job, const BlobPlace& place, const Arrived& arrived,
                const Say& say);

// Parts of a file, and how many are on their way at once.
inline constexpr std::uint64_t kPartBytes = std::uint64_t{16} << 20;
inline constexpr int kConnections = 8;

}  // namespace fourfold::hub
