// Before every .cu file that an Arm machine's nvcc compiles for x86-64 (cross_cuda.cmake). Its front end was made for Arm hosts: it
// does not know what x86-64's g++ has built in and the headers of the standard library call, and holds `char` unsigned unless
// told. Where it and g++ held one type for two, kernels would read their arguments at wrong places: that ends the compilation.
#pragma once

extern "C" void __builtin_ia32_pause();

static_assert(static_cast<char>(-1) < 0, "nvcc must hold char signed, as x86-64 does: -Xcudafe --signed_chars");
static_assert(static_cast<wchar_t>(-1) < 0, "nvcc must hold wchar_t signed, as x86-64 does");
static_assert(sizeof(long) == 8 && sizeof(wchar_t) == 4 && sizeof(long double) == 16 && alignof(long double) == 16 &&
                  sizeof(__builtin_va_list) == 24,
              "nvcc and x86-64's g++ do not agree about types");
