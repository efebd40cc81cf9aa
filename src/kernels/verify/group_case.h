// The proof of the plain grouped GEMM as other engines call it: rows sorted by expert, offsets on the device,
// experts without rows among them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/launch/machine.h"
#include "kernels/moe_group/grouped_gemm.h"
#include "kernels/verify/result.h"

namespace fourfold::verify {

struct GroupCase {
  moe_group::GemmRequest request;
  std::vector<int> rows_per_expert;  // sum up to request.rows
  std::uint64_t seed = 1;
};

std::string op_of(const GroupCase& test);  // "decode w4a16 nvfp4 f32"

Result run_group_case(kernels::Machine& machine, const GroupCase& test, bool bits_exact);

}  // namespace fourfold::verify
