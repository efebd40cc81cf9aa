// Prompts over a latent cache alone, wgmma beside mma (docs/decisions/0044): random numbers, some results
// checked against a plain f32 kernel, then timed. Compiles in half a minute.
//
//   nvcc -O3 -std=c++20 --expt-relaxed-constexpr -gencode arch=compute_90a,code=sm_90a -Isrc
//        bench/probes/latent_prompt.cu src/base/format.cpp && ./a.out
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/device/cuda/cta.h"
#include "kernels/mla/rows.h"
#include "kernels/moe/chips.h"
using namespace fourfold;
#define CHECK(x)                                     \
  do {                                               \
    cudaError_t e = (x);                             \
    if (e != cudaSuccess) {                          \
      printf("%s: %s\n", #x, cudaGetErrorString(e)); \
      exit(1);                                       \
    }                                                \
  } while (0)

template <class Row>
__global__ void __launch_bounds__(Row::threads, 1) row_kernel(const __grid_constant__ mla::AttendParams p) {
  Row::run(device::CudaCta<typename Row::Arch>(), p);
}
__device__ float bf(std::uint16_t b) { return __uint_as_float(std::uint32_t(b) << 16); }
__global__ void random_bits(std::uint16_t* to, long long n, float size, std::uint32_t seed) {
  for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
    std::uint32_t h = std::uint32_t(i) * 2654435761u ^ seed;
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    h ^= h >> 16;
    std::uint32_t h2 = h * 1664525u + 1013904223u;
    h2 ^= h2 >> 15;
    const float u1 = ((h >> 8) + 1) * 0x1p-24f, u2 = (h2 >> 8) * 0x1p-24f;
    to[i] = std::uint16_t(__float_as_uint(size * sqrtf(-2 * logf(u1)) * cospif(2 * u2)) >> 16);
  }
}
// One block a vector of `which`.
template <class Page>
__global__ void plain(mla::AttendParams p, const int* which, int position0, const int* pages, float* out,
                      float scale) {
  extern __shared__ float score[];
  const int vector = which[blockIdx.x], position = position0 + vector / p.heads;
  auto number = [&](int pos, int d) {
    return bf(*reinterpret_cast<const std::uint16_t*>(
        p.pages + (long long)pages[pos / 64] * Page::page_bytes + Page::offset(pos % 64, d)));
  };
  for (int pos = threadIdx.x; pos <= position; pos += blockDim.x) {
    float s = 0;
    for (int d = 0; d < Page::width; ++d)
      s += bf(p.query[(long long)vector * Page::width + d]) * number(pos, d);
    score[pos] = s * scale;
  }
  __syncthreads();
  float largest = -1e30f, total = 0;
  for (int pos = 0; pos <= position; ++pos) largest = fmaxf(largest, score[pos]);
  for (int pos = 0; pos <= position; ++pos) total += expf(score[pos] - largest);
  for (int d = threadIdx.x; d < Page::latent; d += blockDim.x) {
    float s = 0;
    for (int pos = 0; pos <= position; ++pos) s += expf(score[pos] - largest) * number(pos, d);
    out[(long long)blockIdx.x * Page::latent + d] = s / total;
  }
}
template <class Row>
void bench(int heads, int rows, int context, int rounds) {
  using Page = typename Row::Page;
  const int page_count = (context + rows + 63) / 64;
  const long long vectors = (long long)rows * heads;
  std::uint16_t *query, *out;
  unsigned char* pages;
  int* numbers;
  step::SequencePlace* sequences;
  CHECK(cudaMalloc(&query, vectors * Page::width * 2));
  CHECK(cudaMalloc(&out, vectors * Page::latent * 2));
  CHECK(cudaMalloc(&pages, (long long)page_count * Page::page_bytes));
  CHECK(cudaMalloc(&numbers, page_count * 4));
  CHECK(cudaMalloc(&sequences, sizeof(step::SequencePlace)));
  random_bits<<<1024, 256>>>(query, vectors * Page::width, 1.5f, 77);
  random_bits<<<1024, 256>>>((std::uint16_t*)pages, (long long)page_count * Page::page_bytes / 2, 1.0f, 5);
  // What is written nowhere is NaN.
  std::vector<int> number(page_count);
  for (int i = 0; i < page_count; ++i) number[i] = (i * 7 + 3) % page_count;
  {
    bool unique = true;
    std::vector<char> seen(page_count);
    for (int n : number) {
      if (seen[n]) unique = false;
      seen[n] = 1;
    }
    if (!unique)
      for (int i = 0; i < page_count; ++i) number[i] = page_count - 1 - i;
  }
  for (int pos = context + rows; pos < page_count * 64; ++pos)
    for (int d = 0; d < Page::width; ++d)
      CHECK(cudaMemset(pages + (long long)number[pos / 64] * Page::page_bytes + Page::offset(pos % 64, d),
                       0xFF, 2));
  CHECK(cudaMemcpy(numbers, number.data(), page_count * 4, cudaMemcpyHostToDevice));
  step::SequencePlace place{0, rows, context, 0, 0, {}};
  CHECK(cudaMemcpy(sequences, &place, sizeof place, cudaMemcpyHostToDevice));
  mla::AttendParams p{};
  p.tables = {nullptr, sequences, numbers, rows, 1};
  p.query = query;
  p.pages = pages;
  p.heads = heads;
  p.out = out;
  const float scale = 1 / std::sqrt(float(Page::width));
  p.scale_log2 = 1.44269504f * scale;
  const int blocks = int(mla::vector_tiles(rows, heads, Row::tile)) + 1;
  CHECK(cudaFuncSetAttribute(row_kernel<Row>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             int(sizeof(typename Row::Storage))));
  auto go = [&] { row_kernel<Row><<<blocks, Row::threads, sizeof(typename Row::Storage)>>>(p); };
  CHECK(cudaMemset(out, 0xFF, vectors * Page::latent * 2));
  go();
  CHECK(cudaDeviceSynchronize());
  // Some vectors against f32.
  std::vector<int> which;
  for (int i = 0; i < 64; ++i) which.push_back(int((long long)i * (vectors - 1) / 63));
  for (int i = 0; i < 64 && i < vectors; ++i) which.push_back(int(vectors - 1 - i));
  int* dwhich;
  float* dwant;
  CHECK(cudaMalloc(&dwhich, which.size() * 4));
  CHECK(cudaMalloc(&dwant, which.size() * Page::latent * 4));
  CHECK(cudaMemcpy(dwhich, which.data(), which.size() * 4, cudaMemcpyHostToDevice));
  const int score_bytes = (context + rows) * 4;
  CHECK(cudaFuncSetAttribute(plain<Page>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             std::max(score_bytes, 1024)));
  plain<Page><<<int(which.size()), 256, score_bytes>>>(p, dwhich, context, numbers, dwant, scale);
  std::vector<float> want(which.size() * Page::latent);
  CHECK(cudaMemcpy(want.data(), dwant, want.size() * 4, cudaMemcpyDeviceToHost));
  double worst = 0;
  std::vector<std::uint16_t> got(Page::latent);
  for (size_t i = 0; i < which.size(); ++i) {
    CHECK(cudaMemcpy(got.data(), out + (long long)which[i] * Page::latent, Page::latent * 2,
                     cudaMemcpyDeviceToHost));
    double size = 0;
    for (int d = 0; d < Page::latent; ++d)
      size = std::max(size, double(std::fabs(want[i * Page::latent + d])));
    for (int d = 0; d < Page::latent; ++d) {
      std::uint32_t u = std::uint32_t(got[d]) << 16;
      float f;
      std::memcpy(&f, &u, 4);
      const double off = std::fabs(f - want[i * Page::latent + d]) / size;
      if (!(off <= worst)) worst = off;
    }
  }
  cudaEvent_t a, b;
  cudaEventCreate(&a);
  cudaEventCreate(&b);
  for (int i = 0; i < 3; ++i) go();
  std::vector<float> times;
  for (int i = 0; i < rounds; ++i) {
    cudaEventRecord(a);
    go();
    cudaEventRecord(b);
    CHECK(cudaEventSynchronize(b));
    float ms;
    cudaEventElapsedTime(&ms, a, b);
    times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  const double seen = context + (rows + 1) / 2.0, flops = 2.0 * vectors * seen * (Page::width + Page::latent);
  const double us = times[times.size() / 2] * 1e3;
  printf("%-34s heads %3d rows %5d context %6d: worst %.4f, %9.1f us, %6.1f TFLOPS\n", Row::name().c_str(),
         heads, rows, context, worst, us, flops / us * 1e-6);
  cudaFree(query);
  cudaFree(out);
  cudaFree(pages);
  cudaFree(numbers);
  cudaFree(sequences);
  cudaFree(dwhich);
  cudaFree(dwant);
}
int main() {
  using Shared = moe::Sm90Within99K;
  using W256 = mla::PromptLatentWgmmaRow<plan::Sm90, 256>;
  using W512 = mla::PromptLatentWgmmaRow<plan::Sm90, 512>;
  using W64 = mla::PromptLatentWgmmaRow<plan::Sm90, 64>;
  using M256 = mla::AttendLatentRow<Shared, 256, 32, true>;
  using M512 = mla::AttendLatentRow<Shared, 512, 32, true>;
  using M256S = mla::AttendLatentRow<Shared, 256, 16, true>;
  using M512S = mla::AttendLatentRow<Shared, 512, 16, true>;
  using M64S = mla::AttendLatentRow<Shared, 64, 16, true>;
  bench<W64>(4, 77, 61, 5);
  bench<W256>(5, 77, 61, 5);
  bench<W512>(5, 77, 61, 5);
  bench<W256>(32, 2048, 0, 20);
  bench<M256>(32, 2048, 0, 5);
  bench<W256>(32, 8192, 0, 7);
  bench<W512>(128, 2048, 0, 10);
  bench<M512>(128, 2048, 0, 3);
  bench<W512>(16, 2048, 0, 10);
  bench<M512>(16, 2048, 0, 3);
  bench<W256>(32, 64, 8192, 10);
  bench<M256>(32, 64, 8192, 5);
  bench<W256>(8, 2, 16384, 10);
  bench<M256S>(8, 2, 16384, 10);
  bench<W512>(16, 1, 16384, 10);
  bench<M512S>(16, 1, 16384, 10);
  bench<W512>(16, 64, 8192, 10);
  bench<M512S>(16, 64, 8192, 10);
  bench<M512>(16, 64, 8192, 10);
  bench<W64>(4, 1, 16384, 10);
  bench<M64S>(4, 1, 16384, 10);
}
