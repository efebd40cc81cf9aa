// Every instruction set of this machine, and random numbers in the forms the kernels read.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/packed_matrix.h"

namespace fourfold::cpu {

inline std::vector<float> normals(std::int64_t count, std::uint64_t seed, double size = 1) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& x : values) x = static_cast<float>(size * random.normal());
  return values;
}

inline const Kernels& plain() { return kernels_of(Isa::plain); }

// Calls test(kernels) for every instruction set but plain, and says which one in failures.
template <class Test>
void for_each_isa(const Test& test) {
  for (const Isa isa : available_isas()) {
    if (isa == Isa::plain) continue;
    SCOPED_TRACE(std::string(isa_name(isa)));
    test(kernels_of(isa));
  }
}

}  // namespace fourfold::cpu
