// A library that answers as NVML would on a machine with two GPUs, one of which refuses most questions: what
// nvml.cpp calls, by the names and layouts of NVIDIA's own header.
#include <cstring>

#define NVML extern "C" __attribute__((visibility("default"))) int

namespace {

constexpr int kOk = 0, kNotSupported = 3;
int handles[2] = {0, 1};

int index_of(void* device) { return *static_cast<int*>(device); }
int one(void* device, unsigned* out, unsigned value) {
  if (index_of(device) == 1) return kNotSupported;
  *out = value;
  return kOk;
}
int two(void* device, unsigned* first, unsigned* second, unsigned a, unsigned b) {
  if (index_of(device) == 1) return kNotSupported;
  *first = a, *second = b;
  return kOk;
}
int text(char* out, unsigned size, const char* value) {
  std::strncpy(out, value, size);
  return kOk;
}

struct Bytes {
  unsigned long long total, free, used;
};
struct Pci {
  char legacy[16];
  unsigned numbers[5];
  char id[32];
};
struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned instances[2];
};

}  // namespace

NVML nvmlInit_v2() { return kOk; }
NVML nvmlShutdown() { return kOk; }
NVML nvmlSystemGetDriverVersion(char* out, unsigned size) { return text(out, size, "595.58.03"); }
NVML nvmlSystemGetCudaDriverVersion(int* out) { return *out = 13020, kOk; }
NVML nvmlDeviceGetCount_v2(unsigned* out) { return *out = 2, kOk; }
NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) { return *out = &handles[index], kOk; }
NVML nvmlDeviceGetName(void*, char* out, unsigned size) { return text(out, size, "NVIDIA GeForce RTX 5090"); }
NVML nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  return *major = 12, *minor = 0, kOk;
}
NVML nvmlDeviceGetMemoryInfo(void* device, Bytes* out) {
  if (index_of(device) == 1) return kNotSupported;
  return *out = {32607ull << 20, 31607ull << 20, 1000ull << 20}, kOk;
}
NVML nvmlDeviceGetBAR1MemoryInfo(void*, Bytes* out) { return *out = {256ull << 20, 0, 0}, kOk; }
NVML nvmlDeviceGetEccMode(void* device, unsigned* now, unsigned* next) {
  return two(device, now, next, 1, 0);
}
NVML nvmlDeviceGetMigMode(void*, unsigned*, unsigned*) { return kNotSupported; }
NVML nvmlDeviceGetPersistenceMode(void* device, unsigned* out) { return one(device, out, 1); }
NVML nvmlDeviceGetPowerManagementLimit(void* device, unsigned* out) { return one(device, out, 400'000); }
NVML nvmlDeviceGetPowerManagementDefaultLimit(void* device, unsigned* out) {
  return one(device, out, 575'000);
}
NVML nvmlDeviceGetPowerManagementLimitConstraints(void* device, unsigned* least, unsigned* most) {
  return two(device, least, most, 400'000, 600'000);
}
NVML nvmlDeviceGetPowerUsage(void* device, unsigned* out) { return one(device, out, 12'345); }
NVML nvmlDeviceGetClockInfo(void* device, int clock, unsigned* out) {
  return one(device, out, clock == 1 ? 180 : 405);
}
NVML nvmlDeviceGetMaxClockInfo(void* device, int clock, unsigned* out) {
  return one(device, out, clock == 1 ? 3090 : 14001);
}
NVML nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* out) {
  return *out = index_of(device) == 0 ? 0x44 : 0, kOk;
}
NVML nvmlDeviceGetTemperature(void*, int, unsigned* out) { return *out = 61, kOk; }
NVML nvmlDeviceGetTemperatureThreshold(void*, int, unsigned*) { return kNotSupported; }
NVML nvmlDeviceGetCurrPcieLinkGeneration(void* device, unsigned* out) { return one(device, out, 1); }
NVML nvmlDeviceGetMaxPcieLinkGeneration(void* device, unsigned* out) { return one(device, out, 5); }
NVML nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* out) { return one(device, out, 8); }
NVML nvmlDeviceGetMaxPcieLinkWidth(void* device, unsigned* out) { return one(device, out, 16); }
NVML nvmlDeviceGetUtilizationRates(void* device, unsigned* out) { return two(device, out, out + 1, 7, 3); }
NVML nvmlDeviceGetPciInfo_v3(void*, Pci* out) {
  std::strcpy(out->id, "00000000:0A:00.0");
  return kOk;
}
NVML nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, Process* out) {
  out[0] = {17, 300ull << 20, {0, 0}};
  out[1] = {18, ~0ull, {0, 0}};  // not known
  return *count = 2, kOk;
}
NVML nvmlDeviceGetP2PStatus(void*, void*, int kind, int* out) {
  return *out = kind == 1 ? 4 : kind == 2 ? 5 : 0, kOk;
}
NVML nvmlDeviceGetTopologyCommonAncestor(void*, void*, int* out) { return *out = 30, kOk; }
