// What W4A16 costs a chip with the FP4 instruction where native rows are refused. Ratios of what both paths
// issue and read, not times: no chip with the instruction was at hand.
#pragma once

#include <string>

#include "base/format.h"

namespace fourfold::plan {

// K of one tensor-core instruction: mma.m16n8k64 on FP4, mma.m16n8k16 on bf16.
inline constexpr int kFp4StepColumns = 64, kBf16StepColumns = 16;
inline constexpr int kW4a16InstructionRatio = kFp4StepColumns / kBf16StepColumns;
// Bytes of a token's column: bf16, against a code of four bits and a share of its 16 columns' scale.
inline constexpr double kW4a16TokenRatio = 2.0 / (0.5 + 1.0 / 16);

inline std::string w4a16_price() {
  return format(
      "W4A16 reads the same bytes of weights, so generated tokens take about as long; prompts take {} times "
      "the tensor-core instructions and {} times the bytes of tokens",
      kW4a16InstructionRatio, static_cast<int>(10 * kW4a16TokenRatio + 0.5) / 10.0);
}

}  // namespace fourfold::plan
