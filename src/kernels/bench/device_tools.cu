#include "kernels/bench/device_tools.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "base/format.h"
#include "base/random.h"
#include "kernels/launch/cuda_launch.h"
#include "kernels/record/record.h"

namespace fourfold::bench {
// A name of its own: nvcc would call what has none by a hash of the folder that it was built in, and wheels
// of two folders would differ.
namespace tools {

__device__ std::uint32_t random_word(std::uint64_t seed, std::uint64_t index) {
  return static_cast<std::uint32_t>(random_bits(seed, index));
}

__global__ void fill_kernel(std::uint32_t* words, std::size_t count, std::uint64_t seed,
                            std::uint32_t and_mask, std::uint32_t or_mask) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    words[i] = (random_word(seed, i) & and_mask) | or_mask;
}

// The last words of a record are its scales: bytes 0x60..0x77 are moderate in both formats (E4M3 32..240,
// UE8M0 2^-31..2^-8). scale_bias: what another coding adds to each.
__global__ void fill_records_kernel(std::uint32_t* words, std::size_t count, int record_words,
                                    std::uint64_t seed, std::uint32_t scale_bias) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    const std::uint32_t word = random_word(seed, i);
    const bool scale = i % record_words >= record::kPayloadBytes / 4;
    words[i] = scale ? ((word & 0x17171717u) | 0x60606060u) + scale_bias : word;
  }
}

__global__ void __launch_bounds__(512)
    read_kernel(const uint4* data, std::size_t count, std::uint32_t* sink) {
  std::uint32_t sum = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(data + i));
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x5EEDu) *sink = sum;  // never, but the compiler cannot know
}

}  // namespace tools

namespace {

using kernels::cuda_check;

int sm_count() {
  int device = 0, count = 0;
  cuda_check(cudaGetDevice(&device), "asking for the device");
  cuda_check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "counting SMs");
  return count;
}

float elapsed_ms(cudaEvent_t from, cudaEvent_t to) {
  float ms = 0.0f;
  cuda_check(cudaEventElapsedTime(&ms, from, to), "timing");
  return ms;
}

struct Events {
  cudaEvent_t begin{}, end{};
  Events() {
    cuda_check(cudaEventCreate(&begin), "making an event");
    cuda_check(cudaEventCreate(&end), "making an event");
  }
  ~Events() {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
};

}  // namespace

void fill_random(void* words, std::size_t count, std::uint64_t seed, std::uint32_t and_mask,
                 std::uint32_t or_mask, void* stream) {
  tools::fill_kernel<<<8 * sm_count(), 256, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<std::uint32_t*>(words), count, seed, and_mask, or_mask);
  cuda_check(cudaGetLastError(), "filling device memory");
}

void fill_records(void* records, std::size_t bytes, int record_bytes, std::uint64_t seed,
                  std::uint32_t scale_bias, void* stream) {
  tools::fill_records_kernel<<<8 * sm_count(), 256, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<std::uint32_t*>(records), bytes / 4, record_bytes / 4, seed, scale_bias);
  cuda_check(cudaGetLastError(), "filling records");
}

double read_ceiling_gbps(const void* data, std::size_t bytes, void* stream) {
  const auto queue = static_cast<cudaStream_t>(stream);
  std::uint32_t* sink = nullptr;
  cuda_check(cudaMalloc(&sink, 4), "allocating a word");
  Events events;
  double best = 0.0;
  for (const int blocks : {4, 8, 16})
    for (int round = 0; round < 6; ++round) {
      cuda_check(cudaEventRecord(events.begin, queue), "timing");
      tools::read_kernel<<<blocks * sm_count(), 512, 0, queue>>>(static_cast<const uint4*>(data), bytes / 16,
                                                                 sink);
      cuda_check(cudaEventRecord(events.end, queue), "timing");
      cuda_check(cudaEventSynchronize(events.end), "measuring the memory ceiling");
      best = std::max(best, static_cast<double>(bytes) / 1e6 / elapsed_ms(events.begin, events.end));
    }
  cuda_check(cudaFree(sink), "freeing a word");
  return best;
}

void* make_stream() {
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  return stream;
}
void destroy_stream(void* stream) {
  (void)cudaStreamDestroy(static_cast<cudaStream_t>(stream));  // of a lost device: that is already known
}
void synchronize(void* stream) {
  cuda_check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "waiting for the stream");
}

std::vector<double> time_graph(void* stream, int rounds, const std::function<void()>& record) {
  const auto queue = static_cast<cudaStream_t>(stream);
  cudaGraph_t graph{};
  cudaGraphExec_t executable{};
  cuda_check(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal), "capturing a graph");
  record();
  cuda_check(cudaStreamEndCapture(queue, &graph), "capturing a graph");
  cuda_check(cudaGraphInstantiate(&executable, graph, 0), "instantiating a graph");
  Events events;
  for (int i = 0; i < 3; ++i) cuda_check(cudaGraphLaunch(executable, queue), "warming up");
  std::vector<double> microseconds;
  for (int i = 0; i < rounds; ++i) {
    cuda_check(cudaEventRecord(events.begin, queue), "timing");
    cuda_check(cudaGraphLaunch(executable, queue), "replaying a graph");
    cuda_check(cudaEventRecord(events.end, queue), "timing");
    cuda_check(cudaEventSynchronize(events.end), "replaying a graph");
    microseconds.push_back(1e3 * elapsed_ms(events.begin, events.end));
  }
  cuda_check(cudaGraphExecDestroy(executable), "freeing a graph");
  cuda_check(cudaGraphDestroy(graph), "freeing a graph");
  return microseconds;
}

DeviceState device_state() {
  int device = 0, driver = 0;
  cudaDeviceProp properties{};
  cuda_check(cudaGetDevice(&device), "asking for the device");
  cuda_check(cudaGetDeviceProperties(&properties, device), "reading the device's properties");
  cuda_check(cudaDriverGetVersion(&driver), "asking for the driver");
  DeviceState state;
  state.name = properties.name;
  state.driver = format("CUDA {}.{}", driver / 1000, driver % 1000 / 10);
  cuda_check(cudaDeviceGetAttribute(&state.sm_clock_mhz, cudaDevAttrClockRate, device), "reading clocks");
  cuda_check(cudaDeviceGetAttribute(&state.memory_clock_mhz, cudaDevAttrMemoryClockRate, device),
             "reading clocks");
  state.sm_clock_mhz /= 1000;
  state.memory_clock_mhz /= 1000;
  return state;
}

}  // namespace fourfold::bench
