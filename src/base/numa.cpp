#include "base/numa.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>

#include "base/format.h"

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace fourfold {
namespace {

std::optional<std::string> first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int> read_int(std::string_view text) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// As sysfs names it: in small letters, with a domain of four digits.
std::string sysfs_name(std::string_view pci_id) {
  if (const std::size_t colon = pci_id.find(':'); colon > 4 && colon != std::string_view::npos)
    pci_id.remove_prefix(colon - 4);
  std::string name;
  for (const char c : pci_id) name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

}  // namespace

std::vector<int> read_id_list(std::string_view text) {
  std::vector<int> ids;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t dash = part.find('-');
    const auto first = read_int(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : read_int(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > 4095) return {};
    for (int id = *first; id <= *last; ++id) ids.push_back(id);
  }
  return ids;
}

NearMemory near_memory(std::string_view pci_id, const std::filesystem::path& sys) {
  const auto online = first_line(sys / "devices/system/node/online");
  const std::vector<int> nodes = online ? read_id_list(*online) : std::vector<int>{};
  if (nodes.size() < 2) return {};  // one memory: it is near
  const std::filesystem::path file = sys / "bus/pci/devices" / sysfs_name(pci_id) / "numa_node";
  const auto line = first_line(file);
  if (!line) return {-1, format("{} cannot be read", file.string())};
  const auto node = read_int(*line);
  if (!node || std::find(nodes.begin(), nodes.end(), *node) == nodes.end())
    return {-1, format("{} says {}, and the machine has {} memories ({})", file.string(), *line, nodes.size(),
                       *online)};
  return {*node, {}};
}

#ifdef __linux__

namespace {
constexpr int kModeDefault = 0, kModePreferred = 1;  // of set_mempolicy(2)
}

PreferNode::PreferNode(int node) {
  if (node < 0 || node >= kNodesMost) return;
  if (syscall(SYS_get_mempolicy, &mode_before_, nodes_before_, kNodesMost, nullptr, 0) != 0) return;
  unsigned long nodes[kWords] = {};
  constexpr int bits = 8 * sizeof(unsigned long);
  nodes[node / bits] = 1ul << (node % bits);
  // The kernel leaves the last bit out.
  holds_ = syscall(SYS_set_mempolicy, kModePreferred, nodes, kNodesMost + 1) == 0;
}

PreferNode::~PreferNode() {
  if (!holds_) return;
  if (mode_before_ == kModeDefault)
    (void)syscall(SYS_set_mempolicy, kModeDefault, nullptr, 0);
  else
    (void)syscall(SYS_set_mempolicy, mode_before_, nodes_before_, kNodesMost + 1);
}

#else

PreferNode::PreferNode(int) {}
PreferNode::~PreferNode() = default;

#endif

}  // namespace fourfold
