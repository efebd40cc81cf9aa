// The GPU side of the program. gpu_cuda.cpp is built when CUDA is, gpu_none.cpp otherwise; nothing else knows
// which.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/bench/moe_bench.h"
#include "kernels/launch/machine.h"

namespace fourfold::kernels {

struct GpuState {
  std::string name;    // "NVIDIA H200"
  std::string driver;  // "CUDA 13.0"
  int sm_clock_mhz = 0;
  int memory_clock_mhz = 0;
};

// One GPU's stream and machine.
class Gpu {
 public:
  virtual ~Gpu() = default;
  // Makes it the device of the calling thread: needed when another thread opened it.
  virtual void use() = 0;
  virtual kernels::Machine& machine() = 0;
  virtual void* stream() = 0;  // cudaStream_t
  virtual GpuState state() const = 0;
  // What reading memory reaches at most, measured now.
  virtual double read_gb_per_s() = 0;
  // Microseconds of each timed replay of what `record` launches, captured as a graph.
  virtual std::vector<double> time(int rounds, const std::function<void()>& record) = 0;
  virtual bench::MoeBenchReport bench_moe(const bench::MoeBenchOptions& options) = 0;
};

// The memory of each of these GPUs (none given: of all) copied to every other's and compared byte by byte:
// some machines return other values without an error.
struct PeerCheck {
  bool tested = false;  // there were pairs that can reach each other
  bool all = false;     // every pair can
  std::string wrong;    // the first pair that returned something else
};
PeerCheck check_peers(std::vector<int> gpus = {});

// Copies that run beside whatever else the GPUs do, on a stream of their own: each call adds some megabytes
// from one GPU's memory to another's, or within one.
class CopyLoad {
 public:
  virtual ~CopyLoad() = default;
  virtual void add() = 0;
};
std::unique_ptr<CopyLoad> make_copy_load(int from, int to);

// GPUs that can be used, from number 0 on.
int gpu_count();

struct GpuMemory {
  std::int64_t free = 0, total = 0;  // bytes, as of now
};
GpuMemory gpu_memory(int index);

// Why page-locked memory may be far from a GPU, on a machine with several memories; empty: it is near.
std::string why_far(int index);

// Throws unsupported_device with the reason and the next step.
std::unique_ptr<Gpu> open_gpu(int index);

bool has_cuda_kernels();

// Why there is no GPU to use; empty when there is one.
std::string why_no_gpu();

}  // namespace fourfold::kernels
