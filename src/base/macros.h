// The macros of the silicon floor; there are no others below the public headers.
// FOURFOLD_DEVICE marks code that runs in a kernel: on the GPU under nvcc, on the simulator everywhere else,
// from the same source. constexpr functions need no mark: nvcc lets kernels call them
// (--expt-relaxed-constexpr).
#pragma once

#if defined(__CUDACC__)
#define FOURFOLD_DEVICE __device__ __forceinline__
#define FOURFOLD_KERNEL __global__
#else
#define FOURFOLD_DEVICE inline
#define FOURFOLD_KERNEL
#endif

#define FOURFOLD_RESTRICT __restrict__
