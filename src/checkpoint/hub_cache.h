// Finds MODEL: a folder, or a hub name (org/name, org/name@revision) in the local cache that the hub's own
// tools write, too. Nothing is downloaded here (room hub does that); when the model is not there the error's
// hint is the exact line that fetches it.
#pragma once

#include <filesystem>
#include <optional>
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

// A model's name at the hub. What counts as one: ORG/NAME or ORG/NAME@REVISION, each word of letters, digits,
// '-', '_' and '.' (none of the last three at its ends, no ".." and no "--"); a revision may have several,
// with slashes between (refs/pr/1).
struct HubName {
  std::string organisation;
  std::string name;
  std::string revision = "main";

  std::string text() const { return organisation + "/" + name; }
  std::string folder_name() const { return "models--" + organisation + "--" + name; }
  std::string pull_line() const;
};
inline constexpr const char* kHubNameRule =
    "A MODEL is a folder that exists, or else a hub name: ORG/NAME or ORG/NAME@REVISION, of letters, digits, "
    "'-', '_' and '.' (./ORG/NAME is always a folder).";

std::optional<HubName> parse_hub_name(std::string_view model);

// Whether MODEL is to be looked for at the hub: nothing here has that path, and it is a hub name.
std::optional<HubName> as_hub_name(std::string_view model);

// 40 hexadecimal digits.
bool is_commit(std::string_view text);

// The commit that a revision is in the cache's folder of this model; empty when it is not there. Throws
// bad_checkpoint when the cache holds something else.
std::string cached_commit(const std::filesystem::path& entry, const HubName& hub);

// The folder with config.json in it. Throws invalid_request when MODEL is neither a folder nor in the cache,
// bad_checkpoint when the folder or the cache entry is incomplete.
std::filesystem::path find_model(std::string_view model, const HubEnvironment& environment);

}  // namespace fourfold::checkpoint
