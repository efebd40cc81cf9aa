#include "cli/find_model.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/closest.h"
#include "base/error.h"
#include "checkpoint/hub_cache.h"

namespace fourfold::cli {
namespace {

namespace fs = std::filesystem;

fs::path program_folder() {
  std::error_code problem;
  const fs::path program = fs::read_symlink("/proc/self/exe", problem);
  if (problem)
    fail_with_hint(Code::io, "Name a MODEL: a folder, or a hub name in the local cache.",
                   "where this program lies cannot be read, and so where its model is: {}",
                   problem.message());
  return program.parent_path();
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The built-in one, those of the hub cache, and the folders beside the one that was named.
std::vector<std::string> known_models(const std::string& model) {
  std::vector<std::string> names{kBuiltInModel};
  std::error_code ignored;
  constexpr std::string_view prefix = "models--";
  for (const auto& entry :
       fs::directory_iterator(checkpoint::hub_cache_folder(checkpoint::hub_environment()), ignored)) {
    const std::string name = entry.path().filename().string();
    const std::size_t part = name.find("--", prefix.size());
    if (!name.starts_with(prefix) || part == std::string::npos) continue;
    names.push_back(name.substr(prefix.size(), part - prefix.size()) + "/" + name.substr(part + 2));
  }
  const fs::path path(model);
  const fs::path beside = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (const auto& entry : fs::directory_iterator(beside, ignored))
    if (fs::exists(entry.path() / "config.json", ignored))
      names.push_back(path.has_parent_path() ? entry.path().string() : entry.path().filename().string());
  std::ranges::sort(names.begin() + 1, names.end());
  return names;
}

}  // namespace

bool is_built_in(const std::string& model) {
  std::error_code ignored;
  return model.empty() || (model == kBuiltInModel && !fs::exists(model, ignored));
}

// By letters whatever their case, and by the name without its organisation.
std::string meant_model(const std::string& model) {
  const std::vector<std::string> names = known_models(model);
  std::vector<std::string> lowered;
  for (const std::string& name : names) lowered.push_back(lower(name));
  for (std::string& name : lowered)
    if (name == lower(model)) return names[static_cast<std::size_t>(&name - lowered.data())];
  std::string found = closest(lower(model), lowered);
  if (found.empty() && model.find('/') == std::string::npos) {
    for (std::string& name : lowered) name.erase(0, name.find('/') + 1);
    found = closest(lower(model), lowered);
  }
  const auto at = std::ranges::find(lowered, found);
  return found.empty() || at == lowered.end() ? std::string()
                                              : names[static_cast<std::size_t>(at - lowered.begin())];
}

std::string built_in_model(const fs::path& program_folder) {
  const fs::path above = program_folder.parent_path();
  const fs::path checkout = above / "models" / kBuiltInModel;
  const fs::path installed = above / "share" / "fourfold" / "models" / kBuiltInModel;
  for (const fs::path& folder : {checkout, installed}) {
    std::error_code ignored;
    if (fs::exists(folder / "config.json", ignored)) return folder.string();
  }
  fail_with_hint(Code::invalid_request, "Name a MODEL: a folder, or a hub name in the local cache.",
                 "the model that comes with the program is neither in {} nor in {}", checkout.string(),
                 installed.string());
}

fs::path find_model(const std::string& model) {
  if (is_built_in(model)) return built_in_model(program_folder());
  try {
    return checkpoint::find_model(model, checkpoint::hub_environment());
  } catch (const Error& error) {
    if (error.code() != Code::invalid_request) throw;
    const std::string meant = meant_model(model);
    if (meant.empty()) throw;
    throw Error(error.code(), error.what(), fourfold::format("Did you mean {}? {}", meant, error.hint()));
  }
}

bool is_model(const std::string& model) {
  if (is_built_in(model)) return true;
  try {
    checkpoint::find_model(model, checkpoint::hub_environment());
    return true;
  } catch (const Error& error) {
    return error.code() != Code::invalid_request;
  }
}

}  // namespace fourfold::cli
