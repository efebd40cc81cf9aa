// Finds MODEL: a folder, or a hub name (org/name, org/name@revision) in the local cache that the hub's own
// tools write. Nothing is downloaded; when the model is not there the error's hint is the exact line that
// fetches it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace fourfold::checkpoint {

// The variables that place the cache, empty when unset; a value so that tests need no environment.
struct HubEnvironment {
  std::string hf_hub_cache;
  std::string huggingface_hub_cache;  // the older name
  std::string hf_home;
  std::string xdg_cache_home;
  std::string home;
};

HubEnvironment hub_environment();

// Where the cache is, by the hub tools' own order: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub,
// XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_folder(const HubEnvironment& environment);

// The folder with config.json in it. Throws invalid_request when MODEL is neither a folder nor in the cache,
// bad_checkpoint when the folder or the cache entry is incomplete.
std::filesystem::path find_model(std::string_view model, const HubEnvironment& environment);

}  // namespace fourfold::checkpoint
