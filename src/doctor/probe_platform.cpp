// The machine around the GPUs: WSL2, virtual machines, containers, IOMMU, CPUs, memory.
#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/format.h"
#include "doctor/probe_list.h"

namespace fourfold::doctor {
namespace {

constexpr double kMb = 1 << 20;

std::string lower(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

// "always [madvise] never" -> "madvise"
std::string bracketed(const std::string& text) {
  const auto open = text.find('['), close = text.find(']');
  return open == std::string::npos || close == std::string::npos ? ""
                                                                 : text.substr(open + 1, close - open - 1);
}

void set_if(Facts& facts, const std::string& name, const std::string& text) {
  if (!text.empty()) facts.set(name, text);
}

bool overlap(const std::vector<int>& left, const std::vector<int>& right) {
  return std::any_of(left.begin(), left.end(),
                     [&](int cpu) { return std::find(right.begin(), right.end(), cpu) != right.end(); });
}

class PlatformProbe final : public Probe {
 public:
  std::string_view name() const override { return "platform"; }
  void gather(Source& source, Facts& facts) const override {
    gather_kind(source, facts);
    gather_cpus(source, facts);
    gather_nodes(source, facts);
    gather_kernel(source, facts);
  }

 private:
  static void gather_kind(Source& source, Facts& facts) {
    const std::string version = source.text("file /proc/version");
    if (!version.empty()) facts.set("wsl", lower(version).find("microsoft") != std::string::npos);
    const std::string cgroup = source.text("file /proc/1/cgroup");
    facts.set("container", source.ask("file /.dockerenv").has_value() ||
                               source.ask("file /run/.containerenv").has_value() ||
                               cgroup.find("docker") != std::string::npos ||
                               cgroup.find("kubepods") != std::string::npos ||
                               cgroup.find("containerd") != std::string::npos);
    if (const auto bytes = source.number("space /dev/shm")) facts.set("shm_mb", *bytes / kMb);
    const std::string memlock = source.text("limit memlock");
    if (const auto bytes = parse_number(memlock)) facts.set("memlock_mb", *bytes / kMb);
    if (memlock == "unlimited") facts.set("memlock_mb", 1e9);
    const std::string flags = source.text("field /proc/cpuinfo flags");
    // ARM's list of features has no such flag; there the firmware's names must do.
    const std::string vendor = source.text("file /sys/class/dmi/id/sys_vendor");
    const std::string product = source.text("file /sys/class/dmi/id/product_name");
    const std::string both = lower(vendor + " " + product);
    const bool named = both.find("qemu") != std::string::npos || both.find("kvm") != std::string::npos ||
                       both.find("vmware") != std::string::npos ||
                       both.find("virtual") != std::string::npos || both.find("xen") != std::string::npos;
    if (!flags.empty() || !vendor.empty())
      facts.set("virtual", !facts.is_true("wsl") &&
                               (named || (" " + flags + " ").find(" hypervisor ") != std::string::npos));
    set_if(facts, "board", trimmed(vendor + " " + product));
  }

  static void gather_cpus(Source& source, Facts& facts) {
    set_if(facts, "cpu", source.text("field /proc/cpuinfo model name"));
    const std::string vendor = source.text("field /proc/cpuinfo vendor_id");
    if (!vendor.empty()) facts.set("cpu_amd", vendor == "AuthenticAMD");
    const auto online = parse_cpu_list(source.text("file /sys/devices/system/cpu/online"));
    const auto siblings =
        parse_cpu_list(source.text("file /sys/devices/system/cpu/cpu0/topology/thread_siblings_list"));
    if (!online.empty()) {
      facts.set("threads", online.size());
      const std::size_t cores = online.size() / std::max<std::size_t>(siblings.size(), 1);
      facts.set("cores", cores);
      const auto gpus = static_cast<std::size_t>(facts.number_or("gpus", 0));
      facts.set("cores_per_gpu", std::max<std::size_t>(cores / std::max<std::size_t>(gpus, 1), 1));
    }
    const std::string frequency = "file /sys/devices/system/cpu/cpu0/cpufreq/";
    set_if(facts, "governor", source.text(frequency + "scaling_governor"));
    set_if(facts, "governor_driver", source.text(frequency + "scaling_driver"));
    set_if(facts, "energy_preference", source.text(frequency + "energy_performance_preference"));
    const std::string memory = source.text("field /proc/meminfo MemTotal");
    if (const auto kb = parse_number(memory.substr(0, memory.find(' '))))
      facts.set("ram_gb", *kb * 1024 / 1e9);
    set_if(facts, "huge_pages", bracketed(source.text("file /sys/kernel/mm/transparent_hugepage/enabled")));
  }

  // Whether the CPUs this process may use lie near each GPU.
  static void gather_nodes(Source& source, Facts& facts) {
    int nodes = 0;
    for (const std::string& name : source.lines("list /sys/devices/system/node"))
      nodes += name.starts_with("node") && name.size() > 4 &&
               std::isdigit(static_cast<unsigned char>(name[4])) != 0;
    if (nodes > 0) facts.set("nodes", nodes);
    const auto allowed = parse_cpu_list(source.text("field /proc/self/status Cpus_allowed_list"));
    for (int i = 0; i < static_cast<int>(facts.number_or("gpus", 0)); ++i) {
      const double node = facts.number_or(indexed("gpu", i, "node"), -1);
      if (node < 0 || allowed.empty()) continue;
      const auto near = parse_cpu_list(source.text(
          fourfold::format("file /sys/devices/system/node/node{}/cpulist", static_cast<int>(node))));
      if (!near.empty()) facts.set(indexed("gpu", i, "near"), overlap(near, allowed));
    }
  }

  static void gather_kernel(Source& source, Facts& facts) {
    if (const auto command = source.ask("file /proc/cmdline")) {
      facts.set("iommu_pt", (" " + trimmed(*command) + " ").find("iommu=pt ") != std::string::npos);
    }
    const auto units = source.ask("list /sys/class/iommu");
    if (units) facts.set("iommu", !trimmed(*units).empty());
    // "DMA" and "DMA-FQ" translate every address a device uses; "identity" does not.
    for (int i = 0; i < static_cast<int>(facts.number_or("gpus", 0)); ++i) {
      const std::string type = facts.text_or(indexed("gpu", i, "iommu"), "");
      if (!type.empty() && type.starts_with("DMA")) facts.set("iommu_translates", true);
    }
    if (!facts.is_true("iommu_translates") &&
        (facts.get("iommu") == Value(false) || facts.text_or("gpu.0.iommu", "") == "identity"))
      facts.set("iommu_translates", false);
    set_if(facts, "aspm", bracketed(source.text("file /sys/module/pcie_aspm/parameters/policy")));
    const std::string hmm = source.text("file /sys/module/nvidia_uvm/parameters/uvm_disable_hmm");
    if (!hmm.empty()) facts.set("hmm", hmm == "N" || hmm == "0");
  }
};

// Pairs of GPUs: whether they see each other, and over what.
class PeersProbe final : public Probe {
 public:
  std::string_view name() const override { return "peers"; }
  void gather(Source& source, Facts& facts) const override {
    const int count = static_cast<int>(facts.number_or("gpus", 0));
    if (count < 2) return;
    gather_pairs(source, facts, count);
    gather_differences(facts, count);
    gather_acs(source, facts, count);
  }

 private:
  static void gather_pairs(Source& source, Facts& facts, int count) {
    constexpr std::string_view distances[]{"internal", "switch", "switches", "hostbridge", "node", "system"};
    std::size_t farthest = 0;
    std::string p2p, matrix;
    bool has_topology = false, nvlink = true, has_nvlink = false;
    for (int i = 0; i < count; ++i) {
      for (int j = 0; j < count; ++j) {
        if (i == j) continue;
        const std::string pair = fourfold::format("nvml {} {} ", i, j);
        const std::string state = source.text(pair + "p2p"), distance = source.text(pair + "topology");
        const std::string link = source.text(pair + "nvlink");
        if (!state.empty() && (p2p.empty() || p2p == "ok")) p2p = state;
        if (!state.empty()) matrix += state == "ok" ? '+' : '-';
        has_nvlink |= !link.empty();
        nvlink &= link == "yes";
        for (std::size_t k = 0; k < std::size(distances); ++k)
          if (distance == distances[k]) {
            farthest = std::max(farthest, k);
            has_topology = true;
          }
      }
      matrix += i + 1 < count ? " " : "";
    }
    if (!p2p.empty()) {
      facts.set("peers.p2p", p2p);
      facts.set("peers.matrix", matrix);
    }
    if (has_topology) facts.set("peers.distance", std::string(distances[farthest]));
    if (has_nvlink) facts.set("peers.nvlink", nvlink);
  }

  static void gather_differences(Facts& facts, int count) {
    double least = 1e9, most = 0;
    bool same = true;
    for (int i = 0; i < count; ++i) {
      const double watts = facts.number_or(indexed("gpu", i, "power_limit_w"), 0);
      if (watts > 0) {
        least = std::min(least, watts);
        most = std::max(most, watts);
      }
      same &= facts.get(indexed("gpu", i, "name")) == facts.get("gpu.0.name");
    }
    facts.set("peers.same", same);
    if (most > 0) {
      facts.set("peers.power_least_w", least);
      facts.set("peers.power_most_w", most);
    }
  }

  // Bits 2 and 3 of the control word send requests and completions between devices up to the root.
  static void gather_acs(Source& source, Facts& facts, int count) {
    constexpr unsigned redirect = 0x4 | 0x8;
    for (int i = 0; i < count; ++i) {
      const std::string pci = facts.text_or(indexed("gpu", i, "pci"), "");
      for (const std::string& bridge : split(source.text("bridges " + pci), ' ')) {
        const std::string control = source.text("acs " + bridge);
        if (control.empty()) continue;
        unsigned bits = 0;
        std::from_chars(control.data(), control.data() + control.size(), bits, 16);
        const bool on = (bits & redirect) != 0;
        facts.set("peers.acs", on || facts.is_true("peers.acs"));
      }
    }
  }
};

}  // namespace

const Probe& platform_probe() {
  static const PlatformProbe probe;
  return probe;
}

const Probe& peers_probe() {
  static const PeersProbe probe;
  return probe;
}

}  // namespace fourfold::doctor
