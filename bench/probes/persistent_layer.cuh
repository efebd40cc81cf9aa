// The second design of one user's step (docs/decisions/0049 and 0050): the rows that decode_layer.cu launches, in
// kernels that stay for all layers. Where a row waits for the kernel in front, its blocks look at a counter
// that the blocks of that stage raise when they are done. The rows are taken as they are: what differs is who
// starts them and what they wait for, and the bits must be the graph's.
//
// -DPERSISTENT=1   one kernel, a block an SM, with all six stages; even and odd ones have a half of shared
//                  memory each, and its nine warps 168 registers
// -DPERSISTENT=2   two kernels, a block of each on every SM: one has the projections, the output projection
//                  and GEMM1, the other the delta rule, the router and GEMM2, so a block has asked for its
//                  next weights while the other kernel's multiplies. Its 17 warps have 112 and 96 registers:
//                  a quarter of an SM has 16,384
// -DWAY=counter    the blocks of a stage raise one word, everybody looks at it
// -DWAY=told       the last block of a stage writes a word for each block, which looks at its own
// -DWAY=nothing    nobody waits: wrong results, and the time that borders costing nothing would leave
#pragma once

#include <cstdint>

#include "kernels/launch/cuda_row.cuh"

namespace persistent {

using namespace fourfold;

enum Way { counter, told, nothing };
#ifndef WAY
#define WAY counter
#endif

constexpr int kStages = 6, kMostLayers = 30, kBlocks = 132, kParties = PERSISTENT;
constexpr int kPartyThreads[2] = {kParties == 1 ? 288 : 256, 288},
              kPartyRegisters[2] = {kParties == 1 ? 168 : 112, 96};
constexpr std::uint64_t kLimitNs = 20'000'000;  // a mistake here must not hang the machine

struct Words {
  std::uint32_t done[kMostLayers * kStages];  // blocks of a stage that are done
  std::uint32_t line[kBlocks][32];            // told: how many stages are over, a line a block
  std::uint32_t late;                         // somebody waited longer than kLimitNs
};
struct Grid {
  int blocks[kStages];
};

__device__ __forceinline__ std::uint32_t acquire(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void release_add(std::uint32_t* to) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(to) : "memory");
}

// For a warp, until the blocks of a stage are all done. `of` counts stages from the first layer on.
__device__ __forceinline__ void wait_for(Words* words, int of, int blocks) {
  if ((threadIdx.x & 31) == 0) {
    const std::uint32_t* from = WAY == told ? &words->line[blockIdx.x][0] : &words->done[of];
    const std::uint32_t wanted = static_cast<std::uint32_t>(WAY == told ? of + 1 : blocks);
    const std::uint64_t begin = device::ptx::nanoseconds();
    while (acquire(from) < wanted)
      if (device::ptx::nanoseconds() - begin > kLimitNs) {
        words->late = 1;
        break;
      }
  }
  __syncwarp();  // the other lanes read what their first one waited for
}

// All of a block's shared memory: what the compiler lays in front of it would move it off its alignment.
__device__ __forceinline__ unsigned char* shared_bytes() {
  extern __shared__ __align__(1024) unsigned char stage_shared[];
  return stage_shared;
}

// stage: of all layers. The machine as a row sees it, of whose threads there may be fewer than the block has.
template <class Row>
struct StageCta : device::CudaCta<typename Row::Arch> {
  Words* words;
  int stage, blocks_here, blocks_before;
  int shared_at;              // where its memory begins
  // Asked in each stage anew: else the compiler keeps all stages' addresses for the whole loop.
  int own_thread, own_block;

  __device__ StageCta(Words* of, int number, int here, int before, int at)
      : words(of), stage(number), blocks_here(here), blocks_before(before), shared_at(at) {
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(own_thread));
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(own_block));
  }
  __device__ int thread() const { return own_thread; }
  __device__ int lane() const { return own_thread & 31; }
  __device__ int warp() const { return __shfl_sync(~0u, own_thread >> 5, 0); }
  __device__ int block() const { return own_block; }
  template <class Storage>
  __device__ Storage& shared() const {
    return *reinterpret_cast<Storage*>(shared_bytes() + shared_at);
  }
  __device__ int threads() const { return Row::threads; }
  __device__ int blocks() const { return blocks_here; }
  __device__ void sync_block() const { device::ptx::barrier_sync(0, Row::threads); }
  __device__ void release_successors() const {}
  __device__ void wait_predecessors() const {
    if (WAY != nothing && stage > 0) wait_for(words, stage - 1, blocks_before);
  }
};

// Named barriers of a party's threads; 0 is the rows' own.
enum PartyBarrier { stage_is_done = 14, may_begin = 13 };

// Not inlined: what a row defines on one path only would be kept for all of the loop around it. place: two
// stages of one row have a function each.
//
// What a row reads before its wait is older than the stage in front (few_down: the logits), which had waited
// for it: a graph starts no block before that, and one kernel comes through that stage first. Of two kernels,
// each leaves every other stage out, so its blocks wait here for the stage before the one in front.
template <class Row>
__device__ __noinline__ void run_stage(Words* words, const Grid& grid, int layer, int place,
                                       const typename Row::Params& params, int party_threads, int at) {
  const int here = grid.blocks[place], number = layer * kStages + place;
  const bool works = static_cast<int>(blockIdx.x) < here;
  if (!works) return;
  if (kParties == 2 && WAY != nothing && number >= 2) {
    if (threadIdx.x < 32) wait_for(words, number - 2, grid.blocks[(place + kStages - 2) % kStages]);
    device::ptx::barrier_sync(may_begin, party_threads);  // all warps begin behind the first one's wait
  }
  if (static_cast<int>(threadIdx.x) < Row::threads)
    Row::run(StageCta<Row>(words, number, here, grid.blocks[(place + kStages - 1) % kStages], at), params);
  device::ptx::fence_async_proxy();  // what was read and written here comes before the next stage's copies
  device::ptx::barrier_sync(stage_is_done, party_threads);  // and all of this block's warps have written
  if (threadIdx.x >= 32) return;
  if (WAY == told) {
    std::uint32_t before = 0;
    if (threadIdx.x == 0) {
      __threadfence();  // what the block wrote comes before its count
      before = atomicAdd(&words->done[number], 1u);
      __threadfence();  // and the others' counts before the last one's words
    }
    if (__shfl_sync(~0u, before, 0) + 1 == static_cast<std::uint32_t>(here))
      for (int block = static_cast<int>(threadIdx.x); block < kBlocks; block += 32)
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(&words->line[block][0]), "r"(number + 1)
                     : "memory");
  } else if (threadIdx.x == 0) {
    release_add(&words->done[number]);
  }
}

// Arguments of the even stages of a layer, and of the odd.
template <class FirstT, class SecondT, class ThirdT>
struct alignas(16) Arguments {
  using First = FirstT;
  using Second = SecondT;
  using Third = ThirdT;
  typename First::Params first;
  typename Second::Params second;
  typename Third::Params third;
};

// Those of a layer come into shared memory while the layer in front is computed: from constant memory the
// compiler would fetch all of them first, and have no registers left.
template <class A>
struct Ahead {
  A layer[2];
};
template <class A>
__device__ __forceinline__ void fetch(Ahead<A>& to, const A* from, int layer) {
  if (layer == kMostLayers) return;
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(A) / 16);
       i += static_cast<int>(blockDim.x))
    device::ptx::copy_16_async(device::ptx::shared_address(&to.layer[layer & 1]) + 16 * i,
                               reinterpret_cast<const unsigned char*>(&from[layer]) + 16 * i);
}
__device__ __forceinline__ void fetched() {
  device::ptx::copy_commit();
  device::ptx::copy_wait<0>();
}

template <int Party, class A>
__device__ __forceinline__ void run_party(Words* words, const Grid& grid, Ahead<A>& ahead, const A* layers) {
  constexpr int threads = kPartyThreads[Party];
  if (Party == 0) device::ptx::release_successors();  // the other kernel may come
  fetch(ahead, layers, 0);
  fetched();
  __syncthreads();
#pragma unroll 1
  for (int layer = 0; layer < kMostLayers; ++layer) {
    const A& now = ahead.layer[layer & 1];
    fetch(ahead, layers, layer + 1);
    run_stage<typename A::First>(words, grid, layer, Party, now.first, threads, 0);
    run_stage<typename A::Second>(words, grid, layer, Party + 2, now.second, threads, 0);
    fetched();
    run_stage<typename A::Third>(words, grid, layer, Party + 4, now.third, threads, 0);
    // The next layer's arguments have landed for all, and this one's are read no more.
    device::ptx::barrier_sync(may_begin, threads);
  }
}

template <class Even, class Odd>
__device__ __forceinline__ void run_all(Words* words, const Grid& grid, Ahead<Even>& even, const Even* evens,
                                        Ahead<Odd>& odd, const Odd* odds, int half) {
  constexpr int threads = kPartyThreads[0];
  fetch(even, evens, 0);
  fetch(odd, odds, 0);
  fetched();
  __syncthreads();
#pragma unroll 1
  for (int layer = 0; layer < kMostLayers; ++layer) {
    const Even& e = even.layer[layer & 1];
    const Odd& o = odd.layer[layer & 1];
    fetch(even, evens, layer + 1);
    fetch(odd, odds, layer + 1);
    run_stage<typename Even::First>(words, grid, layer, 0, e.first, threads, 0);
    run_stage<typename Odd::First>(words, grid, layer, 1, o.first, threads, half);
    run_stage<typename Even::Second>(words, grid, layer, 2, e.second, threads, 0);
    fetched();
    run_stage<typename Odd::Second>(words, grid, layer, 3, o.second, threads, half);
    run_stage<typename Even::Third>(words, grid, layer, 4, e.third, threads, 0);
    run_stage<typename Odd::Third>(words, grid, layer, 5, o.third, threads, half);
    // The next layer's arguments have landed for all, and this one's are read no more.
    device::ptx::barrier_sync(may_begin, threads);
  }
}

}  // namespace persistent
