// The CPU backend: the program's embedded default. Weights are packed once when a program is prepared, values
// live in memory laid out then, and every op runs on a pool of threads with the widest instructions the CPU
// has. A row's bits depend on its own sequence alone: not on its batch, not on the number of threads, not on
// how its prompt was cut. Nor on the instruction set, except that AMX adds products of bf16 inputs (with bf16
// and FP8 weights) in its own order.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/collective.h"
#include "checkpoint/stream.h"

namespace fourfold::backend {

inline constexpr int kCpuThreadsMax = 1024;

struct CpuOptions {
  int threads = 0;  // 1 to kCpuThreadsMax; 0: one for each core this process may use
  // "plain", "avx2", "avx512", "amx", "neon"; empty: FOURFOLD_CPU_ISA, or the best this CPU has.
  std::string isa = {};
  // NVFP4 weights on AMX's tile unit, too. Prompts run about twice as fast; a decoded token reads 10 GB/s a
  // core at most instead of 24, which few cores with much memory bandwidth feel. Fixed with the program,
  // because it decides the order of additions.
  bool tile_codes = false;
  // value() answers after a run. Costs memory: every value gets memory of its own.
  bool keep_values = false;
  checkpoint::LoadProgress* progress = nullptr;
  // One rank of several: what it meets the others with, and the first of the CPUs its threads are pinned to.
  std::shared_ptr<Collective> collective = {};
  int first_cpu = 0;
};

// Throws invalid_request for a number of threads that is not possible and for an instruction set that does
// not exist, unsupported_device for one this CPU does not have; both list those it has.
std::unique_ptr<Backend> make_cpu_backend(CpuOptions options);

}  // namespace fourfold::backend
