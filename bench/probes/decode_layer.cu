// A DeltaNet layer of the 35B for one row: its six kernels as the engine launches them, 30 layers of random
// weights in a graph with dependent launch. Compiles in ten seconds, so that a change to a kernel can be
// timed by turns with what was there before: twice, once with the headers of each. The bits of the residual
// stream are printed, too. Both in one way: `--split-compile` makes other code of the delta rule.
//
//   nvcc -O3 -std=c++20 --expt-relaxed-constexpr -gencode arch=compute_90a,code=sm_90a -Isrc -Iinclude
//        [-DNVFP4] [-DSTAMPS] bench/probes/decode_layer.cu src/plan/row_facts.cpp src/base/error.cpp
//        src/base/format.cpp src/base/check.cpp && ./a.out [position]
//
// -DSTAMPS: and when the blocks of each kernel start, wait and end.
// -DPERSISTENT=1, 2: one or two kernels that stay for all layers (persistent_layer.cuh); needs -I. as well.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "kernels/delta/rows.h"
#include "kernels/dense/choose.h"
#include "kernels/launch/cuda_row.cuh"
#include "kernels/launch/spread.h"
#include "kernels/moe/chips.h"
#include "kernels/moe_few/rows.h"
#ifdef PERSISTENT
#include "bench/probes/persistent_layer.cuh"
#endif

using namespace fourfold;

namespace {

using Arch = moe::Sm90Within99K;
using Delta = delta::DecodeRow<plan::Sm90, 128>;
using GateUp = moe_few::GateUpRow<Arch, moe::W4a16Mma, record::Nvfp4, 32, 8, 0, false, 2>;
using Down = moe_few::DownRow<Arch, moe::W4a16Mma, record::Nvfp4, 16, 8, 1, false, 2>;
#ifdef NVFP4
using In = dense::PairOf<Arch, record::Nvfp4, 2>;
using Out = dense::FewRow<Arch, record::Nvfp4, dense::GivenRows, 2, 8, 2>;
using Router = dense::PairOf<Arch, record::Nvfp4, 2>;
using Dense = record::Nvfp4;
#else
using In = dense::FewRow<Arch, record::Bf16Format, dense::NormedRows, 2, 4, 1>;
using Out = dense::FewRow<Arch, record::Bf16Format, dense::GivenRows, 1, 8, 1>;
using Router = dense::FewRow<Arch, record::Bf16Format, dense::NormedRows, 1, 8, 1>;
using Dense = record::Bf16Format;
#endif
constexpr bool kFp4 = record::kHasBlockScales<Dense>;
constexpr int kLayers = 30, kSms = 132, kHidden = 2048, kWide = 12352, kExperts = 256, kLogits = 1312,
              kDeltaBlocks = 32;
constexpr std::size_t kFp4Bytes = record::kRecordBytes<record::Nvfp4>, kBytes = record::kRecordBytes<Dense>,
                      kBf16Bytes = record::kRecordBytes<record::Bf16Format>;

void ok(cudaError_t status) { kernels::cuda_check(status, "the probe"); }

__device__ unsigned mixed_bits(unsigned h) {
  h = (h * 2654435761u) ^ (h * 2654435761u >> 15);
  return (h * 2246822519u) ^ (h * 2246822519u >> 13);
}
__global__ void fill_floats(float* to, std::size_t count, float scale, unsigned seed) {
  for (std::size_t i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull)
    to[i] =
        scale * static_cast<float>(static_cast<int>(mixed_bits(static_cast<unsigned>(i) + seed))) / 2.1e9f;
}
// bf16 of either sign near 0.01, or FP4 codes with scales below 2.
__global__ void fill_words(unsigned* to, std::size_t count, unsigned seed, bool fp4) {
  for (std::size_t i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull) {
    const unsigned bits = mixed_bits(static_cast<unsigned>(i) + seed);
    to[i] = fp4 ? bits & 0xBFBFBFBFu : (bits & 0x807F807Fu) | 0x3C003C00u;
  }
}

unsigned next_seed() {
  static unsigned seed = 1;
  return seed += 7919u;
}
float* floats(std::size_t count, float scale = 0.1f) {
  float* place = nullptr;
  ok(cudaMalloc(&place, 4 * count));
  fill_floats<<<512, 256>>>(place, count, scale, next_seed());
  return place;
}
unsigned char* words(std::size_t bytes, bool fp4 = false) {
  unsigned* place = nullptr;
  ok(cudaMalloc(&place, bytes));
  fill_words<<<1024, 256>>>(place, bytes / 4, next_seed(), fp4);
  return reinterpret_cast<unsigned char*>(place);
}
std::uint16_t* halves(std::size_t count) { return reinterpret_cast<std::uint16_t*>(words(2 * count)); }

#ifdef STAMPS
// When a block starts, when its first warp is behind the wait, and when its last warp ends: nanoseconds of
// the GPU's clock. A stamp costs registers: where the compiler gave a kernel more than without stamps, it may
// no longer fit an SM beside its neighbours (docs/decisions/0045), so compare the time a layer takes as well.
enum Stamp { started, waited, ended, kStamps };
constexpr int kLaunches = 6 * kLayers;
__device__ unsigned long long stamps[kLaunches][kSms][kStamps];
__device__ unsigned places[kLaunches][kSms];  // the SM of a block
__device__ unsigned long long now() {
  unsigned long long time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}
template <class ArchT>
struct StampedCta : device::CudaCta<ArchT> {
  int launch;
  __device__ explicit StampedCta(int of) : launch(of) {}
  __device__ void wait_predecessors() const {
    device::CudaCta<ArchT>::wait_predecessors();
    if (threadIdx.x == 0) stamps[launch][blockIdx.x][waited] = now();
  }
};
template <class Row>
__global__ void __launch_bounds__(Row::threads, kernels::register_blocks<Row>())
    probe_kernel(const __grid_constant__ typename Row::Params params, const int launch) {
  if (threadIdx.x == 0) {
    stamps[launch][blockIdx.x][started] = now();
    asm volatile("mov.u32 %0, %smid;" : "=r"(places[launch][blockIdx.x]));
  }
  Row::run(StampedCta<typename Row::Arch>(launch), params);
  __syncwarp();
  if ((threadIdx.x & 31) == 0) atomicMax(&stamps[launch][blockIdx.x][ended], now());
}
int next_launch = 0;
#else
template <class Row>
constexpr auto probe_kernel = kernels::row_kernel<Row>;
#endif

#ifdef PERSISTENT
using Parties = std::pair<persistent::Arguments<In, Out, GateUp>, persistent::Arguments<Delta, Router, Down>>;
using EvenAhead = persistent::Ahead<Parties::first_type>;
using OddAhead = persistent::Ahead<Parties::second_type>;
// Shared memory: what the even stages have, what the odd ones have, and the arguments.
struct Shares {
  int odd, even_ahead, odd_ahead;
};
template <int Party>
__global__ void __maxnreg__(persistent::kPartyRegisters[Party])
    stay(persistent::Words* words, const __grid_constant__ persistent::Grid grid,
         const Parties::first_type* even, const Parties::second_type* odd, const Shares shares) {
  auto& even_ahead = *reinterpret_cast<EvenAhead*>(persistent::shared_bytes() + shares.even_ahead);
  auto& odd_ahead = *reinterpret_cast<OddAhead*>(persistent::shared_bytes() + shares.odd_ahead);
  if constexpr (persistent::kParties == 1)
    persistent::run_all(words, grid, even_ahead, even, odd_ahead, odd, shares.odd);
  else if constexpr (Party == 0)
    persistent::run_party<0>(words, grid, even_ahead, even);
  else
    persistent::run_party<1>(words, grid, odd_ahead, odd);
}

// What would be launched, in order.
struct Kept {
  std::vector<Parties::first_type> first = std::vector<Parties::first_type>(kLayers);
  std::vector<Parties::second_type> second = std::vector<Parties::second_type>(kLayers);
  persistent::Grid grid{};
  Parties::first_type* first_there = nullptr;
  Parties::second_type* second_there = nullptr;
  int launches = 0;

  template <class Params>
  void keep(int blocks, const Params& params) {
    const int layer = launches / persistent::kStages, place = launches++ % persistent::kStages;
    auto& even = first[layer];
    auto& odd = second[layer];
    void* const to[] = {&even.first, &odd.first, &even.second, &odd.second, &even.third, &odd.third};
    std::memcpy(to[place], &params, sizeof params);
    grid.blocks[place] = blocks;
  }
} kept;

template <class Row>
void prepare() {}
template <class Row>
void launch(cudaStream_t, int blocks, const typename Row::Params& params) {
  kept.keep(blocks, params);
}

persistent::Words* words_there = nullptr;

template <class... Rows>
constexpr int most_bytes() {
  return (static_cast<int>(std::max({kernels::kStorageBytes<Rows>...})) + 1023) / 1024 * 1024;
}
constexpr int kEven = most_bytes<In, Out, GateUp>(), kOdd = most_bytes<Delta, Router, Down>();

// Both, in order: what each is started with.
template <class Each>
void for_each_party(Each each) {
  if constexpr (persistent::kParties == 1) {
    const int ahead = kEven + kOdd, bytes = ahead + static_cast<int>(sizeof(EvenAhead) + sizeof(OddAhead));
    each(stay<0>, persistent::kPartyThreads[0], bytes, false,
         Shares{kEven, ahead, ahead + static_cast<int>(sizeof(EvenAhead))});
  } else {
    const int even = kEven + static_cast<int>(sizeof(EvenAhead)),
              odd = kOdd + static_cast<int>(sizeof(OddAhead));
    each(stay<0>, persistent::kPartyThreads[0], std::max(even, kernels::apart_bytes()), false,
         Shares{0, kEven, 0});
    each(stay<1>, persistent::kPartyThreads[1], odd, true, Shares{0, 0, kOdd});
  }
}

void prepare_parties() {
  const auto send = [](const auto& from, auto& to) {
    ok(cudaMalloc(&to, from.size() * sizeof from[0]));
    ok(cudaMemcpy(to, from.data(), from.size() * sizeof from[0], cudaMemcpyHostToDevice));
  };
  send(kept.first, kept.first_there);
  send(kept.second, kept.second_there);
  ok(cudaMalloc(&words_there, sizeof *words_there));
  for_each_party([](auto kernel, int threads, int bytes, bool, Shares) {
    const kernels::KernelFacts facts = kernels::prepare_kernel("the probe", kernel, threads, bytes);
    std::printf("%d threads, %d registers, %d bytes; ", threads, facts.registers, bytes);
  });
}
void launch_parties(cudaStream_t stream) {
  ok(cudaMemsetAsync(words_there, 0, sizeof *words_there, stream));
  for_each_party([&](auto kernel, int threads, int bytes, bool dependent, Shares shares) {
    kernels::launch_kernel("the probe", kernel, kernels::CudaLaunch{kSms, threads, bytes, stream, dependent},
                           words_there, kept.grid, static_cast<const Parties::first_type*>(kept.first_there),
                           static_cast<const Parties::second_type*>(kept.second_there), shares);
  });
}
#else
template <class Row>
void prepare() {
  kernels::prepare_kernel("the probe", probe_kernel<Row>, Row::threads, kernels::kStorageBytes<Row>);
}
// As the engine's machine does it.
kernels::Spread spread;
template <class Row>
void launch(cudaStream_t stream, int blocks, const typename Row::Params& params) {
  static const int apart = kernels::apart_bytes();
  int bytes = static_cast<int>(kernels::kStorageBytes<Row>);
  if (spread.keeps_apart(Row::facts(), blocks, kSms)) bytes = std::max(bytes, apart);
  kernels::launch_kernel("the probe", probe_kernel<Row>,
                         kernels::CudaLaunch{blocks, Row::threads, bytes, stream, true}, params
#ifdef STAMPS
                         ,
                         next_launch++
#endif
  );
}
#endif

struct Layer {
  unsigned char *in = words((kFp4 ? 384 : 386) * 32 * kBytes, kFp4), *gates = words(2 * 32 * kBf16Bytes),
                *out = words(64 * 64 * kBytes, kFp4), *router = words((kFp4 ? 9 : 41) * 32 * kBf16Bytes),
                *shared_in = words(32 * 32 * kBytes, kFp4), *shared_down = words(64 * 8 * kBytes, kFp4),
                *gate_up = words(kExperts * 32 * 32 * kFp4Bytes, true),
                *down = words(kExperts * 64 * 8 * kFp4Bytes, true);
  float *state, *taps, *a_log = floats(32), *dt_bias = floats(32), *norm = floats(128, 1.0f);
  explicit Layer(const delta::Layout& layout)
      : state(floats(layout.slot_floats)), taps(floats(4ull * layout.conv_dim)) {}
};

struct Step {
  delta::Layout layout = delta::layout_of(16, 32, 128);
  std::vector<Layer> layers;
  float *start = floats(kHidden, 1.0f), *x = floats(kHidden), *norm = floats(kHidden, 1.0f),
        *projection = floats(kWide), *logits = floats(kLogits);
  std::uint16_t *mixed = halves(4096), *normed = halves(kHidden), *inner = halves(512),
                *slots = halves(64 * 512);
  step::SequencePlace* sequence = nullptr;
  cudaStream_t stream = nullptr;

  explicit Step(int position) {
    for (int i = 0; i < kLayers; ++i) layers.emplace_back(layout);
    const step::SequencePlace place{0, 1, position, 0, 0, {}};
    ok(cudaMalloc(&sequence, sizeof place));
    ok(cudaMemcpy(sequence, &place, sizeof place, cudaMemcpyHostToDevice));
    ok(cudaStreamCreate(&stream));
    prepare<In>(), prepare<Delta>(), prepare<Out>(), prepare<Router>(), prepare<GateUp>(), prepare<Down>();
  }

  dense::DenseParams matrix(const unsigned char* weights, int strips, float* out, int stride) const {
    dense::DenseParams params{};
    params.weights = weights;
    params.tokens = x;
    params.norm_weight = norm;
    params.out = out;
    params.scale = params.scale_gate = params.scale_up = kFp4 ? 1e-3f : 1.0f;
    params.epsilon = 1e-6f;
    params.op = dense::PlainOp::store_f32;
    params.strips = params.plain_strips = strips;
    params.records = kHidden / record::kColumns;
    params.token_count = 1;
    params.token_stride = kHidden;
    params.out_stride = stride;
    return params;
  }
  void mix(const Layer& layer) const {
    if constexpr (kFp4) {
      const auto choice = dense::choose_pair(64, 12288, kHidden, WeightFormat::nvfp4, 1, kSms);
      launch_pair<In>(choice, matrix(layer.gates, 2, projection + 12288, kWide),
                      matrix(layer.in, 384, projection, kWide));
    } else {
      launch_one<In>(kSms, matrix(layer.in, 386, projection, kWide));
    }
    delta::DecodeParams rule{};
    rule.sequences = sequence;
    rule.sequence_limit = 1;
    rule.mixed = {projection, kWide, 0, 8192, 12288, 12320};
    rule.weights = {layer.taps, layer.a_log, layer.dt_bias, layer.norm, 1e-6f, 0};
    rule.state = layer.state;
    rule.layout = layout;
    rule.out = mixed;
    rule.out_stride = 4096;
    launch<Delta>(stream, kDeltaBlocks, rule);
    dense::DenseParams out = matrix(layer.out, 64, x, kHidden);
    out.tokens = mixed;
    out.op = dense::PlainOp::add_f32;
    out.records = out.token_stride = 4096;
    out.records /= record::kColumns;
    out.scale *= 1e-3f;
    launch<Out>(stream, kFp4 ? 64 : 128, out);
  }
  void apply(const Layer& layer) const {
    dense::DenseParams router = matrix(layer.router, kFp4 ? 9 : 41, logits, kLogits);
    router.plain_strips = 9;
    router.normed_out = normed;
    dense::DenseParams shared = matrix(layer.shared_in, 32, nullptr, 0);
    shared.plain_strips = 0;
    router.gate_up_out = shared.gate_up_out = inner;
    router.gate_up_stride = shared.gate_up_stride = 512;
    if constexpr (kFp4) {
      router.scale = 1.0f;
      launch_pair<Router>(dense::choose_pair(288, 1024, kHidden, WeightFormat::nvfp4, 1, kSms), router,
                          shared);
    } else {
      launch_one<Router>(82, router);
    }
    moe_few::FewCall call{};
    call.few = {logits, 1, kExperts, 8, {}, x, kLogits, {}};
    call.few.rule.renormalise = true;
    call.few.shared = {layer.shared_down,
                       inner,
                       logits + kExperts,
                       8,
                       kLogits,
                       nullptr,
                       kFp4 ? WeightFormat::nvfp4 : WeightFormat::bf16};
    call.gemm.weights = layer.gate_up;
    call.gemm.tokens = reinterpret_cast<const unsigned char*>(normed);
    call.gemm.out = slots;
    call.gemm.op = moe::Op::gate_up;
    call.gemm.strips = call.gemm.records = 32;
    call.gemm.out_columns = 512;
    launch<GateUp>(stream, kSms, call);
    call.gemm.weights = layer.down;
    call.gemm.tokens = reinterpret_cast<const unsigned char*>(slots);
    call.gemm.out = nullptr;
    call.gemm.op = moe::Op::plain;
    call.gemm.strips = 64;
    call.gemm.records = 8;
    call.gemm.out_columns = kHidden;
    launch<Down>(stream, 128, call);
  }
  // Templates, so that only the ones of the format are made.
  template <class Row>
  void launch_one(int blocks, const dense::DenseParams& params) const {
    if constexpr (!kFp4) launch<Row>(stream, blocks, params);
  }
  template <class Row>
  void launch_pair(const dense::PairChoice& choice, const dense::DenseParams& first,
                   const dense::DenseParams& second) const {
    if constexpr (kFp4)
      launch<Row>(stream, choice.blocks, dense::PairParams{first, second, choice.first_blocks});
  }

  cudaGraphExec_t record() const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
#ifdef PERSISTENT
    for (const Layer& layer : layers) mix(layer), apply(layer);
    prepare_parties();
#endif
    ok(cudaDeviceSynchronize());
    ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    ok(cudaMemcpyAsync(x, start, 4 * kHidden, cudaMemcpyDeviceToDevice, stream));
#ifdef PERSISTENT
    launch_parties(stream);
#else
    for (const Layer& layer : layers) mix(layer), apply(layer);
#endif
    ok(cudaStreamEndCapture(stream, &graph));
    ok(cudaGraphInstantiate(&ready, graph, 0));
    return ready;
  }
};

#ifdef STAMPS
// Means over layers and rounds, from the end of the kernel before: of its last block.
void print_stamps(cudaGraphExec_t graph, cudaStream_t stream) {
  static unsigned long long host[kLaunches][kSms][kStamps];
  constexpr const char* names[] = {"projections", "delta rule", "output", "router", "gate and up", "down"};
  constexpr int rounds = 20, kernels = std::size(names);
  static unsigned sms[kLaunches][kSms];
  double sum[kernels][7] = {}, ends[2] = {};  // of the projections where the delta rule waits, and elsewhere
  int blocks[2] = {};
  for (int round = 0; round < rounds; ++round) {
    std::fill_n(&host[0][0][0], sizeof host / sizeof host[0][0][0], 0ull);
    ok(cudaMemcpyToSymbol(stamps, host, sizeof host));
    ok(cudaGraphLaunch(graph, stream));
    ok(cudaDeviceSynchronize());
    ok(cudaMemcpyFromSymbol(host, stamps, sizeof host));
    const auto sorted = [](int launch, Stamp of) {
      std::vector<unsigned long long> times;
      for (const auto& block : host[launch])
        if (block[started] != 0) times.push_back(block[of]);
      std::sort(times.begin(), times.end());
      return times;
    };
    ok(cudaMemcpyFromSymbol(sms, places, sizeof sms));
    for (int launch = kernels; launch < kLaunches; launch += kernels) {
      const unsigned long long zero = sorted(launch - 1, ended).back();
      const unsigned* hosts = sms[launch + 1];
      for (int block = 0; block < kSms; ++block) {
        if (host[launch][block][started] == 0) continue;
        const bool elsewhere =
            std::find(hosts, hosts + kDeltaBlocks, sms[launch][block]) == hosts + kDeltaBlocks;
        ends[elsewhere] += static_cast<double>(host[launch][block][ended] - zero);
        ++blocks[elsewhere];
      }
    }
    for (int launch = kernels; launch < kLaunches; ++launch) {
      const unsigned long long zero = sorted(launch - 1, ended).back();
      double* to = sum[launch % kernels];
      for (const Stamp of : {started, waited, ended}) {
        const auto times = sorted(launch, of);
        *to++ += static_cast<double>(static_cast<long long>(times.front() - zero));
        if (of == ended) *to++ += static_cast<double>(static_cast<long long>(times[times.size() / 2] - zero));
        *to++ += static_cast<double>(static_cast<long long>(times.back() - zero));
      }
    }
  }
  std::printf(
      "ns from the end of the kernel before: start first, last; behind the wait first, last; "
      "end first, median, last\n");
  for (int k = 0; k < kernels; ++k) {
    std::printf("%-12s", names[k]);
    for (const double of : sum[k]) std::printf(" %7.0f", of / (rounds * (kLayers - 1)));
    std::printf("\n");
  }
  std::printf("projections end, mean: %.0f on SMs where a block of the delta rule waits, %.0f on others\n",
              ends[0] / blocks[0], ends[1] / blocks[1]);
}
#endif

}  // namespace

int main(int count, char** arguments) {
  const int position = count > 1 ? std::atoi(arguments[1]) : 20;
  const Step step(position);
  cudaGraphExec_t graph = step.record();
  cudaEvent_t before = nullptr, after = nullptr;
  ok(cudaEventCreate(&before));
  ok(cudaEventCreate(&after));
  std::vector<float> times;
  for (int i = 0; i < 50; ++i) {
    float ms = 0;
    ok(cudaEventRecord(before, step.stream));
    ok(cudaGraphLaunch(graph, step.stream));
    ok(cudaEventRecord(after, step.stream));
    ok(cudaEventSynchronize(after));
    ok(cudaEventElapsedTime(&ms, before, after));
    if (i >= 10) times.push_back(1e3f * ms / kLayers);
  }
#ifdef STAMPS
  print_stamps(graph, step.stream);
#endif
#ifdef PERSISTENT
  persistent::Words words;
  ok(cudaMemcpy(&words, words_there, sizeof words, cudaMemcpyDeviceToHost));
  if (words.late != 0) return std::puts("no result: somebody waited too long in the last step"), 1;
#endif
  std::sort(times.begin(), times.end());
  std::vector<float> x(kHidden);
  ok(cudaMemcpy(x.data(), step.x, 4 * kHidden, cudaMemcpyDeviceToHost));
  unsigned bits = 0;
  for (const float value : x) {
    // Routing over what is no number is not the routing that was to be timed.
    if (!std::isfinite(value)) return std::puts("no result: the residual stream is not finite"), 1;
    bits = 31 * bits + std::bit_cast<unsigned>(value);
  }
  std::printf("%s, position %d: %.2f us a layer (tenth part below %.2f), bits %08x\n",
              kFp4 ? "nvfp4" : "bf16", position, times[times.size() / 2], times[times.size() / 10], bits);
}
