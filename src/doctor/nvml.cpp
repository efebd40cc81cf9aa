#include "doctor/nvml.h"

#include <dlfcn.h>

#include <array>
#include <cstdint>

#include "base/format.h"
#include "doctor/source.h"

namespace fourfold::doctor {
namespace {

// The parts of NVML's and CUDA's stable C interfaces that are used here; names and values are NVIDIA's.
using Device = void*;
using Answer = std::optional<std::string>;
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct Bar1Info {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct PciInfo {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
constexpr int kOk = 0;
constexpr int kLibraryMismatch = 18;  // NVML_ERROR_LIB_RM_VERSION_MISMATCH
constexpr int kDriverNotLoaded = 9;   // NVML_ERROR_DRIVER_NOT_LOADED
constexpr int kClockSm = 1, kClockMemory = 2;
constexpr int kSmemOptinAttribute = 97;  // CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
constexpr unsigned kProcessesMax = 256;
constexpr unsigned long long kMb = 1 << 20;

struct Reason {
  unsigned long long bit;
  const char* name;
};
constexpr std::array<Reason, 9> kReasons{{{0x1, "idle"},
                                          {0x2, "application_clocks"},
                                          {0x4, "power_cap"},
                                          {0x8, "hardware_slowdown"},
                                          {0x10, "sync_boost"},
                                          {0x20, "software_thermal"},
                                          {0x40, "hardware_thermal"},
                                          {0x80, "power_brake"},
                                          {0x100, "display"}}};

// A function of a library that takes these arguments; an error when the library is too old to have it.
template <class... Args>
int call(void* library, const char* name, Args... args) {
  const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library, name));
  return function == nullptr ? -1 : function(args...);
}

std::optional<unsigned> one(void* nvml, const char* name, Device device) {
  unsigned value = 0;
  if (call(nvml, name, device, &value) != kOk) return std::nullopt;
  return value;
}

std::string or_dash(std::optional<unsigned> value) { return value ? std::to_string(*value) : "-"; }
Answer on_off(bool on) { return on ? "on" : "off"; }

Answer name_of(void* nvml, Device device) {
  char name[96] = {};
  if (call(nvml, "nvmlDeviceGetName", device, &name[0], 96u) != kOk) return std::nullopt;
  return name;
}

Answer cc_of(void* nvml, Device device) {
  int major = 0, minor = 0;
  if (call(nvml, "nvmlDeviceGetCudaComputeCapability", device, &major, &minor) != kOk) return std::nullopt;
  return fourfold::format("{}.{}", major, minor);
}

Answer memory_of(void* nvml, Device device) {
  MemoryInfo memory{};
  if (call(nvml, "nvmlDeviceGetMemoryInfo", device, &memory) != kOk) return std::nullopt;
  return fourfold::format("{} {}", memory.total / kMb, memory.used / kMb);
}

Answer bar1_of(void* nvml, Device device) {
  Bar1Info bar{};
  if (call(nvml, "nvmlDeviceGetBAR1MemoryInfo", device, &bar) != kOk) return std::nullopt;
  return std::to_string(bar.total / kMb);
}

Answer mode_of(void* nvml, const char* name, Device device) {
  unsigned current = 0, pending = 0;
  if (call(nvml, name, device, &current, &pending) != kOk) return std::nullopt;
  return on_off(current != 0);
}

// Watts: limit, factory limit, most that may be set, drawn now.
Answer power_of(void* nvml, Device device) {
  const auto limit = one(nvml, "nvmlDeviceGetPowerManagementLimit", device);
  if (!limit) return std::nullopt;
  const auto watts = [](std::optional<unsigned> milli) {
    return or_dash(milli ? std::optional(*milli / 1000) : std::nullopt);
  };
  unsigned least = 0, most = 0;
  const bool has_range =
      call(nvml, "nvmlDeviceGetPowerManagementLimitConstraints", device, &least, &most) == kOk;
  return fourfold::format("{} {} {} {}", watts(limit),
                          watts(one(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", device)),
                          watts(has_range ? std::optional(most) : std::nullopt),
                          watts(one(nvml, "nvmlDeviceGetPowerUsage", device)));
}

// MHz: SM now and at most, memory now and at most.
Answer clocks_of(void* nvml, Device device) {
  std::string text;
  for (const int clock : {kClockSm, kClockMemory})
    for (const char* name : {"nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo"}) {
      unsigned mhz = 0;
      const bool ok = call(nvml, name, device, clock, &mhz) == kOk;
      text += (text.empty() ? "" : " ") + or_dash(ok ? std::optional(mhz) : std::nullopt);
    }
  return text;
}

Answer throttle_of(void* nvml, Device device) {
  unsigned long long bits = 0;
  if (call(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", device, &bits) != kOk) return std::nullopt;
  std::string text;
  for (const Reason& reason : kReasons)
    if ((bits & reason.bit) != 0) text += (text.empty() ? "" : ",") + std::string(reason.name);
  return text.empty() ? "none" : text;
}

// Degrees: now, and where the chip slows down.
Answer temperature_of(void* nvml, Device device) {
  unsigned now = 0, slowdown = 0;
  if (call(nvml, "nvmlDeviceGetTemperature", device, 0, &now) != kOk) return std::nullopt;
  const bool has_limit = call(nvml, "nvmlDeviceGetTemperatureThreshold", device, 1, &slowdown) == kOk;
  return fourfold::format("{} {}", now, or_dash(has_limit ? std::optional(slowdown) : std::nullopt));
}

// Generation now, of this slot at best, of the chip at best; lanes now and at best.
Answer pcie_of(void* nvml, Device device) {
  std::string text;
  for (const char* name : {"nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkGeneration",
                           "nvmlDeviceGetGpuMaxPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth",
                           "nvmlDeviceGetMaxPcieLinkWidth"})
    text += (text.empty() ? "" : " ") + or_dash(one(nvml, name, device));
  if (text == "- - - - -") return std::nullopt;
  return text;
}

Answer processes_of(void* nvml, Device device) {
  std::array<ProcessInfo, kProcessesMax> processes{};
  unsigned count = kProcessesMax;
  if (call(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", device, &count, processes.data()) != kOk)
    return std::nullopt;
  unsigned long long bytes = 0;
  for (unsigned i = 0; i < count; ++i)
    if (processes[i].used_bytes != ~0ull) bytes += processes[i].used_bytes;
  return fourfold::format("{} {}", count, bytes / kMb);
}

Answer utilization_of(void* nvml, Device device) {
  Utilization used{};
  if (call(nvml, "nvmlDeviceGetUtilizationRates", device, &used) != kOk) return std::nullopt;
  return std::to_string(used.gpu);
}

// As sysfs writes it: four digits of domain, small letters.
Answer pci_of(void* nvml, Device device) {
  PciInfo pci{};
  if (call(nvml, "nvmlDeviceGetPciInfo_v3", device, &pci) != kOk) return std::nullopt;
  std::string id(pci.id);
  if (id.size() > 12) id = id.substr(id.size() - 12);
  for (char& letter : id)
    if (letter >= 'A' && letter <= 'F') letter = static_cast<char>(letter - 'A' + 'a');
  return id;
}

Answer of_one(void* nvml, Device device, const std::string& what) {
  if (what == "name") return name_of(nvml, device);
  if (what == "cc") return cc_of(nvml, device);
  if (what == "memory") return memory_of(nvml, device);
  if (what == "bar1") return bar1_of(nvml, device);
  if (what == "ecc") return mode_of(nvml, "nvmlDeviceGetEccMode", device);
  if (what == "mig") return mode_of(nvml, "nvmlDeviceGetMigMode", device);
  if (what == "power") return power_of(nvml, device);
  if (what == "clocks") return clocks_of(nvml, device);
  if (what == "throttle") return throttle_of(nvml, device);
  if (what == "temperature") return temperature_of(nvml, device);
  if (what == "pcie") return pcie_of(nvml, device);
  if (what == "processes") return processes_of(nvml, device);
  if (what == "utilization") return utilization_of(nvml, device);
  if (what == "pci") return pci_of(nvml, device);
  if (what == "persistence") {
    const auto mode = one(nvml, "nvmlDeviceGetPersistenceMode", device);
    return mode ? on_off(*mode != 0) : std::nullopt;
  }
  return std::nullopt;
}

Answer of_two(void* nvml, Device left, Device right, const std::string& what) {
  int answer = -1;
  if (what == "p2p") {
    constexpr std::array<const char*, 6> names{"ok",       "chipset not supported", "gpu not supported",
                                               "topology", "disabled by regkey",    "not supported"};
    // Reading and writing may differ; the worse one counts.
    std::string worst = "ok";
    for (const int direction : {0, 1}) {
      if (call(nvml, "nvmlDeviceGetP2PStatus", left, right, direction, &answer) != kOk) return std::nullopt;
      if (answer != 0)
        worst = answer < static_cast<int>(names.size()) ? names[static_cast<std::size_t>(answer)] : "unknown";
    }
    return worst;
  }
  if (what == "nvlink") {
    constexpr int nvlink = 2;
    if (call(nvml, "nvmlDeviceGetP2PStatus", left, right, nvlink, &answer) != kOk) return std::nullopt;
    return answer == 0 ? "yes" : "no";
  }
  if (what != "topology") return std::nullopt;
  if (call(nvml, "nvmlDeviceGetTopologyCommonAncestor", left, right, &answer) != kOk) return std::nullopt;
  switch (answer) {
    case 0: return "internal";
    case 10: return "switch";
    case 20: return "switches";
    case 30: return "hostbridge";
    case 40: return "node";
    case 50: return "system";
    default: return std::nullopt;
  }
}

std::optional<Device> device_at(void* nvml, const std::string& index) {
  const auto number = parse_number(index);
  Device device = nullptr;
  if (!number || call(nvml, "nvmlDeviceGetHandleByIndex_v2", static_cast<unsigned>(*number), &device) != kOk)
    return std::nullopt;
  return device;
}

Answer of_system(void* nvml, const std::string& what) {
  if (what == "driver") {
    char version[96] = {};
    if (call(nvml, "nvmlSystemGetDriverVersion", &version[0], 96u) != kOk) return std::nullopt;
    return version;
  }
  if (what == "cuda") {
    int version = 0;
    if (call(nvml, "nvmlSystemGetCudaDriverVersion", &version) != kOk) return std::nullopt;
    return fourfold::format("{}.{}", version / 1000, version % 1000 / 10);
  }
  if (what == "count") {
    unsigned count = 0;
    if (call(nvml, "nvmlDeviceGetCount_v2", &count) != kOk) return std::nullopt;
    return std::to_string(count);
  }
  return std::nullopt;
}

}  // namespace

NvidiaLibraries::NvidiaLibraries() {
  nvml_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (nvml_ != nullptr) nvml_status_ = call(nvml_, "nvmlInit_v2");
  cuda_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (cuda_ != nullptr) cuda_is_open_ = call(cuda_, "cuInit", 0u) == kOk;
}

NvidiaLibraries::~NvidiaLibraries() {
  if (nvml_status_ == kOk) call(nvml_, "nvmlShutdown");
  // The libraries stay loaded: the CUDA runtime of this program may use them as well.
}

std::optional<std::string> NvidiaLibraries::ask_nvml(const std::vector<std::string>& words) {
  if (words.empty()) return std::nullopt;
  if (words.front() == "error") {
    if (nvml_status_ == kOk) return "none";
    if (nvml_status_ == -1) return "no library";
    if (nvml_status_ == kLibraryMismatch) return "driver and library differ";
    return nvml_status_ == kDriverNotLoaded ? "driver not loaded"
                                            : fourfold::format("error {}", nvml_status_);
  }
  if (nvml_status_ != kOk) return std::nullopt;
  if (words.size() == 1) return of_system(nvml_, words[0]);
  const auto device = device_at(nvml_, words[0]);
  if (!device) return std::nullopt;
  if (words.size() == 2) return of_one(nvml_, *device, words[1]);
  const auto peer = device_at(nvml_, words[1]);
  return peer && words.size() == 3 ? of_two(nvml_, *device, *peer, words[2]) : std::nullopt;
}

std::optional<std::string> NvidiaLibraries::ask_cuda(const std::vector<std::string>& words) {
  if (!cuda_is_open_ || words.size() != 2 || words[1] != "smem_optin") return std::nullopt;
  const auto index = parse_number(words[0]);
  int device = 0, bytes = 0;
  if (!index || call(cuda_, "cuDeviceGet", &device, static_cast<int>(*index)) != kOk ||
      call(cuda_, "cuDeviceGetAttribute", &bytes, kSmemOptinAttribute, device) != kOk)
    return std::nullopt;
  return std::to_string(bytes);
}

}  // namespace fourfold::doctor
