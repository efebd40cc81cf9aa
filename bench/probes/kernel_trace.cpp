// When each kernel of a program began and ended on the GPU, by CUPTI, without a change of the program:
//
//   g++ -O1 -shared -fPIC -I/usr/local/cuda/include bench/probes/kernel_trace.cpp -o kernel_trace.so -lcupti
//   KERNEL_TRACE=trace.txt CUDA_INJECTION64_PATH=$PWD/kernel_trace.so fourfold bench model --backend cuda ...
//   python3 bench/probes/kernel_times.py trace.txt
//
// A line a kernel: begin and end in ns, blocks, threads, registers, dynamic shared memory, name. Kernels of graphs are
// lines of their own. It costs a decode step 10 to 30 %, a prompt less than 1 %: compare kernels, not steps, by it.
#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

std::FILE* out = nullptr;

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *bytes = std::size_t{8} << 20;
  *most_records = 0;  // as many as fit
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, *bytes));
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t filled) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, filled, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    std::fprintf(out, "%llu %llu %d %d %d %d %s\n", static_cast<unsigned long long>(kernel->start),
                 static_cast<unsigned long long>(kernel->end), kernel->gridX, kernel->blockX,
                 kernel->registersPerThread, kernel->dynamicSharedMemory, kernel->name);
  }
  std::free(buffer);
}

void finish() {
  cuptiActivityFlushAll(1);
  std::fclose(out);
}

}  // namespace

// The driver calls it when the program first uses CUDA.
extern "C" int InitializeInjection() {
  const char* path = std::getenv("KERNEL_TRACE");
  out = std::fopen(path != nullptr ? path : "kernel_trace.txt", "w");
  if (out == nullptr) {
    std::perror("kernel_trace: the file of KERNEL_TRACE");
    return 0;
  }
  if (cuptiActivityRegisterCallbacks(give_buffer, take_buffer) != CUPTI_SUCCESS ||
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) {
    std::fprintf(stderr, "kernel_trace: CUPTI refuses to trace kernels (another profiler, or no permission)\n");
    return 0;
  }
  std::atexit(finish);
  return 1;
}
