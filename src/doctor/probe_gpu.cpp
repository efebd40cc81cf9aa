// What NVML and the product table say of each GPU, and of the driver that serves them.
#include <algorithm>

#include "base/format.h"
#include "doctor/probe_list.h"
#include "plan/arch.h"
#include "plan/products.h"

namespace fourfold::doctor {
namespace {

// Answers of several numbers, "600 600 600 85"; "-" stands for one that is not known.
void set_numbers(Facts& facts, const std::string& answer, const std::string& prefix,
                 std::initializer_list<const char*> names) {
  const auto words = split(answer, ' ');
  std::size_t at = 0;
  for (const char* name : names) {
    if (at < words.size())
      if (const auto number = parse_number(words[at])) facts.set(prefix + name, *number);
    ++at;
  }
}

class DriverProbe final : public Probe {
 public:
  std::string_view name() const override { return "driver"; }
  void gather(Source& source, Facts& facts) const override {
    const std::string kernel = source.text("file /sys/module/nvidia/version");
    const std::string library = source.text("nvml driver");
    if (!kernel.empty()) facts.set("driver.module", kernel);
    const std::string& version = library.empty() ? kernel : library;
    if (!version.empty()) {
      facts.set("driver.version", version);
      facts.set("driver.major", version_code(version) / 100);
    }
    facts.set("driver.error", source.ask("nvml error").value_or("no library"));
    if (const auto text = source.ask("file /proc/driver/nvidia/version"))
      facts.set("driver.open", text->find("Open Kernel Module") != std::string::npos);
    if (const auto cuda = source.ask("nvml cuda")) {
      facts.set("driver.cuda", *cuda);
      facts.set("driver.cuda_major", version_code(*cuda) / 100);
    }
    gather_toolkit(source, facts);
    gather_devices(source, facts);
  }

 private:
  // 13000 is CUDA 13.0.
  static void gather_toolkit(Source& source, Facts& facts) {
    const auto number = source.number("define /usr/local/cuda/include/cuda_runtime_api.h CUDART_VERSION");
    facts.set("toolkit.found", number.has_value());
    if (!number) return;
    const int major = static_cast<int>(*number) / 1000, minor = static_cast<int>(*number) % 1000 / 10;
    facts.set("toolkit.version", fourfold::format("{}.{}", major, minor));
    facts.set("toolkit.code", major * 100 + minor);
    facts.set("toolkit.major", major);
  }

  static void gather_devices(Source& source, Facts& facts) {
    const auto devices = source.lines("pci");
    facts.set("pci.nvidia", devices.size());
    std::string drivers;
    for (const std::string& device : devices) {
      const std::string driver = device.substr(device.rfind(' ') + 1);
      if (drivers.find(driver) == std::string::npos) drivers += (drivers.empty() ? "" : ", ") + driver;
    }
    facts.set("pci.drivers", drivers.empty() ? "none" : drivers);
  }
};

class GpuProbe final : public Probe {
 public:
  std::string_view name() const override { return "gpu"; }
  void gather(Source& source, Facts& facts) const override {
    const int count = static_cast<int>(source.number("nvml count").value_or(0));
    facts.set("gpus", count);
    for (int i = 0; i < count; ++i) gather_one(source, facts, i);
    if (count == 0) return;
    // Servers with several different cards exist; the first speaks for the machine.
    for (const char* name : {"name", "cc", "smem"}) {
      const Value value = facts.get(indexed("gpu", 0, name));
      if (!std::holds_alternative<Unknown>(value)) facts.set_value(std::string("first.") + name, value);
    }
  }

 private:
  static void gather_one(Source& source, Facts& facts, int i) {
    const std::string ask = fourfold::format("nvml {} ", i), gpu = fourfold::format("gpu.{}.", i);
    facts.set(gpu + "index", i);
    const auto text = [&](const char* question, const char* fact) {
      if (const auto answer = source.ask(ask + question)) facts.set(gpu + fact, trimmed(*answer));
    };
    text("name", "name");
    text("throttle", "throttle");
    text("pci", "pci");
    for (const char* name : {"ecc", "mig", "persistence"})
      if (const auto answer = source.ask(ask + name)) facts.set(gpu + name, trimmed(*answer) == "on");
    if (const auto used = source.number(ask + "utilization")) facts.set(gpu + "utilization", *used);
    set_numbers(facts, source.text(ask + "memory"), gpu, {"memory_mb", "memory_used_mb"});
    set_numbers(facts, source.text(ask + "bar1"), gpu, {"bar1_mb"});
    set_numbers(facts, source.text(ask + "power"), gpu,
                {"power_limit_w", "power_default_w", "power_max_w", "power_draw_w"});
    set_numbers(facts, source.text(ask + "clocks"), gpu,
                {"sm_mhz", "sm_max_mhz", "memory_mhz", "memory_max_mhz"});
    set_numbers(facts, source.text(ask + "temperature"), gpu, {"temperature_c", "temperature_slow_c"});
    set_numbers(facts, source.text(ask + "pcie"), gpu,
                {"pcie_gen", "pcie_gen_slot", "pcie_gen_chip", "pcie_lanes", "pcie_lanes_max"});
    set_numbers(facts, source.text(ask + "processes"), gpu, {"processes", "processes_mb"});
    gather_chip(source, facts, i, gpu);
    gather_place(source, facts, gpu);
  }

  // What the planner's tables know of such a chip.
  static void gather_chip(Source& source, Facts& facts, int i, const std::string& gpu) {
    const std::string cc = source.text(fourfold::format("nvml {} cc", i));
    if (const auto number = parse_number(cc)) {
      facts.set(gpu + "cc", cc);
      facts.set(gpu + "cc_number", *number);
      const plan::ArchFacts* arch = plan::find_arch(cc);
      facts.set(gpu + "planned", arch != nullptr);
      if (arch != nullptr) {
        facts.set(gpu + "smem_planned", arch->smem_bytes_per_block);
        facts.set(gpu + "fp4", arch->has_fp4_mma || arch->has_tcgen05);
      }
    }
    if (const auto bytes = source.number(fourfold::format("cuda {} smem_optin", i)))
      facts.set(gpu + "smem", *bytes);
    const plan::Product* product = plan::find_product(facts.text_or(gpu + "name", ""));
    if (product == nullptr) return;
    facts.set(gpu + "product", std::string(product->name));
    facts.set(gpu + "gb_per_s", product->bandwidth_gb_per_s);
    // GB10 has no memory of its own, and NVML does not say how much it may use.
    if (std::holds_alternative<Unknown>(facts.get(gpu + "memory_mb")))
      facts.set(gpu + "memory_mb", product->memory_mib);
  }

  // Where it sits: NUMA node and IOMMU group.
  static void gather_place(Source& source, Facts& facts, const std::string& gpu) {
    const std::string pci = facts.text_or(gpu + "pci", "");
    if (pci.empty()) return;
    const std::string folder = "/sys/bus/pci/devices/" + pci;
    if (const auto node = source.number("file " + folder + "/numa_node"); node && *node >= 0)
      facts.set(gpu + "node", *node);
    const std::string type = source.text("file " + folder + "/iommu_group/type");
    if (!type.empty()) facts.set(gpu + "iommu", type);
  }
};

}  // namespace

const Probe& driver_probe() {
  static const DriverProbe probe;
  return probe;
}

const Probe& gpu_probe() {
  static const GpuProbe probe;
  return probe;
}

}  // namespace fourfold::doctor
