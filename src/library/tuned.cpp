#include "library/tuned.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "backend/cuda/tune/tuning_file.h"
#include "base/format.h"

namespace fourfold::library {
namespace {

namespace fs = std::filesystem;
using backend::cuda::Tuning;
using backend::cuda::TuningFile;

void mention(const Listener& listener, const std::string& path, const TuningFile& file) {
  listener.fact(fourfold::format("tuned by {}: {} choices of {}, {}", path, file.tuning.choices().size(),
                                 file.date, file.commit.empty() ? "commit unknown" : file.commit));
}

std::vector<fs::path> json_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

fs::path user_tuned_folder() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && *config != '\0') return fs::path(config) / "fourfold" / "tuned";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return fs::path(home) / ".config" / "fourfold" / "tuned";
}

fs::path installed_tuned_folder() {
  std::error_code none;
  // The file this code came from: a library that another program loaded, or the program itself.
  Dl_info info{};
  fs::path file;
  if (dladdr(reinterpret_cast<const void*>(&installed_tuned_folder), &info) != 0 && info.dli_fname != nullptr)
    file = fs::canonical(info.dli_fname, none);
  if (file.empty()) file = fs::read_symlink("/proc/self/exe", none);
  if (file.empty()) return {};
  // bin/, lib/ or lib/aarch64-linux-gnu/ of a prefix, or the build folder of a source tree.
  const fs::path folder = file.parent_path();
  for (const fs::path& around : {folder.parent_path(), folder.parent_path().parent_path()}) {
    const fs::path shared = around / "share" / "fourfold" / "tuned";
    if (fs::is_directory(shared, none)) return shared;
  }
  return folder.parent_path() / "tuned";
}

std::string tuned_file_name(const std::string& chip) {
  std::string name;
  for (const char letter : chip) {
    const auto c = static_cast<unsigned char>(letter);
    if (std::isalnum(c) != 0)
      name += static_cast<char>(std::tolower(c));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  return name + ".json";
}

std::shared_ptr<const Tuning> find_tuning_in(const kernels::Machine& machine,
                                             const std::vector<fs::path>& folders, const Listener& listener) {
  auto tuning = std::make_shared<Tuning>();
  for (const fs::path& folder : folders)
    for (const fs::path& path : json_files(folder)) {
      const TuningFile file = backend::cuda::read_tuning(path);
      if (!is_for(file, machine)) continue;  // a folder has files of many chips
      require_for(file, machine, path.string());
      for (const auto& choice : file.tuning.choices()) tuning->add(choice);
      mention(listener, path.string(), file);
    }
  return tuning->empty() ? nullptr : tuning;
}

std::shared_ptr<const Tuning> find_tuning(const kernels::Machine& machine, const std::string& tuned,
                                          const Listener& listener) {
  if (tuned == "none") return nullptr;
  if (!tuned.empty()) {
    const TuningFile file = backend::cuda::read_tuning(tuned);
    require_for(file, machine, tuned);
    mention(listener, tuned, file);
    return std::make_shared<Tuning>(file.tuning);
  }
  if (machine.description().starts_with("simulator")) return nullptr;  // its time is nobody's
  const auto found = find_tuning_in(machine, {installed_tuned_folder(), user_tuned_folder()}, listener);
  // A fact, no notice: nothing slower than the best known row is run.
  if (found == nullptr)
    listener.fact(fourfold::format(
        "notice: {} is untuned: kernels run by the tables' defaults; `fourfold tune` measures "
        "which rows are faster here",
        machine.description()));
  return found;
}

}  // namespace fourfold::library
