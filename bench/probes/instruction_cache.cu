// Straight-line code of S KB, run in passes by every SM: where the instruction cache ends and what a missed
// KB costs.
#include <algorithm>
#include <cstdio>
#include <vector>
template <int kInstr>
__global__ void __launch_bounds__(256) code(float* out, long long* t, int passes, float a) {
  float x[8];
  for (int i = 0; i < 8; ++i) x[i] = a + i;
  for (int p = 0; p < passes; ++p) {
    __syncthreads();
    long long c0 = clock64();
#pragma unroll
    for (int i = 0; i < kInstr; ++i)
      asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x[i & 7]) : "f"(a), "f"(x[(i + 1) & 7]));
    __syncthreads();
    long long c1 = clock64();
    if (threadIdx.x == 0) t[blockIdx.x * passes + p] = c1 - c0;
  }
  float s = 0;
  for (int i = 0; i < 8; ++i) s += x[i];
  if (s == 12345.f) out[0] = s;
}
template <int kInstr>
void run(float* o, long long* t) {
  for (int warps : {1, 4, 8}) {
    const int passes = 6;
    code<kInstr><<<132, warps * 32>>>(o, t, passes, 0.5f);
    std::vector<long long> h(132 * passes);
    cudaMemcpy(h.data(), t, h.size() * 8, cudaMemcpyDeviceToHost);
    printf("%4d KB %d warps:", kInstr * 16 / 1024, warps);
    for (int p = 0; p < passes; ++p) {
      std::vector<long long> v;
      for (int b = 0; b < 132; ++b) v.push_back(h[b * passes + p]);
      std::nth_element(v.begin(), v.begin() + 66, v.end());
      printf(" %7lld", v[66]);
    }
    printf("   (issue alone %d)\n", kInstr * std::max(1, (warps + 3) / 4));
  }
}
int main() {
  float* o;
  long long* t;
  cudaMalloc(&o, 4);
  cudaMalloc(&t, 1 << 20);
  run<256>(o, t);
  run<1024>(o, t);
  run<1536>(o, t);
  run<2048>(o, t);
  run<3072>(o, t);
  run<4096>(o, t);
  run<6144>(o, t);
  run<7168>(o, t);
  run<8192>(o, t);
  run<9216>(o, t);
  run<10240>(o, t);
  run<12288>(o, t);
  run<16384>(o, t);
  printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
