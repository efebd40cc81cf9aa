// Built where there is nvcc.
#include "base/error.h"
#include "kernels/bench/device_tools.h"
#include "kernels/gpu/gpu.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/cuda_launch.h"
#include "kernels/launch/cuda_machine.h"

namespace fourfold::kernels {
namespace {

class CudaGpu final : public Gpu {
 public:
  // The stream belongs to the device that is current.
  explicit CudaGpu(int index) : index_(index), stream_((use(), bench::make_stream()), bench::destroy_stream) {
    machine_ =
        kernels::make_cuda_machine({.device = index, .stream = stream_.get(), .dependent_launch = true});
  }
  void use() override { kernels::cuda_check(cudaSetDevice(index_), "selecting the device"); }
  kernels::Machine& machine() override { return *machine_; }
  void* stream() override { return stream_.get(); }
  GpuState state() const override {
    const bench::DeviceState state = bench::device_state();
    return {state.name, state.driver, state.sm_clock_mhz, state.memory_clock_mhz};
  }
  double read_gb_per_s() override {
    constexpr std::size_t bytes = std::size_t{4} << 30;
    kernels::Arena arena(machine_->memory());
    auto* data = arena.take<unsigned char>(bytes, "data for the memory ceiling");
    bench::fill_random(data, bytes / 4, 1, ~0u, 0u, stream_.get());
    return bench::read_ceiling_gbps(data, bytes, stream_.get());
  }
  std::vector<double> time(int rounds, const std::function<void()>& record) override {
    return bench::time_graph(stream_.get(), rounds, record);
  }
  bench::MoeBenchReport bench_moe(const bench::MoeBenchOptions& options) override {
    return bench::bench_moe(*machine_, stream_.get(), options);
  }

 private:
  int index_;
  std::unique_ptr<void, void (*)(void*)> stream_;
  std::unique_ptr<kernels::Machine> machine_;
};

// Memory of one device, given back when it goes.
class DeviceBytes {
 public:
  DeviceBytes(int device, std::size_t bytes) : device_(device) {
    kernels::cuda_check(cudaSetDevice(device), "selecting the device");
    kernels::cuda_check(cudaMalloc(&data_, bytes), "memory for a copy between GPUs");
  }
  ~DeviceBytes() {
    if (cudaSetDevice(device_) == cudaSuccess) cudaFree(data_);
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void* get() const { return data_; }

 private:
  int device_;
  void* data_ = nullptr;
};

// What is sent differs by pair, so that a stale buffer of another pair is noticed as well.
bool copy_arrives(int from, int to) {
  constexpr std::size_t words = std::size_t{4} << 20;
  constexpr std::size_t bytes = words * sizeof(unsigned);
  std::vector<unsigned> sent(words), got(words);
  for (std::size_t i = 0; i < words; ++i)
    sent[i] = static_cast<unsigned>(i) * 2654435761u + static_cast<unsigned>(from * 131 + to);
  const DeviceBytes source(from, bytes), target(to, bytes);
  kernels::cuda_check(cudaMemcpy(source.get(), sent.data(), bytes, cudaMemcpyHostToDevice),
                      "sending to a GPU");
  kernels::cuda_check(cudaMemcpyPeer(target.get(), to, source.get(), from, bytes), "copying between GPUs");
  kernels::cuda_check(cudaMemcpy(got.data(), target.get(), bytes, cudaMemcpyDeviceToHost),
                      "reading from a GPU");
  return got == sent;
}

class CudaCopyLoad final : public CopyLoad {
 public:
  CudaCopyLoad(int from, int to)
      : from_(from),
        to_(to),
        target_(to, kBytes),
        source_(from, kBytes),  // which leaves this device selected, for the stream
        stream_(bench::make_stream(), bench::destroy_stream) {}
  void add() override {
    const auto stream = static_cast<cudaStream_t>(stream_.get());
    kernels::cuda_check(
        from_ == to_ ? cudaMemcpyAsync(target_.get(), source_.get(), kBytes, cudaMemcpyDeviceToDevice, stream)
                     : cudaMemcpyPeerAsync(target_.get(), to_, source_.get(), from_, kBytes, stream),
        "copying between GPUs, as load");
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{16} << 20;
  int from_, to_;
  DeviceBytes target_, source_;
  std::unique_ptr<void, void (*)(void*)> stream_;
};

}  // namespace

std::unique_ptr<CopyLoad> make_copy_load(int from, int to) {
  return std::make_unique<CudaCopyLoad>(from, to);
}

GpuMemory gpu_memory(int index) {
  kernels::cuda_check(cudaSetDevice(index), "selecting the device");
  std::size_t free = 0, total = 0;
  kernels::cuda_check(cudaMemGetInfo(&free, &total), "asking for free memory");
  return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
}

std::string why_far(int index) { return kernels::near_memory_of(index).why_not; }

PeerCheck check_peers(std::vector<int> gpus) {
  PeerCheck result;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return result;
  if (gpus.empty())
    for (int gpu = 0; gpu < count; ++gpu) gpus.push_back(gpu);
  result.all = true;
  for (const int from : gpus)
    for (const int to : gpus) {
      int reachable = 0;
      if (from == to) continue;
      if (cudaDeviceCanAccessPeer(&reachable, from, to) != cudaSuccess || reachable == 0) {
        result.all = false;
        continue;
      }
      kernels::cuda_check(cudaSetDevice(from), "selecting the device");
      // Already on is as good; the error must not stay behind.
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(to, 0);
      if (enabled != cudaSuccess) cudaGetLastError();
      if (enabled != cudaSuccess && enabled != cudaErrorPeerAccessAlreadyEnabled) {
        result.all = false;
        continue;
      }
      result.tested = true;
      if (!copy_arrives(from, to) && result.wrong.empty())
        result.wrong = fourfold::format("from GPU {} to GPU {}", from, to);
    }
  return result;
}

int gpu_count() {
  std::string why;
  int count = 0;
  for (const auto& device : kernels::cuda_devices(why)) {
    if (!device.refused.empty()) break;
    ++count;
  }
  return count;
}

bool has_cuda_kernels() { return true; }

std::string why_no_gpu() {
  std::string why;
  const auto devices = kernels::cuda_devices(why);
  if (devices.empty()) return why;
  for (const auto& device : devices)
    if (device.refused.empty()) return {};
  return devices.front().refused;
}

std::unique_ptr<Gpu> open_gpu(int index) {
  std::string why;
  const auto devices = kernels::cuda_devices(why);
  if (devices.empty())
    fail_with_hint(Code::unsupported_device, "Run on a machine with an NVIDIA GPU and its driver.",
                   "no GPU can be used: {}", why);
  if (index < 0 || index >= static_cast<int>(devices.size()))
    fail_with_hint(Code::unsupported_device,
                   fourfold::format("Devices are numbered from 0; there are {}.", devices.size()),
                   "there is no GPU {}", index);
  const auto& device = devices[static_cast<std::size_t>(index)];
  if (!device.refused.empty()) throw Error(Code::unsupported_device, device.refused);
  return std::make_unique<CudaGpu>(index);
}

}  // namespace fourfold::kernels
