// Kernels with the faults that tools/check_cubins.py must find, one each, and one without; see
// check_cubins_test.py.
namespace faulty {
struct Sound {};
struct LocalMemory {};
struct StaticShared {};
struct ManyRegisters {};
struct WrongThreads {};
struct WrongInstruction {};
struct Unplanned {};
}  // namespace faulty

extern "C" __device__ __noinline__ int __cuda_syscall_of_a_test(int value) { return value * value; }

namespace fourfold::kernels {

template <class Row>
__device__ void products(float* data) {
  const auto* words = reinterpret_cast<const unsigned*>(data);
  float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(words[4]), "r"(words[5]));
  data[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

template <class Row>
__global__ void __launch_bounds__(128) tile_kernel(float* data, int count) {
  products<Row>(data);
}
template <>
__global__ void __launch_bounds__(128) tile_kernel<faulty::LocalMemory>(float* data, int count) {
  products<faulty::LocalMemory>(data);
  float kept[300];
  for (int i = 0; i < count; ++i) kept[i] = data[i];
  for (int i = 0; i < count; ++i) data[i] = kept[static_cast<int>(kept[i])];
}
template <>
__global__ void __launch_bounds__(128) tile_kernel<faulty::StaticShared>(float* data, int count) {
  __shared__ float sums[64];
  products<faulty::StaticShared>(data);
  sums[threadIdx.x % 64] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = sums[count];
}
template <>
__global__ void __launch_bounds__(128) tile_kernel<faulty::WrongInstruction>(float* data, int count) {
  data[threadIdx.x] = static_cast<float>(__cuda_syscall_of_a_test(count));
}

template __global__ void tile_kernel<faulty::Sound>(float*, int);
template __global__ void tile_kernel<faulty::ManyRegisters>(float*, int);
template __global__ void tile_kernel<faulty::WrongThreads>(float*, int);
template __global__ void tile_kernel<faulty::Unplanned>(float*, int);

}  // namespace fourfold::kernels
