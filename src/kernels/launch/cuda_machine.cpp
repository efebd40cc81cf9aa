#include "kernels/launch/cuda_machine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "kernels/launch/cuda_rows.h"
#include "kernels/launch/launch_log.h"
#include "kernels/launch/row.h"
#include "kernels/launch/spread.h"
#include "kernels/moe/chips.h"

namespace fourfold::kernels {
namespace {

// The chips this build has kernels for (FOURFOLD_CHIPS); the others are refused by name.
#if FOURFOLD_CHIP_Hopper
constexpr bool kHasHopper = true;
#else
constexpr bool kHasHopper = false;
#endif
#if FOURFOLD_CHIP_Workstation
constexpr bool kHasWorkstation = true;
#else
constexpr bool kHasWorkstation = false;
#endif

std::vector<CudaRow> rows_of(bool is_hopper) {
  if constexpr (kHasHopper)
    if (is_hopper) return cuda_rows<moe::Hopper>();
  if constexpr (kHasWorkstation)
    if (!is_hopper) return cuda_rows<moe::Workstation>();
  return {};
}

plan::DeviceReport report_of(const cudaDeviceProp& device) {
  plan::DeviceReport report{};
  report.name = device.name;
  report.cc_major = device.major;
  report.cc_minor = device.minor;
  report.smem_bytes_per_block = static_cast<int>(device.sharedMemPerBlockOptin);
  report.smem_bytes_per_sm = static_cast<int>(device.sharedMemPerMultiprocessor);
  report.smem_reserved_bytes_per_block = static_cast<int>(device.reservedSharedMemPerBlock);
  report.registers_per_sm = device.regsPerMultiprocessor;
  report.threads_per_sm = device.maxThreadsPerMultiProcessor;
  report.blocks_per_sm_max = device.maxBlocksPerMultiProcessor;
  report.sm_count = device.multiProcessorCount;
  return report;
}

const plan::ArchFacts* facts_of(const cudaDeviceProp& device) {
  return plan::find_arch(format("sm{}{}", device.major, device.minor));
}

// Why this device cannot run the kernels; empty if it can.
std::string refusal(const cudaDeviceProp& device) {
  const int capability = 10 * device.major + device.minor;
  if (capability != 90 && capability != 120 && capability != 121)
    return format("{} has compute capability {}.{}; kernels are compiled for 9.0, 12.0 and 12.1", device.name,
                  device.major, device.minor);
  if (capability == 90 ? !kHasHopper : !kHasWorkstation)
    return format("{} has compute capability {}.{}; this build was made without its kernels (FOURFOLD_CHIPS)",
                  device.name, device.major, device.minor);
  const plan::ArchFacts* facts = facts_of(device);
  if (facts == nullptr)
    return format("no facts are known for compute capability {}.{}", device.major, device.minor);
  std::string text;
  for (const std::string& mismatch : plan::compare_with_device(*facts, report_of(device)))
    text += (text.empty() ? "" : "; ") + mismatch;
  return text.empty() ? text
                      : format("{} differs from what its kernels were planned for: {}", device.name, text);
}

class CudaMemory final : public Memory {
 public:
  CudaMemory(cudaStream_t stream, const LaunchLog& log, int near_node)
      : stream_(stream), log_(log), near_node_(near_node) {}
  std::int64_t free_bytes() override { return bytes().free; }
  std::int64_t total_bytes() override { return bytes().total; }
  void set_stream(cudaStream_t stream) { stream_ = stream; }
  ~CudaMemory() override {
    if (read_ != nullptr) (void)cudaFreeHost(read_);
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

 private:
  struct Bytes {
    std::int64_t free, total;
  };
  static Bytes bytes() {
    std::size_t free_now = 0, total = 0;
    cuda_check(cudaMemGetInfo(&free_now, &total), "asking for free memory");
    return {static_cast<std::int64_t>(free_now), static_cast<std::int64_t>(total)};
  }
  void* do_allocate(std::size_t size, std::string_view name) override {
    void* pointer = nullptr;
    const cudaError_t status = cudaMalloc(&pointer, size);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      fail(Code::out_of_memory, "{} needs {} bytes; {} of {} are free on the device", name,
           with_commas(static_cast<long long>(size)), with_commas(free_bytes()), with_commas(total_bytes()));
    }
    cuda_check(status, "allocating device memory");
    return pointer;
  }
  void do_release(void* pointer) override { cuda_check(cudaFree(pointer), "freeing device memory"); }
  void do_write(void* to, const void* from, std::size_t bytes) override {
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "copying to the device");
    cuda_check(cudaStreamSynchronize(stream_), "copying to the device");
  }
  // A copy to pageable memory waits for the kernels before it inside the driver, with a lock that keeps other
  // threads from launching: where those kernels wait for another rank's, for ever. So small reads go through
  // page-locked memory, and large ones begin when the kernels have ended.
  void do_read(void* to, const void* from, std::size_t bytes) override {
    constexpr const char* what = "running the kernels before a copy";
    if (bytes > kReadBytes) {
      check_run(what);
      cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_),
                 "copying from the device");
      return check_run(what);
    }
    if (read_ == nullptr) read_ = do_allocate_host(kReadBytes);
    cuda_check(cudaMemcpyAsync(read_, from, bytes, cudaMemcpyDeviceToHost, stream_),
               "copying from the device");
    check_run(what);
    std::memcpy(to, read_, bytes);
  }
  void* do_allocate_host(std::size_t bytes) override {
    void* pointer = nullptr;
    const PreferNode near(near_node_);
    cuda_check(cudaMallocHost(&pointer, bytes), "allocating page-locked memory");
    return pointer;
  }
  void do_release_host(void* pointer) override {
    cuda_check(cudaFreeHost(pointer), "freeing page-locked memory");
  }
  void do_send(void* to, const void* from_host, std::size_t bytes) override {
    cuda_check(cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, stream_),
               "copying to the device");
  }
  void do_copy(void* to, const void* from, std::size_t bytes) override {
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copying on the device");
  }
  void do_clear(void* start, std::size_t bytes) override {
    cuda_check(cudaMemsetAsync(start, 0, bytes, stream_), "clearing device memory");
  }
  void do_wait() override { check_run("running the kernels"); }
  void do_forget(void* start, std::size_t bytes) override {
    cuda_check(cudaMemsetAsync(start, 0xCD, bytes, stream_), "poisoning device memory");
  }
  void check_run(const char* what) const {
    if (const cudaError_t status = cudaStreamSynchronize(stream_); status != cudaSuccess)
      fail(Code::device_lost, "{}: {} ({}){}", what, cudaGetErrorString(status), cudaGetErrorName(status),
           log_.text());
  }

  static constexpr std::size_t kReadBytes = std::size_t{64} << 10;
  cudaStream_t stream_;
  const LaunchLog& log_;
  int near_node_;         // of the host's memories; -1: any
  void* read_ = nullptr;  // page-locked
};

std::string_view node_name(cudaGraphNodeType type) {
  switch (type) {
    case cudaGraphNodeTypeKernel: return "kernel";
    case cudaGraphNodeTypeMemcpy: return "copy";
    case cudaGraphNodeTypeMemset: return "clear";
    case cudaGraphNodeTypeHost: return "host";
    case cudaGraphNodeTypeGraph: return "graph";
    case cudaGraphNodeTypeEmpty: return "empty";
    case cudaGraphNodeTypeWaitEvent: return "event wait";
    case cudaGraphNodeTypeEventRecord: return "event";
    case cudaGraphNodeTypeMemAlloc: return "allocation";
    case cudaGraphNodeTypeMemFree: return "release";
    default: return "unknown";
  }
}

// Walks a captured graph: kernels and nothing else, so that a step never waits for the host. Their number.
int require_kernels(cudaGraph_t graph) {
  std::size_t count = 0;
  cuda_check(cudaGraphGetNodes(graph, nullptr, &count), "counting a graph's nodes");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) cuda_check(cudaGraphGetNodes(graph, nodes.data(), &count), "reading a graph's nodes");
  for (std::size_t i = 0; i < count; ++i) {
    cudaGraphNodeType type{};
    cuda_check(cudaGraphNodeGetType(nodes[i], &type), "reading a graph's node");
    if (type != cudaGraphNodeTypeKernel)
      fail(Code::internal, "node {} of {} of a recorded step is a {} node; only kernels may be recorded", i,
           count, node_name(type));
  }
  return static_cast<int>(count);
}

class CudaRecording final : public Recording {
 public:
  CudaRecording(cudaGraphExec_t exec, int kernel_count) : Recording(kernel_count), exec_(exec) {}
  ~CudaRecording() override { cudaGraphExecDestroy(exec_); }
  cudaGraphExec_t exec() const { return exec_; }

 private:
  cudaGraphExec_t exec_;
};

class CudaMachine final : public Machine {
 public:
  explicit CudaMachine(const CudaMachineOptions& options)
      : stream_(static_cast<cudaStream_t>(options.stream)),
        memory_(stream_, log_, near_memory_of(options.device).node),
        dependent_(options.dependent_launch) {
    cudaDeviceProp device{};
    cuda_check(cudaGetDeviceProperties(&device, options.device), "reading the device's properties");
    if (const std::string why = refusal(device); !why.empty()) throw Error(Code::unsupported_device, why);
    cuda_check(cudaSetDevice(options.device), "selecting the device");
    apart_bytes_ = apart_bytes();
    arch_ = facts_of(device);
    sm_count_ = device.multiProcessorCount;
    description_ = format("{}, {}", device.name, arch_->name);
    const int capability = 10 * device.major + device.minor;
    for (CudaRow& row : rows_of(capability == 90)) prepare(std::move(row));
  }

  Memory& memory() override { return memory_; }
  std::string description() const override { return description_; }
  const plan::ArchFacts& arch() const override { return *arch_; }
  int sm_count() const override { return sm_count_; }
  const std::vector<plan::RowFacts>& rows(RowKind kind) const override {
    return facts_[static_cast<std::size_t>(kind)];
  }
  int walkers(RowHandle, int blocks_per_sm) const override { return blocks_per_sm * sm_count_; }
  std::vector<RefusedRow> refused_rows() const override { return refused_; }
  void set_stream(cudaStream_t stream) {
    stream_ = stream;
    spread_ = {};
    memory_.set_stream(stream);
  }

  void launch(RowHandle row, int blocks, const void* params, std::size_t params_bytes) override {
    const CudaRow& entry = rows_[static_cast<std::size_t>(row.kind)][static_cast<std::size_t>(row.index)];
    check(params_bytes == entry.params_bytes, "a row gets its own params", entry.facts.row, params_bytes,
          entry.params_bytes);
    if (blocks <= 0) return;
    const std::string_view name = told_name(entry.kind, entry.facts);
    log_.note(name);
    launched(name);
    int bytes = entry.facts.total_bytes;
    if (dependent_ && spread_.keeps_apart(entry.facts, blocks, sm_count_))
      bytes = std::max(bytes, apart_bytes_);
    entry.launch(entry.facts.row.c_str(), {blocks, entry.facts.threads, bytes, stream_, dependent_}, params);
  }
  using Machine::launch;
  std::unique_ptr<Recording> record(const std::function<void()>& launches) override {
    const std::unique_ptr<CUgraph_st, void (*)(cudaGraph_t)> graph(
        captured(launches), [](cudaGraph_t captured) { cudaGraphDestroy(captured); });
    const int kernel_count = require_kernels(graph.get());
    cudaGraphExec_t exec = nullptr;
    cuda_check(cudaGraphInstantiate(&exec, graph.get(), 0), "instantiating a graph");
    auto recording = std::make_unique<CudaRecording>(exec, kernel_count);
    // What the first launch would take of the device is taken now, where nobody waits for another rank.
    cuda_check(cudaGraphUpload(exec, stream_), "sending a graph to the device");
    return recording;
  }
  void replay(Recording& recording) override {
    log_.note("a graph");
    spread_ = {};
    cuda_check(cudaGraphLaunch(static_cast<CudaRecording&>(recording).exec(), stream_), "launching a graph");
  }

 private:
  cudaGraph_t captured(const std::function<void()>& launches) {
    cudaGraph_t graph = nullptr;
    const Memory::Recorded recorded(memory_);
    spread_ = {};  // a step is recorded the same way whatever ran before
    cuda_check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "starting a capture");
    try {
      launches();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    cuda_check(cudaStreamEndCapture(stream_, &graph), "ending a capture");
    return graph;
  }

  // Each compiled kernel must keep the plan: as many resident blocks as planned, registers within the cap.
  // One that does not is refused, alone: whoever asks for it is told why.
  void prepare(CudaRow row) {
    const KernelFacts compiled = row.prepare(row.facts.row.c_str());
    if (const std::string why = missed_plan(row.facts, compiled); !why.empty())
      return refused_.push_back({row.facts.row, why, std::string(row.facts.kernel)});
    facts_[static_cast<std::size_t>(row.kind)].push_back(row.facts);
    rows_[static_cast<std::size_t>(row.kind)].push_back(std::move(row));
  }
  static std::string missed_plan(const plan::RowFacts& planned, const KernelFacts& compiled) {
    if (compiled.registers > planned.registers)
      return format("compiled to {} registers, planned at most {}", compiled.registers, planned.registers);
    if (compiled.resident_blocks < planned.blocks_per_sm && !emulates_sm())
      return format("{} blocks fit an SM, planned {}", compiled.resident_blocks, planned.blocks_per_sm);
    return {};
  }

  cudaStream_t stream_;
  LaunchLog log_;
  CudaMemory memory_;
  bool dependent_;
  Spread spread_;
  int apart_bytes_ = 0;  // of shared memory, of a launch that keeps its blocks apart
  const plan::ArchFacts* arch_ = nullptr;
  int sm_count_ = 0;
  std::string description_;
  std::array<std::vector<CudaRow>, kRowKinds> rows_;
  std::array<std::vector<plan::RowFacts>, kRowKinds> facts_;
  std::vector<RefusedRow> refused_;
};

}  // namespace

std::vector<CudaDevice> cuda_devices(std::string& why) {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    cudaGetLastError();
    why = cudaGetErrorString(status);
    return {};
  }
  if (count == 0) why = "no NVIDIA GPU";
  std::vector<CudaDevice> devices;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    cuda_check(cudaGetDeviceProperties(&properties, index), "reading a device's properties");
    devices.push_back({index, properties.name, 10 * properties.major + properties.minor,
                       properties.multiProcessorCount, properties.totalGlobalMem, refusal(properties)});
  }
  return devices;
}

NearMemory near_memory_of(int device) {
  char pci_id[32] = {};
  cuda_check(cudaDeviceGetPCIBusId(pci_id, sizeof pci_id, device), "asking for a device's place");
  return near_memory(pci_id);
}

std::unique_ptr<Machine> make_cuda_machine(const CudaMachineOptions& options) {
  return std::make_unique<CudaMachine>(options);
}

void set_stream(Machine& machine, void* stream) {
  static_cast<CudaMachine&>(machine).set_stream(static_cast<cudaStream_t>(stream));
}

}  // namespace fourfold::kernels
