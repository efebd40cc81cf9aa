// What the hub says a model consists of, and which of it we read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::hub {

struct RemoteFile {
  std::string name;
  std::uint64_t size = 0;
  // What the file is called among the cache's blobs (the hub's etag), and the hash of its content: SHA-256 of
  // the bytes where the hub keeps it as a large file, else the SHA-1 that git gives it.
  std::string etag;
  bool large = false;
};

struct Listing {
  std::string commit;
  std::vector<RemoteFile> files;

  const RemoteFile* find(std::string_view name) const;
};

// The answer to /api/models/ORG/NAME/revision/REVISION?blobs=true. Files in folders and files with a name
// that is none are left out; of those we read each must have size and hash. Throws io naming `model`.
Listing parse_listing(std::string_view text, const std::string& model);

// The files beside the weights that we read, in the order in which they are fetched: config.json last of
// all, so that a snapshot that has it is whole.
std::vector<RemoteFile> small_files(const Listing& listing);

// Whether the index, or the one file, with the weights is among them. Throws unsupported_model naming what
// there is instead.
void require_weights(const Listing& listing, const std::string& model);

}  // namespace fourfold::hub
