#include "cli/tuned.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "backend/cuda/tune/tuning_file.h"
#include "base/format.h"

namespace fourfold::cli {
namespace {

namespace fs = std::filesystem;
using backend::cuda::Tuning;
using backend::cuda::TuningFile;

void mention(const Console& console, const std::string& path, const TuningFile& file) {
  console.err << fourfold::format("fourfold: tuned by {}: {} choices of {}, {}\n", path,
                                  file.tuning.choices().size(), file.date,
                                  file.commit.empty() ? "commit unknown" : file.commit);
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
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  if (none) return {};
  const fs::path around = program.parent_path().parent_path();
  const fs::path shared = around / "share" / "fourfold" / "tuned";
  return fs::is_directory(shared, none) ? shared : around / "tuned";
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
                                             const std::vector<fs::path>& folders, const Console& console) {
  auto tuning = std::make_shared<Tuning>();
  for (const fs::path& folder : folders)
    for (const fs::path& path : json_files(folder)) {
      const TuningFile file = backend::cuda::read_tuning(path);
      if (!is_for(file, machine)) continue;  // a folder has files of many chips
      require_for(file, machine, path.string());
      for (const auto& choice : file.tuning.choices()) tuning->add(choice);
      mention(console, path.string(), file);
    }
  return tuning->empty() ? nullptr : tuning;
}

std::shared_ptr<const Tuning> find_tuning(const kernels::Machine& machine, const std::string& tuned,
                                          const Console& console) {
  if (tuned == "none") return nullptr;
  if (!tuned.empty()) {
    const TuningFile file = backend::cuda::read_tuning(tuned);
    require_for(file, machine, tuned);
    mention(console, tuned, file);
    return std::make_shared<Tuning>(file.tuning);
  }
  if (machine.description().starts_with("simulator")) return nullptr;  // its time is nobody's
  const auto found = find_tuning_in(machine, {installed_tuned_folder(), user_tuned_folder()}, console);
  // A notice, whatever --strict says: nothing slower than the best known row is run.
  if (found == nullptr)
    notice(console,
           fourfold::format("{} is untuned: kernels run by the tables' defaults; `fourfold tune` measures "
                            "which rows are faster here",
                            machine.description()),
           false);
  return found;
}

}  // namespace fourfold::cli
