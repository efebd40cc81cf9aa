// Which of a machine's memories is near a PCI device, and memory that is taken there. Linux alone says it;
// elsewhere nothing is known and nothing happens.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold {

struct NearMemory {
  int node = -1;        // -1: none to prefer
  std::string why_not;  // there are several memories, and which is near is not known; empty otherwise
};

// pci_id: "0000:3B:00.0", as drivers write it. sys: where /sys is.
NearMemory near_memory(std::string_view pci_id, const std::filesystem::path& sys = "/sys");

// "0-2,5" as the kernel lists nodes and CPUs; empty when it is not such a list.
std::vector<int> read_id_list(std::string_view text);

// While one lives, pages that this thread touches first come from this node where it has room. -1, or a
// system that refuses: nothing changes.
class PreferNode {
 public:
  explicit PreferNode(int node);
  ~PreferNode();
  PreferNode(const PreferNode&) = delete;
  PreferNode& operator=(const PreferNode&) = delete;
  bool holds() const { return holds_; }

 private:
  static constexpr int kNodesMost = 1024;
  static constexpr int kWords = kNodesMost / 64;
  bool holds_ = false;
  int mode_before_ = 0;
  unsigned long nodes_before_[kWords] = {};
};

}  // namespace fourfold
