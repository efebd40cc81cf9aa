// The hub cache's layout: models--org--name/{refs/<revision>, snapshots/<commit>/}.
#include "checkpoint/hub_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "json/parse.h"

namespace fourfold::checkpoint {
namespace {

namespace fs = std::filesystem;

// The characters the hub allows; in particular no separator and nothing a shell would read. "--" parts the
// words of the cache's folder names and ".." those of a path, so a name has neither.
bool is_hub_word(std::string_view word) {
  constexpr std::size_t longest = 96;
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !word.empty() && word.size() <= longest && std::all_of(word.begin(), word.end(), allowed) &&
         word.front() != '-' && word.front() != '.' && word.back() != '-' && word.back() != '.' &&
         word.find("--") == std::string_view::npos && word.find("..") == std::string_view::npos;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Looking into a folder takes the right to search it.
bool may_read(const fs::path& folder) { return ::access(folder.c_str(), R_OK | X_OK) == 0; }
bool has_config(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "config.json", ignored);
}

fs::path snapshot_in_cache(const HubName& hub, const fs::path& cache) {
  const fs::path entry = cache / hub.folder_name();
  if (!is_folder(entry))
    fail_with_hint(Code::invalid_request, hub.pull_line(), "{} is neither a folder nor in the hub cache ({})",
                   hub.text(), cache.string());
  const std::string commit = cached_commit(entry, hub);
  const fs::path snapshot = entry / "snapshots" / commit;
  if (commit.empty() || !is_folder(snapshot))
    fail_with_hint(Code::invalid_request, hub.pull_line(), "{}: revision {} is not in the hub cache ({})",
                   hub.text(), hub.revision, entry.string());
  if (!has_config(snapshot))
    fail_with_hint(Code::bad_checkpoint, hub.pull_line(),
                   "{}: the download is incomplete; {} has no config.json", hub.text(), snapshot.string());
  return snapshot;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Words with slashes between them.
bool is_revision(std::string_view text) {
  for (;;) {
    const auto slash = text.find('/');
    if (!is_hub_word(text.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

}  // namespace

std::string HubName::pull_line() const {
  return "fourfold pull " + text() + (revision == "main" ? "" : " --revision " + revision);
}

std::optional<HubName> parse_hub_name(std::string_view model) {
  std::string_view revision = "main";
  if (const auto at = model.find('@'); at != std::string_view::npos) {
    revision = model.substr(at + 1);
    model = model.substr(0, at);
  }
  const auto slash = model.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view organisation = model.substr(0, slash);
  const std::string_view name = model.substr(slash + 1);
  if (!is_hub_word(organisation) || !is_hub_word(name) || !is_revision(revision)) return std::nullopt;
  return HubName{std::string(organisation), std::string(name), std::string(revision)};
}

std::optional<HubName> as_hub_name(std::string_view model) {
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(fs::path(std::string(model)), ignored))) return std::nullopt;
  return parse_hub_name(model);
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string cached_commit(const fs::path& entry, const HubName& hub) {
  if (is_commit(hub.revision)) return hub.revision;
  const fs::path reference = entry / "refs" / hub.revision;
  std::error_code ignored;
  if (!fs::exists(reference, ignored)) return {};
  std::string commit = json::read_text_file(reference, 256);
  commit.erase(commit.find_last_not_of(" \t\r\n") + 1);
  if (!is_commit(commit))
    fail_with_hint(Code::bad_checkpoint, hub.pull_line(), "{}: holds \"{}\", which is no commit",
                   reference.string(), commit);
  return commit;
}

HubEnvironment hub_environment() {
  return {.hf_hub_cache = variable("HF_HUB_CACHE"),
          .huggingface_hub_cache = variable("HUGGINGFACE_HUB_CACHE"),
          .hf_home = variable("HF_HOME"),
          .xdg_cache_home = variable("XDG_CACHE_HOME"),
          .home = variable("HOME")};
}

fs::path hub_cache_folder(const HubEnvironment& environment) {
  const auto expanded = [&](const std::string& path) {
    return path == "~" || path.starts_with("~/") ? fs::path(environment.home + path.substr(1))
                                                 : fs::path(path);
  };
  if (!environment.hf_hub_cache.empty()) return expanded(environment.hf_hub_cache);
  if (!environment.huggingface_hub_cache.empty()) return expanded(environment.huggingface_hub_cache);
  if (!environment.hf_home.empty()) return expanded(environment.hf_home) / "hub";
  if (!environment.xdg_cache_home.empty())
    return expanded(environment.xdg_cache_home) / "huggingface" / "hub";
  return fs::path(environment.home) / ".cache" / "huggingface" / "hub";
}

fs::path find_model(std::string_view model, const HubEnvironment& environment) {
  const fs::path folder{std::string(model)};
  std::error_code ignored;
  if (is_folder(folder)) {
    if (!may_read(folder))
      fail_with_hint(Code::io, "Give this user the right to read it (ls -ld shows who has it).",
                     "{}: no permission to look into this folder", model);
    if (!has_config(folder))
      fail_with_hint(Code::bad_checkpoint,
                     "Give the folder that holds config.json and the *.safetensors files.",
                     "{}: there is no config.json in this folder", model);
    return folder;
  }
  if (fs::exists(folder, ignored))
    fail_with_hint(Code::invalid_request,
                   "Give the folder that holds config.json and the *.safetensors files.",
                   "{}: is a file; a model is a folder", model);
  const std::optional<HubName> hub = parse_hub_name(model);
  if (!hub)
    fail_with_hint(Code::invalid_request, kHubNameRule, "{}: there is no such folder", model.substr(0, 500));
  return snapshot_in_cache(*hub, hub_cache_folder(environment));
}

}  // namespace fourfold::checkpoint
