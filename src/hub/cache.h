// What is in the hub cache: to be listed, and to be removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/hub_cache.h"

namespace fourfold::hub {

struct CachedSnapshot {
  std::string commit;
  std::vector<std::string> revisions;  // what refs/ call it, by name
  std::uint64_t bytes = 0;             // of the files it links to, each once
  bool whole = false;                  // has config.json and its weights
  std::filesystem::path folder;
};

struct CachedModel {
  std::string name;                       // "org/name"
  std::vector<CachedSnapshot> snapshots;  // by commit
  std::uint64_t bytes = 0;                // of its blobs, unfinished ones too
  std::uint64_t unfinished = 0;           // of these
};

// By name; models that were begun, too. Datasets and what is no model are passed over.
std::vector<CachedModel> cached_models(const std::filesystem::path& cache);

// Whether a snapshot has its weights: all shards that its index names, or the one file.
bool has_weights(const std::filesystem::path& snapshot);

// What was freed. Without a revision (`all`) the whole model goes; else that snapshot, the names of it, and
// the blobs that no other snapshot links to. Throws invalid_request when it is not there, io when it is being
// fetched or cannot be removed.
std::uint64_t remove_model(const std::filesystem::path& cache, const checkpoint::HubName& hub, bool all);

}  // namespace fourfold::hub
