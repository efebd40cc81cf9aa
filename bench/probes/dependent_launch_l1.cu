// Does griddepcontrol.wait empty L1? The second kernel starts while the first still runs, fetches a line, waits,
// and reads a word of that line which the first has written meanwhile. docs/simulator.md counts this as a fault
// because the hardware's word on it is not published: this program asks. On an H200 (d34d8bd, CUDA 13.0) no word was old
// in 200 rounds, in the control neither, so it has not answered: the line does not stay in L1 there.
//
//   nvcc -std=c++20 -O2 -arch=sm_90a bench/probes/dependent_launch_l1.cu -o /tmp/l1 && /tmp/l1
//
// The control fetches the line, then looks at a flag (L2, without acquire) instead of waiting: if it reads nothing
// old either, the line did not stay in L1 and the other numbers say nothing.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

constexpr int kBlocks = 32, kLines = 64, kWords = 32;  // words of a line of 128 bytes

__device__ std::uint32_t plain(const std::uint32_t* from) {
  std::uint32_t v;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ std::uint32_t constant(const std::uint32_t* from) {
  std::uint32_t v;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ std::uint32_t through_l2(const std::uint32_t* from) {
  std::uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}

// Lets the second kernel start, waits until its blocks have fetched their lines, writes word 1 of each.
__global__ void first(std::uint32_t* x, std::uint32_t* fetched, std::uint32_t* written, std::uint32_t value) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const long long begin = clock64();
  while (through_l2(fetched) < kBlocks && clock64() - begin < 50'000'000) {
  }
  for (int line = 0; line < kBlocks * kLines; ++line) x[line * kWords + 1] = value;
  __threadfence();
  atomicAdd(written, 1u);
}

enum Way { wait_plain, wait_constant, flag_plain };

__global__ void second(Way way, const std::uint32_t* x, std::uint32_t* fetched, const std::uint32_t* written,
                       std::uint32_t value, std::uint32_t* old) {
  const std::uint32_t* line = x + (blockIdx.x * kLines + threadIdx.x) * kWords;
  const std::uint32_t early = way == wait_constant ? constant(line + 31) : plain(line + 31);
  __syncthreads();
  if (threadIdx.x == 0 && early == 0) atomicAdd(fetched, 1u);  // word 31 is 0: the load has come back
  if (way == flag_plain)
    while (through_l2(written) == 0) {
    }
  else
    asm volatile("griddepcontrol.wait;" ::: "memory");
  const std::uint32_t late = way == wait_constant ? constant(line + 1) : plain(line + 1);
  if (late != value) atomicAdd(old, 1u);
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::printf("%s\n", cudaGetErrorString(status));
  std::exit(1);
}

int main() {
  std::uint32_t* words = nullptr;
  constexpr std::size_t kCount = kBlocks * kLines * kWords;
  check(cudaMalloc(&words, (kCount + 64) * 4));
  std::uint32_t *fetched = words + kCount, *written = fetched + 32, *old = fetched + 33;
  const char* names[] = {"wait, plain load", "wait, ld.global.nc", "flag, plain load (control)"};
  for (const Way way : {wait_plain, wait_constant, flag_plain}) {
    std::uint32_t late = 0, overlapped = 0;
    constexpr int kRounds = 200;
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      check(cudaMemset(words, 0, (kCount + 64) * 4));
      first<<<1, 1>>>(words, fetched, written, round);
      cudaLaunchConfig_t config{};
      config.gridDim = dim3(kBlocks);
      config.blockDim = dim3(kLines);
      cudaLaunchAttribute attribute{};
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
      config.attrs = &attribute;
      config.numAttrs = 1;
      check(cudaLaunchKernelEx(&config, second, way, static_cast<const std::uint32_t*>(words), fetched,
                               static_cast<const std::uint32_t*>(written), round, old));
      check(cudaDeviceSynchronize());
      std::uint32_t counts[34];
      check(cudaMemcpy(counts, fetched, sizeof counts, cudaMemcpyDeviceToHost));
      late += counts[33];
      overlapped += counts[0] == kBlocks;
    }
    std::printf("%-28s %u of %zu words old, in %d rounds of which %u overlapped\n", names[way], late,
                static_cast<std::size_t>(kRounds) * kBlocks * kLines, kRounds, overlapped);
  }
  return 0;
}
