// This machine, asked through the file system and the NVIDIA libraries.
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>

#include "doctor/nvml.h"
#include "doctor/source.h"

extern char** environ;

namespace fourfold::doctor {
namespace {

constexpr std::size_t kFileBytesMax = 64 << 10;
const std::string kPciDevices = "/sys/bus/pci/devices/";

// Files of /proc and /sys have no length to ask for; they are read until they end.
std::optional<std::string> read_some(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  std::string text(kFileBytesMax, '\0');
  std::size_t size = 0;
  for (;;) {
    const ssize_t got = read(file, text.data() + size, text.size() - size);
    if (got <= 0) {
      close(file);
      if (got < 0 && size == 0) return std::nullopt;
      text.resize(size);
      return text;
    }
    size += static_cast<std::size_t>(got);
  }
}

// Headers are long, and their versions stand within the first part.
std::optional<std::string> definition(const std::string& path, const std::string& name) {
  const std::string text = read_some(path).value_or(""), wanted = "#define " + name + " ";
  const auto found = text.find(wanted);
  if (found == std::string::npos) return std::nullopt;
  return trimmed(text.substr(found + wanted.size(), text.find('\n', found) - found - wanted.size()));
}

std::optional<std::string> list_folder(const std::string& path) {
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return std::nullopt;
  std::vector<std::string> names;
  while (const dirent* entry = readdir(folder))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  closedir(folder);
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  return text;
}

std::optional<std::string> link_target(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t size = readlink(path.c_str(), target, sizeof target);
  if (size <= 0) return std::nullopt;
  const std::string text(target, static_cast<std::size_t>(size));
  return text.substr(text.rfind('/') + 1);
}

std::optional<std::string> space(const std::string& path) {
  struct statvfs facts {};
  if (statvfs(path.c_str(), &facts) != 0) return std::nullopt;
  return std::to_string(static_cast<unsigned long long>(facts.f_blocks) * facts.f_frsize);
}

std::string memlock() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(static_cast<unsigned long long>(limit.rlim_cur));
}

std::string environment() {
  std::vector<std::string> lines;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string line = *entry;
    if (is_known_variable(line.substr(0, line.find('=')))) lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string servers() {
  std::vector<std::string> found;
  for (const std::string& name : split(list_folder("/proc").value_or(""), '\n')) {
    if (name.find_first_not_of("0123456789") != std::string::npos || name == std::to_string(getpid()))
      continue;
    const auto command = read_some("/proc/" + name + "/cmdline");
    if (!command) continue;
    if (const auto line = server_line(split(*command, '\0'))) found.push_back(*line);
  }
  // Workers of one server look alike.
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::string text;
  for (const std::string& line : found) text += line + "\n";
  return text;
}

std::string displays() {
  std::string text;
  for (const std::string& device : split(list_folder(kPciDevices).value_or(""), '\n')) {
    const std::string folder = kPciDevices + device;
    const std::string kind = read_some(folder + "/class").value_or("");
    if (!kind.starts_with("0x03") || !read_some(folder + "/vendor").value_or("").starts_with("0x10de"))
      continue;
    text += device + " " + trimmed(read_some(folder + "/device").value_or("?")) + " " +
            link_target(folder + "/driver").value_or("none") + "\n";
  }
  return text;
}

// The folder of a device lies in the folders of its bridges.
std::optional<std::string> bridges(const std::string& device) {
  std::error_code error;
  const auto path = std::filesystem::canonical(kPciDevices + device, error);
  if (error) return std::nullopt;
  std::string text;
  for (const auto& part : path.parent_path())
    if (const std::string name = part.string(); name.size() == 12 && name[4] == ':' && name[10] == '.')
      text += (text.empty() ? "" : " ") + name;
  return text;
}

class LiveSource final : public Source {
 public:
  std::optional<std::string> ask(const std::string& question) override {
    const auto space_at = question.find(' ');
    const std::string kind = question.substr(0, space_at);
    const std::string rest = space_at == std::string::npos ? "" : question.substr(space_at + 1);
    if (kind == "file") return read_some(rest);
    if (kind == "field" || kind == "define") {
      const std::string path = rest.substr(0, rest.find(' '));
      const std::string name = rest.substr(std::min(path.size() + 1, rest.size()));
      return kind == "field" ? field_of(read_some(path).value_or(""), name) : definition(path, name);
    }
    if (kind == "list") return list_folder(rest);
    if (kind == "link") return link_target(rest);
    if (kind == "space") return space(rest);
    if (kind == "limit") return memlock();
    if (kind == "environment") return environment_;
    if (kind == "servers") return servers();
    if (kind == "pci") return displays();
    if (kind == "bridges") return bridges(rest);
    if (kind == "acs") return acs_control(read_some(kPciDevices + rest + "/config").value_or(""));
    if (kind != "nvml" && kind != "cuda") return std::nullopt;
    if (!libraries_) libraries_ = std::make_unique<NvidiaLibraries>();
    return kind == "nvml" ? libraries_->ask_nvml(split(rest, ' ')) : libraries_->ask_cuda(split(rest, ' '));
  }

 private:
  std::string environment_ = environment();  // as it was before this program changes its own
  std::unique_ptr<NvidiaLibraries> libraries_;
};

}  // namespace

std::unique_ptr<Source> live_source() { return std::make_unique<LiveSource>(); }

}  // namespace fourfold::doctor
