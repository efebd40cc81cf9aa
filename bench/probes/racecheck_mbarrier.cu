// What compute-sanitizer's racecheck says of correct hand-overs through mbarriers: a warp copies rows
// (LDGSTS) into a place again and again, another waits until they are there, reads them and frees the place.
//     nvcc -gencode arch=compute_90a,code=sm_90a racecheck_mbarrier.cu
//     compute-sanitizer --tool racecheck ./a.out all      every reading lane arrives at the barrier that
//     frees the place compute-sanitizer --tool racecheck ./a.out one      the lanes meet at __syncwarp, then
//     one arrives for all
#include <cstdint>
#include <cstdio>

__device__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
__device__ void arrive(std::uint32_t barrier) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(barrier) : "memory");
}
__device__ void wait(std::uint32_t barrier, std::uint32_t phase) {
  std::uint32_t done = 0;
  while (done == 0)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(phase)
                 : "memory");
}

template <bool OneArrives>
__global__ void hand_over(const uint4* from, uint4* to, int rounds) {
  __shared__ uint4 rows[32];
  __shared__ std::uint64_t barriers[2];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::uint32_t full = shared_address(&barriers[0]), empty = shared_address(&barriers[1]);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(full) : "memory");
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(empty), "r"(OneArrives ? 1 : 32) : "memory");
  }
  __syncthreads();
  for (int round = 0; round < rounds; ++round) {
    if (warp == 0) {
      if (round > 0) wait(empty, (round - 1) & 1);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&rows[lane])),
                   "l"(from + 32 * round + lane)
                   : "memory");
      asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(full) : "memory");
    } else {
      wait(full, round & 1);
      const uint4 row = rows[31 - lane];
      if constexpr (OneArrives) {
        __syncwarp();
        if (lane == 0) arrive(empty);
      } else {
        arrive(empty);
      }
      to[32 * round + lane] = row;
    }
  }
}

int main(int argc, char** argv) {
  constexpr int rounds = 4;
  uint4 *from, *to;
  cudaMalloc(&from, 512 * rounds);
  cudaMalloc(&to, 512 * rounds);
  cudaMemset(from, 1, 512 * rounds);
  const bool one = argc > 1 && argv[1][0] == 'o';
  if (one)
    hand_over<true><<<1, 64>>>(from, to, rounds);
  else
    hand_over<false><<<1, 64>>>(from, to, rounds);
  std::printf("%s: %s\n", one ? "one lane arrives for all" : "every lane arrives",
              cudaGetErrorString(cudaDeviceSynchronize()));
}
