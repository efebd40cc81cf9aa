#include "cli/default_model.h"

#include "base/error.h"

namespace fourfold::cli {

std::string default_model(const std::filesystem::path& program_folder) {
  const std::filesystem::path above = program_folder.parent_path();
  const std::filesystem::path checkout = above / "models" / "storyteller";
  const std::filesystem::path installed = above / "share" / "fourfold" / "models" / "storyteller";
  for (const std::filesystem::path& folder : {checkout, installed}) {
    std::error_code ignored;
    if (std::filesystem::exists(folder / "config.json", ignored)) return folder.string();
  }
  fail_with_hint(Code::invalid_request, "Name a MODEL: a folder, or a hub name in the local cache.",
                 "no MODEL was named, and the one that comes with the program is neither in {} nor in {}",
                 checkout.string(), installed.string());
}

std::string model_or_default(const std::string& model) {
  if (!model.empty()) return model;
  std::error_code problem;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", problem);
  if (problem)
    fail_with_hint(Code::io, "Name a MODEL: a folder, or a hub name in the local cache.",
                   "no MODEL was named, and where this program lies cannot be read: {}", problem.message());
  return default_model(program.parent_path());
}

}  // namespace fourfold::cli
